"""Reductions along axes: sums, means, extrema and cumulative sums."""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import op, to_array, to_floats
from fkeras.engine.values.argument_types import Axes, DTypeLike, Number
from fkeras.nn.cpu.extremes import largest, position, smallest
from fkeras.nn.numerics.axes import canonical_axes
from fkeras.nn.numerics.stable import standard_deviation

__all__ = (
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "max",
    "mean",
    "min",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
)


def axes_of(axis: Axes) -> int | tuple[int, ...] | None:
    """Returns axes in a form that jax.numpy accepts: a list becomes a tuple."""
    # configurations read from JSON hold lists
    return axis if axis is None or isinstance(axis, int) else tuple(axis)


@op
def all(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns whether all elements along the axes are nonzero.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.all([[1, 2], [0, 4]], axis=1))
        [ True False]
    """
    return jnp.all(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def any(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns whether any element along the axes is nonzero.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.any([[0, 0], [0, 4]], axis=1))
        [False  True]
    """
    return jnp.any(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def max(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, initial: Number | None = None
) -> jax.Array:
    """Returns the maximum along the axes, at least `initial`.

    Args:
        initial: lower bound of the result; required for an empty array.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.max([[1, 2], [3, 4]], axis=0))
        [3 4]
    """
    x = jnp.asarray(to_array(x))
    if initial is not None and 0 in x.shape:
        return jnp.max(x, axis=axes_of(axis), keepdims=keepdims, initial=initial)
    # `largest` instead of `jnp.max`: its gradient survives inexact recomputation by XLA
    y = largest(x, axes_of(axis), keepdims)
    return y if initial is None else jnp.maximum(y, jnp.asarray(initial, y.dtype))


@op
def min(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, initial: Number | None = None
) -> jax.Array:
    """Returns the minimum along the axes, at most `initial`.

    Args:
        initial: upper bound of the result; required for an empty array.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.min([[1, 2], [3, 4]], axis=0))
        [1 2]
    """
    x = jnp.asarray(to_array(x))
    if initial is not None and 0 in x.shape:
        return jnp.min(x, axis=axes_of(axis), keepdims=keepdims, initial=initial)
    y = smallest(x, axes_of(axis), keepdims)
    return y if initial is None else jnp.minimum(y, jnp.asarray(initial, y.dtype))


@op
def amax(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns the maximum along the axes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.amax([[1, 2], [3, 4]], axis=0))
        [3 4]
    """
    return largest(jnp.asarray(to_array(x)), axes_of(axis), keepdims)


@op
def amin(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns the minimum along the axes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.amin([[1, 2], [3, 4]], axis=0))
        [1 2]
    """
    return smallest(jnp.asarray(to_array(x)), axes_of(axis), keepdims)


def _position(x: TensorLike, axis: int | None, keepdims: bool, *, of_largest: bool) -> jax.Array:
    array = jnp.asarray(to_array(x))
    if axis is None:
        place = position(array.reshape(-1), 0, of_largest)
        return place.reshape((1,) * array.ndim) if keepdims else place
    (axis,) = canonical_axes(operator.index(axis), array.ndim)
    place = position(array, axis, of_largest)
    return jnp.expand_dims(place, axis) if keepdims else place


@op
def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> jax.Array:
    """Returns the index of the largest element along an axis, or of the flattened array for None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.argmax([[1, 9], [3, 2]], axis=1))
        [1 0]
    """
    return _position(x, axis, keepdims, of_largest=True)


@op
def argmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> jax.Array:
    """Returns the index of the smallest element along an axis, or of the flattened array for None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.argmin([[1, 9], [3, 2]], axis=1))
        [0 1]
    """
    return _position(x, axis, keepdims, of_largest=False)


@op
def sum(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns the sum along the axes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.sum([[1, 2], [3, 4]], axis=0))
        [4 6]
    """
    return jnp.sum(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def prod(
    x: TensorLike, axis: Axes = None, keepdims: bool = False, dtype: DTypeLike | None = None
) -> jax.Array:
    """Returns the product along the axes.

    Args:
        dtype: the dtype of the result; None for the dtype of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.prod([[1, 2], [3, 4]], axis=0))
        [3 8]
    """
    return jnp.prod(to_array(x), axis=axes_of(axis), keepdims=keepdims, dtype=dtype)


@op
def mean(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns the mean along the axes; 16-bit floats are summed in float32.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.mean([[1, 2], [3, 4]], axis=1, keepdims=True)
        Array([[1.5],
               [3.5]], dtype=float32)
    """
    x = to_floats(x)
    return jnp.mean(_wide(x), axis=axes_of(axis), keepdims=keepdims).astype(x.dtype)


@op
def var(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns the variance along the axes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.var([1, 3, 5, 7]))
        5.0
    """
    x = to_floats(x)
    y = jnp.var(_wide(x), axis=axes_of(axis), keepdims=keepdims)
    # the variance of complex numbers is real
    return y.astype(jnp.finfo(x.dtype).dtype)


@op
def std(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns the standard deviation along the axes.

    If all elements are equal, the gradient is 0.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.std([1, 3]))
        1.0
    """
    # the derivative of a square root at 0 is infinite
    return standard_deviation(to_floats(x), axes_of(axis), keepdims)


def _wide(x: jax.Array) -> jax.Array:
    # float16 sums overflow above 65504
    return x.astype("float32") if jnp.finfo(x.dtype).bits < 32 else x


@op
def ptp(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns the range, maximum - minimum, along the axes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.ptp([[1, 9], [3, 2]], axis=1))
        [8 1]
    """
    return jnp.ptp(to_array(x), axis=axes_of(axis), keepdims=keepdims)


@op
def count_nonzero(x: TensorLike, axis: Axes = None) -> jax.Array:
    """Returns the number of nonzero elements along the axes.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.count_nonzero([[1, 0], [3, 2]], axis=1))
        [1 2]
    """
    # int32 as in Keras, also if x64 is enabled
    return jnp.count_nonzero(to_array(x), axis=axes_of(axis)).astype("int32")


@op
def cumsum(x: TensorLike, axis: int | None = None, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns the cumulative sum along an axis, or of the flattened array for None.

    Args:
        dtype: the dtype of the sums; None for the dtype of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.cumsum([1, 2, 3]))
        [1 3 6]
    """
    return jnp.cumsum(to_array(x), axis=axis, dtype=dtype)


@op
def cumprod(x: TensorLike, axis: int | None = None, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns the cumulative product along an axis, or of the flattened array for None.

    Args:
        dtype: the dtype of the products; None for the dtype of x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.cumprod([1, 2, 3]))
        [1 2 6]
    """
    return jnp.cumprod(to_array(x), axis=axis, dtype=dtype)
