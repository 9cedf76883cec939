"""Removal of samples with weight 0 or mask False, even if they hold NaN or infinity.

A removed sample must affect neither the loss nor the gradient. `jnp.where` removes the loss. The
gradient needs more: the derivative of a loss at NaN is NaN, and NaN times a gradient of 0 is NaN.
`hold` therefore stops the gradient of removed samples that hold NaN or infinity. Finite samples
keep their gradient, so the derivative with respect to a weight of 0 is correct; methods that learn
sample weights start there.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.nn.numerics.indices import equals


def removed(sample_weight: Numbers | None, mask: Numbers | None) -> jax.Array | None:
    """Returns a mask that is True where a weight is 0 or `mask` is False; None without both."""
    weightless = None
    if sample_weight is not None:
        # weights may be integers or booleans
        weightless = equals(as_operand(sample_weight, "sample_weight"), 0)
    masked = None if mask is None else ~as_operand(mask, "mask").astype(bool)
    if weightless is None or masked is None:
        # without both, `weightless` is None too
        return weightless if masked is None else masked
    rank = max(weightless.ndim, masked.ndim)
    return _trailing(weightless, rank) | _trailing(masked, rank)


def broken(
    gone: jax.Array, arrays: tuple[jax.Array, ...], axes: int | tuple[int, ...] = ()
) -> jax.Array | None:
    """Returns a mask of the removed samples for which any array holds NaN or infinity.

    Args:
        gone: True for removed samples; the axes of `gone` are the first axes of the arrays.
        axes: axes of the arrays that the losses lack, if these are not the last axes.

    Returns:
        An array with the shape of `gone`, or None if that shape does not fit the arrays.
    """
    finite = jnp.ones((), bool)
    # `axes` count for arrays of full rank; class numbers without the class axis stay as they are
    rank = max(array.ndim for array in arrays)
    for array in arrays:
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            continue
        array = _last(array, axes) if array.ndim == rank else array
        fitted_mask = _fitted(gone, array.shape)
        if fitted_mask is None:
            return None
        sizes = (*fitted_mask.shape, *(1,) * (array.ndim - fitted_mask.ndim))
        # reduce all axes over which `gone` is one decision
        reduced_axes = tuple(i for i, size in enumerate(sizes) if size == 1)
        is_finite = jnp.all(jnp.isfinite(array), axis=reduced_axes, keepdims=True)
        finite = finite & jnp.reshape(is_finite, gone.shape)
    return gone & ~finite


def spread(gone: jax.Array, array: jax.Array, axes: int | tuple[int, ...] = ()) -> jax.Array | None:
    """Returns `gone` with as many axes as `array`, or None if the shapes do not fit.

    Example:
        >>> import jax.numpy as jnp
        >>> spread(jnp.array([True, False]), jnp.ones((2, 3))).shape
        (2, 1)
        >>> spread(jnp.ones((2, 4), bool), jnp.ones((2, 3, 4)), 1).shape
        (2, 1, 4)
    """
    moved_spec = jax.eval_shape(lambda a: _last(a, axes), array)
    fitted_mask = _fitted(gone, moved_spec.shape)
    if fitted_mask is None:
        return None
    fitted_mask = _trailing(fitted_mask, array.ndim)
    axis_indices = _places(array.ndim, axes)
    return jnp.moveaxis(
        fitted_mask, range(array.ndim - len(axis_indices), array.ndim), axis_indices
    )


def hold(
    gone: jax.Array, arrays: tuple[jax.Array, ...], axes: int | tuple[int, ...] = ()
) -> tuple[jax.Array, ...]:
    """Returns the arrays with stopped gradients for removed samples that hold NaN or infinity.

    The arguments are those of `broken`.
    """
    removed_nonfinite = broken(gone, arrays, axes)
    if removed_nonfinite is None:
        return arrays
    rank = max(array.ndim for array in arrays)
    return tuple(_constant(removed_nonfinite, a, axes if a.ndim == rank else ()) for a in arrays)


def fill(gone: jax.Array, arrays: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Returns the arrays with zeros for removed samples that hold NaN or infinity.

    Used for losses that compare samples with each other or are a scalar for the whole batch: a
    removed sample would affect the losses of other samples.

    Example:
        >>> import jax.numpy as jnp
        >>> fill(jnp.array([True, False]), (jnp.array([jnp.nan, 1.0]),))
        (Array([0., 1.], dtype=float32),)
    """
    removed_nonfinite = broken(gone, arrays)
    if removed_nonfinite is None:
        return arrays
    masks = [spread(removed_nonfinite, array) for array in arrays]
    return tuple(
        array if mask is None else jnp.where(mask, jnp.zeros_like(array), array)
        for array, mask in zip(arrays, masks, strict=True)
    )


def finite_where_removed(values: jax.Array, gone: jax.Array | None) -> jax.Array:
    """Returns the values with 0 where a value is removed and not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> finite_where_removed(jnp.array([jnp.nan, 1.0]), jnp.array([True, False]))
        Array([0., 1.], dtype=float32)
    """
    if gone is None:
        return values
    return jnp.where(gone & ~jnp.isfinite(values), jnp.zeros_like(values), values)


def _constant(
    removed_nonfinite: jax.Array, array: jax.Array, axes: int | tuple[int, ...]
) -> jax.Array:
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    # only these entries: finite samples keep their gradient even with weight 0
    mask = spread(removed_nonfinite, array, axes)
    return array if mask is None else jnp.where(mask, jax.lax.stop_gradient(array), array)


def _fitted(is_removed: jax.Array, shape: tuple[int, ...]) -> jax.Array | None:
    """Returns `is_removed` with at most `len(shape)` axes; None if it does not fit the shape."""
    if is_removed.ndim > len(shape):
        # extra axes of size 1 carry no information: weights (b, 1) for losses (b,)
        if math.prod(is_removed.shape[len(shape) :]) != 1:
            return None
        is_removed = jnp.reshape(is_removed, is_removed.shape[: len(shape)])
    fits = all(g in (1, n) for g, n in zip(is_removed.shape, shape, strict=False))
    return is_removed if fits else None


def _trailing(array: jax.Array, rank: int) -> jax.Array:
    return jnp.reshape(array, (*array.shape, *(1,) * (rank - array.ndim)))


def _places(rank: int, axes: int | tuple[int, ...]) -> tuple[int, ...]:
    axis_list = axes if isinstance(axes, tuple | list) else (axes,)
    return tuple(a % rank for a in axis_list if -rank <= a < rank)


def _last(array: jax.Array, axes: int | tuple[int, ...]) -> jax.Array:
    """Returns the array with the given axes moved to the end."""
    axis_indices = _places(array.ndim, axes)
    return jnp.moveaxis(array, axis_indices, range(array.ndim - len(axis_indices), array.ndim))
