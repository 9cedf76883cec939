"""Histogram equalization of whole images and of tiles."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fkeras.nn.image.adjustments import Range, rescale
from fkeras.nn.image.layout import as_batch

_BYTE = (0.0, 255.0)
# resource limit: each tile has a table of 256 levels
_TILES = 1 << 10


def count_levels(levels: jax.Array, bins: int) -> jax.Array:
    """Counts how often each level occurs in each row.

    Args:
        levels: integers from 0 to `bins - 1`, array of shape (..., n).

    Returns:
        An array of shape (..., bins), int32.
    """

    def count(row: jax.Array) -> jax.Array:
        return jnp.zeros((bins,), "int32").at[row].add(1)

    # one vmap per leading axis; the scatter itself counts a single row
    for _ in range(levels.ndim - 1):
        count = jax.vmap(count)
    return count(levels)


def equalize(
    images: jax.Array,
    bins: int = 256,
    value_range: Range = _BYTE,
    data_format: str | None = None,
) -> jax.Array:
    """Maps each level of a channel to the share of the channel's pixels that are darker.

    Returns:
        An array like `images`; channels with a single level are unchanged. The gradient is 0 where
        levels change.
    """
    batch, unbatch = as_batch(images, data_format)
    pixels = jnp.moveaxis(rescale(batch, value_range, _BYTE), -1, 1)
    # multiply by one constant: (p * 254) / 255 may round to just below a level
    levels = jnp.clip((pixels.astype("float32") * ((bins - 1) / 255)).astype("int32"), 0, bins - 1)
    counts = count_levels(levels.reshape((*levels.shape[:2], -1)), bins)
    below = jnp.cumsum(counts, axis=-1)
    # levels below the first level that occurs map to 0, and the count excludes them
    first = jnp.min(jnp.where(below > 0, below, below[..., -1:]), axis=-1, keepdims=True)
    total = below[..., -1:] - first
    scaled = (below - first).astype("float32") * 255 / jnp.maximum(total, 1).astype("float32")
    table = jnp.clip(jnp.round(scaled), *_BYTE)
    flat = levels.reshape((*levels.shape[:2], -1))
    new = jnp.take_along_axis(table, flat, axis=-1).reshape(levels.shape).astype(pixels.dtype)
    new = rescale(new, _BYTE, value_range)
    varied = (jnp.count_nonzero(counts, axis=-1) > 1)[..., None, None]
    return unbatch(jnp.where(jnp.moveaxis(varied, 1, -1), jnp.moveaxis(new, 1, -1), batch))


def equalize_tiles(
    images: jax.Array,
    clip_limit: float = 4.0,
    tile_grid_size: Sequence[int] = (8, 8),
    value_range: Range = _BYTE,
    data_format: str | None = None,
) -> jax.Array:
    """Computes contrast limited adaptive histogram equalization (CLAHE).

    Each tile of the image has its own table of levels. A pixel takes the mean of the values in the
    tables of the four surrounding tiles, weighted by nearness.

    Args:
        clip_limit: limit of the count of a level, as a multiple of the mean count; limits the
            amplification of noise where a tile is nearly flat. 0 for no limit.

    Returns:
        A float32 array of the shape of `images`, whose gradient is 0.

    References:
        Zuiderveld, 1994, Contrast limited adaptive histogram equalization, Graphics Gems IV
    """
    batch, unbatch = as_batch(images, data_format)
    batch = rescale(batch.astype("float32"), value_range, _BYTE)
    height, width = batch.shape[1:3]
    rows, columns = tile_grid_size
    if max(rows, columns) > _TILES:
        raise ValueError(
            f"equalize_tiles: expected at most {_TILES} tiles along an axis, received "
            f"{rows} and {columns}. Give (8, 8)."
        )
    tile = -(-height // rows), -(-width // columns)
    pads = (0, tile[0] * rows - height), (0, tile[1] * columns - width)
    levels = jnp.pad(jnp.clip(batch, *_BYTE).astype("int32"), ((0, 0), *pads, (0, 0)), "symmetric")

    def equalize_channel(levels: jax.Array) -> jax.Array:
        """Equalizes one channel (h, w) of an image, whose size is a multiple of the tile size."""
        tiles = levels.reshape(rows, tile[0], columns, tile[1]).swapaxes(1, 2)
        counts = count_levels(tiles.reshape(rows, columns, -1), 256).astype("float32")
        tables = _tables(counts, clip_limit, tile[0] * tile[1])
        (y, below), (x, right) = (_neighbours(rows, tile[0]), _neighbours(columns, tile[1]))

        def read(i: int, j: int) -> jax.Array:
            return tables[y[i][:, None], x[j][None, :], levels]

        below, right = below[:, None], right[None, :]
        top = read(0, 0) * (1 - right) + read(0, 1) * right
        bottom = read(1, 0) * (1 - right) + read(1, 1) * right
        return top * (1 - below) + bottom * below

    new = jax.vmap(jax.vmap(equalize_channel, -1, -1))(levels)[:, :height, :width]
    return unbatch(rescale(new, _BYTE, value_range))


def _tables(counts: jax.Array, clip_limit: float, area: int) -> jax.Array:
    """Returns the new value of each of 256 levels, given counts of shape (..., 256)."""
    if clip_limit > 0:
        # the clipped excess is spread over all levels, so that the table still ends at 255
        clipped = jnp.minimum(counts, clip_limit * area / 256)
        excess = jnp.sum(counts - clipped, axis=-1, keepdims=True)
        counts = clipped + excess / 256
    below = jnp.cumsum(counts, axis=-1)
    first = below[..., :1]
    rest = area - first
    return jnp.clip((below - first) * 255 / jnp.where(rest == 0, 1, rest), *_BYTE)


def _neighbours(count: int, size: int) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """Returns the tiles before and after each cell, by their centers, and the latter's weight."""
    position = (jnp.arange(count * size, dtype="float32") - size / 2) / size
    before = jnp.floor(position)
    low = before.astype("int32")
    tiles = jnp.clip(low, 0, count - 1), jnp.clip(low + 1, 0, count - 1)
    return tiles, position - before
