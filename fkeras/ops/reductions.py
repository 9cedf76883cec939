"""Sums, means, extremes and running totals over axes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.ops._define import op, to_array, to_floats

__all__ = (
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "average",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "max",
    "mean",
    "median",
    "min",
    "percentile",
    "prod",
    "ptp",
    "quantile",
    "std",
    "sum",
    "var",
)

_Axes = int | tuple[int, ...] | list[int] | None


def axes_of(axis: _Axes) -> Any:
    """Axes as jax.numpy takes them: a list becomes a tuple."""
    return tuple(axis) if isinstance(axis, list) else axis


@op
def all(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """Whether all elements along the axes are not zero."""
    return jnp.all(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def any(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """Whether some element along the axes is not zero."""
    return jnp.any(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def max(x: Any, axis: _Axes = None, keepdims: bool = False, initial: Any = None) -> Any:
    """The largest element along the axes, at least `initial`."""
    return jnp.max(to_array(x), axis=axes_of(axis), keepdims=keepdims, initial=initial)


@op
def min(x: Any, axis: _Axes = None, keepdims: bool = False, initial: Any = None) -> Any:
    """The least element along the axes, at most `initial`."""
    return jnp.min(to_array(x), axis=axes_of(axis), keepdims=keepdims, initial=initial)


@op
def amax(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """The largest element along the axes."""
    return jnp.max(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def amin(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """The least element along the axes."""
    return jnp.min(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the largest element along an axis, of all elements where it is None."""
    return jnp.argmax(to_array(x), axis=axis, keepdims=keepdims)


@op
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the least element along an axis, of all elements where it is None."""
    return jnp.argmin(to_array(x), axis=axis, keepdims=keepdims)


@op
def sum(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """The sum along the axes."""
    return jnp.sum(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def prod(x: Any, axis: _Axes = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """The product along the axes."""
    return jnp.prod(to_array(x), axis=axes_of(axis), keepdims=keepdims, dtype=dtype)


@op
def mean(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """The mean along the axes; half-precision numbers are summed in float32.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.mean([[1, 2], [3, 4]], axis=1, keepdims=True)
        Array([[1.5],
               [3.5]], dtype=float32)
    """
    x = to_floats(x)
    return jnp.mean(_wide(x), axis=axes_of(axis), keepdims=keepdims).astype(x.dtype)


@op
def var(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """The mean squared distance from the mean along the axes."""
    x = to_floats(x)
    y = jnp.var(_wide(x), axis=axes_of(axis), keepdims=keepdims)
    return y.astype(jnp.finfo(x.dtype).dtype)


@op
def std(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """The square root of the variance along the axes."""
    return jnp.std(to_floats(x), axis=axes_of(axis), keepdims=keepdims)


def _wide(x: jax.Array) -> jax.Array:
    return x.astype("float32") if jnp.finfo(x.dtype).bits < 32 else x


@op
def ptp(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """The largest minus the least element along the axes."""
    return jnp.ptp(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def count_nonzero(x: Any, axis: _Axes = None) -> Any:
    """How many elements along the axes are not zero."""
    return jnp.count_nonzero(to_array(x), axis=axes_of(axis)).astype("int32")


@op
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The sum of all elements up to each along an axis, of the flat array where it is None."""
    return jnp.cumsum(to_array(x), axis=axis, dtype=dtype)


@op
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The product of all elements up to each along an axis, of the flat array at None."""
    return jnp.cumprod(to_array(x), axis=axis, dtype=dtype)


@op
def average(x: Any, axis: _Axes = None, weights: Any = None) -> Any:
    """The mean along the axes, weighted where weights are given."""
    x = to_floats(x)
    weights = None if weights is None else jnp.asarray(weights).astype(x.dtype)
    return jnp.average(x, weights=weights, axis=axes_of(axis))


@op
def median(x: Any, axis: _Axes = None, keepdims: bool = False) -> Any:
    """The middle of the ordered elements along the axes; the mean of two middle ones."""
    return jnp.median(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def quantile(
    x: Any, q: Any, axis: _Axes = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """The element below which the share `q` of the elements along the axes lies.

    Args:
        x: an array.
        q: a share from 0 to 1, or an array of shares, which is the first axis of the result.
        axis: the axes; None for all.
        method: "linear", "lower", "higher", "midpoint" or "nearest": what lies between elements.
        keepdims: whether the axes stay, with size 1.
    """
    return jnp.quantile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )


@op
def percentile(
    x: Any, q: Any, axis: _Axes = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """The element below which `q` percent of the elements along the axes lie; see `quantile`."""
    return jnp.percentile(
        to_array(x), jnp.asarray(q), axis=axes_of(axis), method=method, keepdims=keepdims
    )
