"""Pooling of arrays: over windows, to a given output size, over masked steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fkeras.nn.cpu.extremes import largest
from fkeras.nn.cpu.forms import compute
from fkeras.nn.cpu.pooling import MaxPool, SumPool
from fkeras.nn.numerics.axes import align, spatial_axes

# resource limit: more windows than this and than cells exhaust memory
_WINDOWS = 1 << 14
# resource limit: the indices of all windows of an axis are compiled in as constants
_CELLS = 1 << 25


def max_pool(
    x: jax.Array,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: str = "valid",
    data_format: str = "channels_last",
) -> jax.Array:
    """Computes the maximum of each window.

    Args:
        x: array of shape (b, *sizes, c), or (b, c, *sizes) with "channels_first".
        padding: "valid" for windows inside `x`, "same" for ceil(size / stride) windows.
        data_format: "channels_last" or "channels_first".

    Returns:
        An array of shape (b, *new_sizes, c), or (b, c, *new_sizes).

    Example:
        >>> import jax.numpy as jnp
        >>> max_pool(jnp.arange(4.0).reshape(1, 4, 1), (2,), (2,)).ravel()
        Array([1., 3.], dtype=float32)
    """
    form = MaxPool(tuple(strides), padding, data_format, (1,) * len(pool_size), tuple(pool_size))
    return compute(form, x)


def average_pool(
    x: jax.Array,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: str = "valid",
    data_format: str = "channels_last",
) -> jax.Array:
    """Computes the mean of each window over the cells inside `x`.

    Args:
        x: floating array of shape (b, *sizes, c), or (b, c, *sizes) with "channels_first".
        Other arguments: those of `max_pool`.

    Returns:
        An array of shape (b, *new_sizes, c), or (b, c, *new_sizes).

    Example:
        >>> import jax.numpy as jnp
        >>> average_pool(jnp.arange(3.0).reshape(1, 3, 1), (2,), (2,), "same").ravel()
        Array([0.5, 2. ], dtype=float32)
    """
    form = SumPool(tuple(strides), padding, data_format, (1,) * len(pool_size), tuple(pool_size))
    sums = compute(form, x)
    if padding == "valid":
        return sums / np.array(np.prod(pool_size), x.dtype)
    # count axis by axis: each array has the size of one axis, not of the image
    counts = jnp.ones((1,) * x.ndim, x.dtype)
    for axis, size, step in zip(spatial_axes(x.ndim, data_format), pool_size, strides, strict=True):
        ones = jnp.ones((x.shape[axis],), x.dtype)
        zero = np.array(0, x.dtype)
        cell_counts = lax.reduce_window(ones, zero, lax.add, (size,), (step,), "SAME")
        counts = counts * align(cell_counts, x.ndim, axis)
    return sums / counts


def adaptive_pool(
    x: jax.Array, output_size: Sequence[int], mode: str, data_format: str = "channels_last"
) -> jax.Array:
    """Computes the mean or maximum of each of `output_size` windows along each axis.

    Args:
        x: array of shape (b, *sizes, c), or (b, c, *sizes) with "channels_first"; floating, or
            with "max" of any dtype.
        mode: "average" or "max".
        Other arguments: those of `max_pool`.

    Returns:
        An array of shape (b, *output_size, c), or (b, c, *output_size); 0 if an axis of `x` has
        no cells.

    Raises:
        ValueError: if the mode is unknown.
    """
    if mode not in ("average", "max"):
        raise ValueError(
            f"adaptive_pool: mode: expected 'average' or 'max', received {mode!r}. Use 'average' for "
            "the mean of each window."
        )
    # windows are products of windows along the axes, so pooling one axis after another is exact
    for axis, count in zip(spatial_axes(x.ndim, data_format), output_size, strict=True):
        x = _pool_axis(x, axis, count, mode)
    return x


def _pool_axis(x: jax.Array, axis: int, count: int, mode: str) -> jax.Array:
    """Pools one axis to `count` windows."""
    size = x.shape[axis]
    if isinstance(size, int) and size == 0:
        _check_count(size, count)
        return jnp.zeros((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
    # windows that tile the axis need only a reshape, no gather
    if isinstance(size, int) and size % count == 0:
        shape = (*x.shape[:axis], count, size // count, *x.shape[axis + 1 :])
        return (largest if mode == "max" else jnp.mean)(x.reshape(shape), axis=axis + 1)
    cells, sizes = _windows(size, count)
    # (..., count, width, ...): windows narrower than the widest repeat their last cell
    windows = jnp.take(x, cells, axis=axis)
    if mode == "max":
        return largest(windows, axis + 1)
    is_valid = jnp.arange(cells.shape[1]).reshape(1, -1) < sizes.reshape(-1, 1)
    is_valid = is_valid.reshape((*is_valid.shape, *(1,) * (x.ndim - axis - 1)))
    is_valid = jnp.expand_dims(is_valid, range(axis))
    total = jnp.sum(jnp.where(is_valid, windows, jnp.zeros_like(windows)), axis=axis + 1)
    return total / align(sizes.astype(x.dtype), x.ndim, axis)


def _check_count(size: int, count: int) -> None:
    """Rejects a number of windows that would exhaust memory."""
    if count > max(_WINDOWS, size):
        raise ValueError(
            f"adaptive pooling: expected an output_size of at most {_WINDOWS}, or the size of the "
            f"axis, received {count}. Use UpSampling or Resizing to enlarge an axis."
        )


def _windows(size: Any, count: int) -> tuple[Any, Any]:
    """Returns the cells of each window (count, width), and the number of distinct cells (count,).

    Static sizes use NumPy, so that the indices are constants of the compiled program.
    """
    static = isinstance(size, int)
    _check_count(size if static else 0, count)
    if static and size + count > _CELLS:
        raise ValueError(
            f"adaptive pooling: pooling an axis of {size} cells to {count} windows needs more than "
            f"{_CELLS} indices. Give a number of windows that divides the axis, or crop the axis "
            "first."
        )
    xp = np if static else jnp
    index = xp.arange(count)
    start, stop = index * size // count, -(-(index + 1) * size // count)
    width = int(np.max(stop - start)) if static else -(-size // count) + 1
    cells = start.reshape(-1, 1) + xp.arange(width).reshape(1, -1)
    return xp.minimum(cells, stop.reshape(-1, 1) - 1), stop - start


def masked_mean(
    x: jax.Array, mask: jax.Array | None, data_format: str = "channels_last", keepdims: bool = False
) -> jax.Array:
    """Computes the mean over the axes between batch and channels, over unmasked steps only.

    Args:
        mask: array of shape (b, *sizes), True for steps that count; None counts all steps.
        keepdims: whether to keep the axes, with size 1.
        Other arguments: those of `max_pool`.

    Returns:
        An array of shape (b, c), with 0 for samples without any unmasked step.
    """
    axes = spatial_axes(x.ndim, data_format)
    if mask is None and 0 not in (x.shape[axis] for axis in axes):
        return jnp.mean(x, axis=axes, keepdims=keepdims)
    mask = jnp.ones((x.shape[0], *(x.shape[a] for a in axes)), bool) if mask is None else mask
    # `where`, not a product: NaN or infinity at a masked step must not reach the sum
    counted = jnp.expand_dims(mask.astype(bool), -1 if data_format == "channels_last" else 1)
    sums = jnp.sum(jnp.where(counted, x, jnp.zeros_like(x)), axis=axes, keepdims=keepdims)
    counts = jnp.sum(counted.astype(x.dtype), axis=axes, keepdims=keepdims)
    return sums / jnp.maximum(counts, 1)
