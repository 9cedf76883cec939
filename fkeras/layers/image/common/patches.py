"""Rectangles of images at random places, as masks of pixels."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.layers.image.common.base import ImageShape
from fkeras.layers.image.common.factors import uniform


def patches(
    key: jax.Array, shape: ImageShape, across: jax.Array, down: jax.Array, data_format: str
) -> jax.Array:
    """Which pixels lie in a rectangle of each image, whose place is drawn.

    Args:
        key: a PRNG key.
        shape: of the images.
        across: the rectangle's width in shares of the image's, (b,).
        down: its height in shares of the image's, (b,).
        data_format: where the channels are.

    Returns:
        A mask of shape (b, h, w, 1), or (b, 1, h, w).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> half, shape = jnp.array([0.5]), ImageShape(1, 4, 6, 3)
        >>> int(patches(jax.random.key(0), shape, half, half, "channels_last").sum())
        6
    """
    keys = jax.random.split(key)
    columns = _stretch(keys[0], shape.batch, shape.width, across)
    rows = _stretch(keys[1], shape.batch, shape.height, down)
    mask = rows[:, :, None] & columns[:, None, :]
    return mask[..., None] if data_format == "channels_last" else mask[:, None]


def _stretch(key: jax.Array, batch: int, size: int, share: jax.Array) -> jax.Array:
    length = share * size
    start = uniform(key, (batch,), (0.0, 1.0)) * (size - length)
    cells = jnp.arange(size, dtype="float32")[None, :]
    return (cells >= start[:, None]) & (cells < (start + length)[:, None])
