"""Filters of neighbourhoods: blur, edges, sharpness.

Each is a product of two filters of one line, so its cost grows with the sides of the window and
not with its area.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.adjustments import blend
from fkeras.nn.image.layout import as_batch

_ROWS, _COLUMNS = 1, 2
# the cells of a line, each of which is a step of the program
_LONGEST = 1 << 12


def gaussian_weights(size: int, sigma: Any, dtype: Any = "float32") -> jax.Array:
    """The weights of a Gaussian window, whose sum is 1.

    Args:
        size: how many weights.
        sigma: the standard deviation in cells: a number, or an array (b,) for several windows.
        dtype: of the result.

    Returns:
        An array of shape (size,) or (b, size). Sigma 0 gives the middle alone.

    Example:
        >>> gaussian_weights(3, 1.0)
        Array([0.27406862, 0.45186275, 0.27406862], dtype=float32)
    """
    sigma = jnp.asarray(sigma, dtype)[..., None]
    places = jnp.arange(size, dtype=dtype) - jnp.asarray((size - 1) / 2, dtype)
    places = places.reshape((1,) * (sigma.ndim - 1) + (-1,))
    # softmax subtracts the largest exponent, so that a tiny sigma does not make 0 / 0
    exponents = -0.5 * (places / jnp.maximum(sigma, 1e-6)) ** 2
    return jax.nn.softmax(exponents, axis=-1)


def correlate_line(images: jax.Array, weights: Any, axis: int, padding: str = "same") -> jax.Array:
    """Weighted sums of neighbours along one axis.

    Args:
        weights: a sequence of k numbers, or an array of shape (k,) or (b, k).
        axis: 1 for columns of pixels, 2 for rows of them.
        padding: "same" with zeros around the images, or "valid" for full windows only.

    Returns:
        An array like `images`, k - 1 cells shorter where the padding is "valid".

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([1.0, 2.0, 4.0]).reshape(1, 1, 3, 1)
        >>> correlate_line(x, (-1.0, 0.0, 1.0), 2).ravel()
        Array([ 2.,  3., -2.], dtype=float32)
    """
    count = len(weights) if isinstance(weights, Sequence) else weights.shape[-1]
    if count > _LONGEST:
        raise ValueError(
            f"expected a window of at most {_LONGEST} cells, as each is a step of the program, "
            f"received one of {count}. Make the images smaller before they are filtered."
        )
    if padding == "same":
        before = (count - 1) // 2
        pads = [(0, 0)] * images.ndim
        pads[axis] = (before, count - 1 - before)
        images = jnp.pad(images, pads)
    size = images.shape[axis] - (count - 1)
    total = None
    for i in range(count):
        weight = weights[i] if isinstance(weights, Sequence) else weights[..., i]
        if not isinstance(weight, int | float):
            weight = jnp.reshape(weight, (-1, 1, 1, 1))
        # static zeros, as in Sobel kernels, cost nothing
        elif weight == 0:
            continue
        part = weight * jax.lax.slice_in_dim(images, i, i + size, axis=axis)
        total = part if total is None else total + part
    return jnp.zeros_like(images) if total is None else total


def gaussian_blur(
    images: Any,
    kernel_size: Sequence[int] = (3, 3),
    sigma: Any = (1.0, 1.0),
    data_format: str | None = None,
) -> jax.Array:
    """Weighted means of each pixel's neighbours, with zeros around the image.

    Args:
        images: (b, h, w, c) or (h, w, c); the channels before h where they come first. Integers
            are converted to float32.
        kernel_size: the cells of the window along the width, and along the height. (Keras
            documents the other order, and computes this one.)
        sigma: the standard deviation along the width, and along the height, in pixels: two
            numbers, or an array (b, 2) for windows of each image's own.

    Returns:
        An array like `images`.

    Raises:
        ValueError: for images of another rank.

    Example:
        >>> import jax.numpy as jnp
        >>> gaussian_blur(jnp.ones((3, 3, 1)))[..., 0].round(3)
        Array([[0.527, 0.726, 0.527],
               [0.726, 1.   , 0.726],
               [0.527, 0.726, 0.527]], dtype=float32)
    """
    batch, back = as_batch(images, data_format)
    if not jnp.issubdtype(batch.dtype, jnp.floating):
        batch = batch.astype("float32")
    sigma = jnp.asarray(sigma)
    across, down = (
        gaussian_weights(kernel_size[i], sigma[..., i].astype("float32")).astype(batch.dtype)
        for i in range(2)
    )
    return back(correlate_line(correlate_line(batch, down, _ROWS), across, _COLUMNS))


def sobel_edges(images: Any, data_format: str | None = None) -> jax.Array:
    """The slope of each pixel's neighbourhood downwards and to the right, by Sobel's windows.

    Args:
        images: array (b, h, w, c) or (h, w, c); the channels before h where they come first.
            There are zeros around the image.

    Returns:
        An array of the shape of `images` and a last axis of two more: (dy, dx).

    Raises:
        ValueError: for images of another rank.

    Example:
        >>> import jax.numpy as jnp
        >>> ramp = jnp.arange(9.0).reshape(3, 3, 1)
        >>> sobel_edges(ramp)[1, 1, 0]
        Array([24.,  8.], dtype=float32)
    """
    batch, back = as_batch(images, data_format)
    slope, mean = (-1, 0, 1), (1, 2, 1)
    dy = correlate_line(correlate_line(batch, mean, _COLUMNS), slope, _ROWS)
    dx = correlate_line(correlate_line(batch, slope, _COLUMNS), mean, _ROWS)
    return jnp.stack((back(dy), back(dx)), axis=-1)


def smooth(images: jax.Array, data_format: str | None = None) -> jax.Array:
    """Means of 3 by 3 pixels in which the middle counts five times; zeros around the image.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> float(smooth(jnp.eye(3)[..., None] * 13.0)[1, 1, 0])
        7.0
    """
    batch, back = as_batch(images, data_format)
    ones = (1, 1, 1)
    around = correlate_line(correlate_line(batch, ones, _ROWS), ones, _COLUMNS)
    return back(around * (1 / 13) + batch * (4 / 13))


def sharpen(images: jax.Array, factor: Any, data_format: str | None = None) -> jax.Array:
    """Mixes images with smoothed ones, or goes away from these.

    Args:
        factor: 0 for the smoothed images, 1 for no change, more for sharper ones: a number, or an
            array that broadcasts.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> float(sharpen(jnp.eye(3)[..., None] * 13.0, 2.0)[1, 1, 0])
        19.0
    """
    return blend(images, smooth(images, data_format), 1 - factor)
