"""Weighted means, medians and quantiles over axes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fkeras.engine.symbolic.define import op, to_array, to_floats
from fkeras.nn.numerics.stable import magnitude
from fkeras.ops.numpy.reductions import Axes, axes_of

__all__ = (
    "average",
    "median",
    "percentile",
    "quantile",
)


@op
def average(x: Any, axis: Axes = None, weights: Any = None) -> Any:
    """The mean along the axes, weighted where weights are given.

    Args:
        weights: the share of each element, of the shape of x or of the axes; equal where None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.average([1, 2, 3], weights=[1, 0, 3]))
        2.5
    """
    x = to_floats(x)
    weights = None if weights is None else jnp.asarray(weights).astype(x.dtype)
    if weights is not None:
        # the gradient holds the square of their sum, which would leave the range of the dtype
        weights = weights / magnitude(jnp.max(jnp.abs(weights), initial=0))
    return jnp.average(x, weights=weights, axis=axes_of(axis))


@op
def median(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    """The middle of the ordered elements along the axes; the mean of two middle ones.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.median([1, 9, 2, 4]))
        3.0
    """
    return jnp.median(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def quantile(
    x: Any, q: Any, axis: Axes = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """The element below which the share `q` of the elements along the axes lies.

    Args:
        q: a share from 0 to 1, or an array of shares, which is the first axis of the result.
        axis: the axes; None for all.
        method: "linear", "lower", "higher", "midpoint" or "nearest": what lies between elements.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.quantile([1, 2, 3, 4, 5], [0.25, 0.5]))
        [2. 3.]
    """
    return jnp.quantile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )


@op
def percentile(
    x: Any, q: Any, axis: Axes = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """The element below which `q` percent of the elements along the axes lie; see `quantile`.

    Args:
        q: a number from 0 to 100, or an array of them, which is the first axis of the result.
        method: what lies between elements; see `quantile`.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.percentile([1, 2, 3, 4, 5], 75))
        4.0
    """
    return jnp.percentile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )
