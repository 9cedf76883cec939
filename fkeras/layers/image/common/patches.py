"""Masks of random rectangles in images."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.image.common.base import ImageShape
from fkeras.layers.image.common.factors import uniform


def patches(
    key: jax.Array, shape: ImageShape, across: jax.Array, down: jax.Array, data_format: str
) -> jax.Array:
    """Returns a mask of the pixels in a rectangle of each image, at a random position.

    Args:
        across: width of the rectangle as a fraction of the image's width, (b,).
        down: height of the rectangle as a fraction of the image's height, (b,).
        data_format: "channels_last" or "channels_first".

    Returns:
        A mask of shape (b, h, w, 1), or (b, 1, h, w).
    """
    keys = jax.random.split(key)
    columns = _stretch(keys[0], shape.batch, shape.width, across)
    rows = _stretch(keys[1], shape.batch, shape.height, down)
    # masks instead of slices: sizes that differ between images cannot be static
    mask = rows[:, :, None] & columns[:, None, :]
    return mask[..., None] if data_format == "channels_last" else mask[:, None]


def _stretch(key: jax.Array, batch: int, size: int, fraction: jax.Array) -> jax.Array:
    length = fraction * size
    start = uniform(key, (batch,), (0.0, 1.0)) * (size - length)
    cells = jnp.arange(size, dtype="float32")[None, :]
    return (cells >= start[:, None]) & (cells < (start + length)[:, None])
