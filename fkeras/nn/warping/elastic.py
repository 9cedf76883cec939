"""Elastic distortion: displacement of pixels by smooth random fields."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.image.layout import as_batch
from fkeras.nn.numerics.array_types import Numbers
from fkeras.nn.warping.geometry import grid, warp


def smooth_fields(
    key: jax.Array, shape: tuple[int, int, int], sigma: Any, largest: float | None = None
) -> tuple[jax.Array, jax.Array]:
    """Draws two independent smooth random fields for each image.

    A field is normal noise with standard deviation `sigma`, blurred by a Gaussian with the same
    standard deviation, cut off after three of them, with zeros around the image.

    Args:
        shape: (b, h, w).
        sigma: standard deviation in pixels; 0 gives fields of zeros.
        largest: upper bound of a traced `sigma`; determines the size of the filter, which must be
            static.

    Returns:
        `(dy, dx)`, two arrays (b, h, w).
    """
    # the filter size must be static under jit, hence the upper bound `largest`
    radius = int(6 * (sigma if largest is None else largest)) // 2
    sigma = jnp.asarray(sigma).astype("float32")
    steps = jnp.arange(-radius, radius + 1, dtype="float32")
    # avoids division by 0 in the untaken branch, whose gradient would be NaN
    safe = jnp.where(sigma > 0, sigma, 1.0)
    weights = jnp.exp(-0.5 * jnp.square(steps / safe))
    weights = jnp.where(jnp.abs(steps) <= jnp.floor(6 * sigma) // 2, weights, 0.0)
    weights = weights / jnp.sum(weights)
    noise = jax.random.normal(key, (2, *shape)) * sigma
    rows, columns = (_blur_matrix(weights, size) for size in shape[1:])
    # matrix products: devices are slow at convolutions of a single channel
    blurred = jnp.einsum("nbhw,hi->nbiw", noise, rows, precision=lax.Precision.HIGHEST)
    dy, dx = jnp.einsum("nbhw,wi->nbhi", blurred, columns, precision=lax.Precision.HIGHEST)
    return dy, dx


def _blur_matrix(weights: jax.Array, size: int) -> jax.Array:
    """Returns the matrix (n, n) that filters rows of n numbers, padded with zeros."""
    radius = weights.shape[0] // 2
    steps = jnp.arange(size)
    distances = jnp.abs(steps[:, None] - steps[None, :])
    return jnp.where(distances <= radius, weights[jnp.minimum(distances, radius) + radius], 0.0)


def elastic_transform(
    images: Numbers,
    alpha: float = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    key: jax.Array | None = None,
    data_format: str | None = None,
) -> jax.Array:
    """Moves each pixel by `alpha` times a smooth random field.

    Rows and columns move by independent fields. (Keras draws both from one seed, which moves
    pixels only along the diagonal.)

    Args:
        alpha: scale of the displacement; the field has a magnitude of about 0.3.
        fill_mode: values outside the image: "constant", "nearest", "wrap", "mirror" or "reflect",
            as in `map_coordinates`.
        key: a PRNG key; required.

    Returns:
        An array like `images`.

    Raises:
        ValueError: without a key, and for unknown strings.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> x = jnp.ones((8, 8, 3))
        >>> bool((elastic_transform(x, 2.0, 1.0, key=jax.random.key(0)) == x).mean() > 0.9)
        True
    """
    if key is None:
        raise ValueError(
            "elastic_transform: expected a key for the random fields, received None. Pass "
            "key=jax.random.key(0), and another key in each call."
        )
    batch, unbatch = as_batch(images, data_format)
    count, height, width, _ = batch.shape
    dy, dx = smooth_fields(key, (count, height, width), sigma)
    return unbatch(displace(batch, alpha * dy, alpha * dx, interpolation, fill_mode, fill_value))


def displace(
    images: jax.Array,
    dy: jax.Array,
    dx: jax.Array,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: Any = 0.0,
) -> jax.Array:
    """Samples images at an offset of `(dy, dx)` from each output pixel.

    Args:
        dy: row offsets, (b, h, w).
        dx: column offsets, (b, h, w).
        fill_mode: values outside the image, as in `map_coordinates`.

    Returns:
        An array like `images`.
    """
    y, x = grid(images.shape[1], images.shape[2])
    return warp(images, y + dy, x + dx, interpolation, fill_mode, fill_value)
