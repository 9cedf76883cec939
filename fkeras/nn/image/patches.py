"""Extraction of patches of images and volumes into the channel axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.layout import data_format_of, one_of
from fkeras.nn.numerics.array_types import Numbers


def extract_patches(
    images: Numbers,
    size: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    dilation_rate: int | Sequence[int] = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """Extracts patches of images or volumes into the channel axis.

    Args:
        images: (b, h, w, c) or (h, w, c), volumes (b, d, h, w, c) or (d, h, w, c); or with the
            channels before the spatial axes.
        size: size of a patch; three sizes are for volumes, one integer is for images.
        strides: distance between patches; None for adjacent patches.
        dilation_rate: distance between the cells of a patch.
        padding: "valid" for patches inside the images, "same" for a patch at each stride, with
            zeros around the images.

    Returns:
        An array (b, h2, w2, size[0] * size[1] * c), and so on for the other forms.

    Raises:
        ValueError: for sizes below 1, a wrong number of sizes, and images smaller than a patch.

    Example:
        >>> import jax.numpy as jnp
        >>> extract_patches(jnp.arange(8).reshape(2, 4, 1), (2, 2)).tolist()
        [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    """
    rank = 3 if isinstance(size, tuple | list) and len(size) == 3 else 2
    return _patches(images, rank, size, strides, dilation_rate, padding, data_format)


def extract_patches_3d(
    volumes: Numbers,
    size: int | Sequence[int],
    strides: int | Sequence[int] | None = None,
    dilation_rate: int | Sequence[int] = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """Extracts patches of volumes into the channel axis.

    Args:
        volumes: (b, d, h, w, c) or (d, h, w, c), or with the channels before d.
        size: size of a patch; one integer for three equal sizes.
        strides: distance between patches; None for adjacent patches.
        dilation_rate: distance between the cells of a patch.
        padding: "valid" or "same", as in `extract_patches`.

    Returns:
        An array (b, d2, h2, w2, size[0] * size[1] * size[2] * c), without b for one volume.

    Raises:
        ValueError: for sizes below 1, a wrong number of sizes, and volumes smaller than a patch.

    Example:
        >>> import jax.numpy as jnp
        >>> extract_patches_3d(jnp.arange(16).reshape(2, 2, 4, 1), 2).tolist()
        [[[[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]]]]
    """
    return _patches(volumes, 3, size, strides, dilation_rate, padding, data_format)


def _patches(
    images: Numbers, rank: int, size: Any, strides: Any, dilation: Any, padding: str, layout: Any
) -> jax.Array:
    images = jnp.asarray(images)
    sizes = _per_axis("size", size, rank)
    strides = sizes if strides is None else _per_axis("strides", strides, rank)
    dilations = _per_axis("dilation_rate", dilation, rank)
    one_of("padding", padding, "valid", "same")
    if images.ndim not in (rank + 1, rank + 2):
        raise ValueError(
            f"extract_patches: expected {rank + 1} axes, or {rank + 2} with a batch, for patches "
            f"of {rank} sizes, received the shape {images.shape}. Volumes need three sizes."
        )
    single = images.ndim == rank + 1
    x = images[None] if single else images
    first = data_format_of(layout) == "channels_first"
    x = jnp.moveaxis(x, 1, -1) if first else x
    # each spatial axis becomes two, (patches, cells of a patch); from the last to the first, so
    # that the positions of the remaining axes do not change
    for i in reversed(range(rank)):
        x = _windows(x, 1 + i, sizes[i], strides[i], dilations[i], padding)
    x = jnp.moveaxis(x, range(2, 2 + 2 * rank, 2), range(1 + rank, 1 + 2 * rank))
    x = jnp.reshape(x, (*x.shape[: 1 + rank], -1))
    x = jnp.moveaxis(x, -1, 1) if first else x
    return x[0] if single else x


def _windows(
    x: jax.Array, axis: int, size: int, stride: int, dilation: int, padding: str
) -> jax.Array:
    """Splits an axis into two: the windows, and the cells of each window."""
    length, extent = x.shape[axis], (size - 1) * dilation + 1
    low = high = 0
    if padding == "same":
        missing = max((-(-length // stride) - 1) * stride + extent - length, 0)
        low, high = missing // 2, missing - missing // 2
        x = jnp.pad(x, [(low, high) if a == axis else (0, 0) for a in range(x.ndim)])
    count = (length + low + high - extent) // stride + 1
    if count < 1:
        raise ValueError(
            f"extract_patches: expected images of at least {extent} cells on axis {axis}, the "
            f"extent of a patch, received {length}. Give padding='same', or smaller patches."
        )
    # windows that tile the axis need only a reshape, no gather
    if size == stride and dilation == 1:
        x = jax.lax.slice_in_dim(x, 0, count * size, axis=axis)
        return jnp.reshape(x, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
    starts, cells = jnp.arange(count) * stride, jnp.arange(size) * dilation
    return jnp.take(x, starts[:, None] + cells[None, :], axis=axis)


def _per_axis(name: str, value: Any, rank: int) -> tuple[int, ...]:
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(values) != rank or min(values) < 1:
        raise ValueError(
            f"extract_patches: {name}: expected {rank} integers of 1 or more, or one for all, "
            f"received {value!r}. Give {(2,) * rank}."
        )
    return values
