"""Weighted means, medians and quantiles along axes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import op, to_array, to_common_floats, to_floats
from fkeras.engine.values.argument_types import Axes
from fkeras.nn.numerics.stable import magnitude
from fkeras.ops.numpy.reductions import axes_of

__all__ = (
    "average",
    "median",
    "percentile",
    "quantile",
)


@op
def average(x: TensorLike, axis: Axes = None, weights: TensorLike | None = None) -> jax.Array:
    """Returns the weighted mean along the axes.

    Args:
        weights: weights with the shape of x or of the axes; None for equal weights.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.average([1, 2, 3], weights=[1, 0, 3]))
        2.5
    """
    if weights is None:
        x = to_floats(x)
    else:
        x, weights = to_common_floats(x, weights)
        # the gradient contains the square of the sum of the weights, which may overflow: scale the
        # weights by a power of 2, which is exact and cancels in the mean
        weights = weights / magnitude(jnp.max(jnp.abs(weights), initial=0))
    return jnp.average(x, weights=weights, axis=axes_of(axis))


@op
def median(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns the median along the axes; the mean of the two middle elements for an even number.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.median([1, 9, 2, 4]))
        3.0
    """
    return jnp.median(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def quantile(
    x: TensorLike, q: TensorLike, axis: Axes = None, method: str = "linear", keepdims: bool = False
) -> jax.Array:
    """Returns the quantile `q` along the axes.

    Args:
        q: a number from 0 to 1, or an array of numbers, which adds a first axis to the result.
        axis: the axes; None for all axes.
        method: interpolation between elements: "linear", "lower", "higher", "midpoint" or
            "nearest".

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.quantile([1, 2, 3, 4, 5], [0.25, 0.5]))
        [2. 3.]
    """
    # `jnp.quantile` rejects lists of quantiles, which Keras accepts
    return jnp.quantile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )


@op
def percentile(
    x: TensorLike, q: TensorLike, axis: Axes = None, method: str = "linear", keepdims: bool = False
) -> jax.Array:
    """Returns the percentile `q` along the axes; see `quantile`.

    Args:
        q: a number from 0 to 100, or an array of numbers, which adds a first axis to the result.
        method: interpolation between elements; see `quantile`.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.percentile([1, 2, 3, 4, 5], 75))
        4.0
    """
    return jnp.percentile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )
