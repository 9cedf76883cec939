"""Axes of arrays: spatial axes, channel axis, alignment of vectors, formatting of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def format_shape(shape: Any) -> str:
    """Formats a shape for messages, with the names of unknown axes, e.g. `(b, 8)`."""
    inner = ", ".join(map(str, shape))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def may_equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Returns whether two shapes are equal, or may be: sizes that are no integers are unknown."""
    sizes = zip(first, second, strict=False)
    known = (a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int))
    return len(first) == len(second) and all(known)


def spatial_axes(ndim: int, data_format: str) -> tuple[int, ...]:
    """Returns the axes between batch and channels."""
    return tuple(range(1, ndim - 1) if data_format == "channels_last" else range(2, ndim))


def canonical_axes(axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Returns axes as sorted numbers from 0; None stands for all axes.

    Raises:
        ValueError: for an axis that the array lacks, or has twice.

    Example:
        >>> canonical_axes((-1, 0), 3)
        (0, 2)
    """
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    positions = sorted(a % ndim for a in axes if -ndim <= a < ndim)
    if len(set(positions)) != len(axes):
        raise ValueError(
            f"expected axes of an array with {ndim} axes, each once, received {axis}. Use axes from "
            f"{-ndim} to {ndim - 1}."
        )
    return tuple(positions)


def channel_axis(data_format: str) -> int:
    """Returns the channel axis: -1, or 1 with "channels_first"."""
    return -1 if data_format == "channels_last" else 1


def full_rank(per_axis: Sequence, data_format: str, fill: object) -> tuple:
    """Extends entries of the spatial axes by `fill` for the batch and channel axes."""
    if data_format == "channels_last":
        return (fill, *per_axis, fill)
    return (fill, fill, *per_axis)


def check_window(
    where: str, x: jax.Array, window: Sequence[int], argument: str, data_format: str
) -> None:
    """Checks that a window fits into the input; unknown sizes are accepted.

    Args:
        x: input array or spec.
        data_format: "channels_last" or "channels_first".

    Raises:
        ValueError: if the window is larger than the input.
    """
    axes = spatial_axes(x.ndim, data_format)
    for axis, size in zip(axes, window, strict=True):
        extent = x.shape[axis]
        if isinstance(extent, int) and extent < size:
            raise ValueError(
                f"{where}: expected at least {size} cells on axis {axis}, the extent of "
                f"{argument} with padding='valid', received {format_shape(x.shape)}. Give "
                f"padding='same', a smaller {argument}, or a larger input."
            )


def align(vector: jax.Array, ndim: int, axis: int = -1) -> jax.Array:
    """Reshapes a vector (c,) to `ndim` axes, with its values along `axis`, for broadcasting.

    Example:
        >>> import jax.numpy as jnp
        >>> align(jnp.ones(3), 4, axis=1).shape
        (1, 3, 1, 1)
    """
    shape = [1] * ndim
    shape[axis] = vector.shape[0]
    return jnp.reshape(vector, shape)
