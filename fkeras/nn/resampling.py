"""Resampling of arrays: repeated cells, interpolation, padding, cropping."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.cpu.forms import compute
from fkeras.nn.cpu.resampling import Enlarge, RepeatCells
from fkeras.nn.numerics.axes import full_rank


def repeat(x: jax.Array, times: Sequence[int], data_format: str = "channels_last") -> jax.Array:
    """Repeats each cell along each axis between batch and channels.

    Args:
        x: array of shape (b, *sizes, c), or (b, c, *sizes) with "channels_first".
        data_format: "channels_last" or "channels_first".

    Returns:
        An array of shape (b, *larger_sizes, c), or (b, c, *larger_sizes).

    Example:
        >>> import jax.numpy as jnp
        >>> repeat(jnp.arange(2.0).reshape(1, 2, 1), (2,)).ravel()
        Array([0., 0., 1., 1.], dtype=float32)
    """
    return compute(RepeatCells(full_rank(tuple(times), data_format, 1)), x)


def resize(
    x: jax.Array, times: Sequence[int], interpolation: str, data_format: str = "channels_last"
) -> jax.Array:
    """Enlarges images by interpolation.

    Args:
        interpolation: "bilinear", "bicubic", "lanczos3" or "lanczos5".
        Other arguments: those of `repeat`.

    Returns:
        An array of shape (b, *larger_sizes, c), or (b, c, *larger_sizes).

    Example:
        >>> import jax.numpy as jnp
        >>> resize(jnp.arange(2.0).reshape(1, 1, 2, 1), (1, 2), "bilinear").ravel()
        Array([0.  , 0.25, 0.75, 1.  ], dtype=float32)
    """
    return compute(Enlarge(interpolation, tuple(times), data_format), x)


Pairs = tuple[tuple[int, int], ...]


def zero_pad(x: jax.Array, pairs: Pairs, data_format: str = "channels_last") -> jax.Array:
    """Adds zeros before and after each axis between batch and channels.

    Args:
        pairs: number of cells to add before and after each axis.
        Other arguments: those of `repeat`.

    Returns:
        An array of shape (b, *larger_sizes, c), or (b, c, *larger_sizes).
    """
    # the third entry of lax.pad is interior padding
    edges = full_rank([(*pair, 0) for pair in pairs], data_format, (0, 0, 0))
    return lax.pad(x, jnp.zeros((), x.dtype), edges)


def crop(x: jax.Array, pairs: Pairs, data_format: str = "channels_last") -> jax.Array:
    """Removes cells before and after each axis between batch and channels.

    Args:
        pairs: number of cells to remove before and after each axis.
        Other arguments: those of `repeat`.

    Returns:
        An array of shape (b, *smaller_sizes, c), or (b, c, *smaller_sizes).
    """
    # a stop of -0 would select nothing
    inner = [slice(low, -high if high else None) for low, high in pairs]
    return x[full_rank(inner, data_format, slice(None))]
