"""Neighbourhood filters: blur, edges, sharpness.

All filters are separable: two 1-D filters cost as much as the sides of the window, not its area.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.adjustments import blend
from fkeras.nn.image.layout import as_batch
from fkeras.nn.numerics.array_types import Numbers

_ROWS, _COLUMNS = 1, 2
# limit of the cells of a 1-D filter: the loop over cells is unrolled in the program
_LONGEST = 1 << 12


def gaussian_weights(size: int, sigma: Any, dtype: Any = "float32") -> jax.Array:
    """Returns the weights of a Gaussian window; their sum is 1.

    Args:
        sigma: standard deviation in cells: a scalar, or an array (b,) for several windows.

    Returns:
        An array of shape (size,) or (b, size). With sigma 0 only the middle weight is not 0.
    """
    sigma = jnp.asarray(sigma, dtype)[..., None]
    offsets = jnp.arange(size, dtype=dtype) - jnp.asarray((size - 1) / 2, dtype)
    offsets = offsets.reshape((1,) * (sigma.ndim - 1) + (-1,))
    # softmax subtracts the largest exponent, so that a tiny sigma does not give 0 / 0
    exponents = -0.5 * (offsets / jnp.maximum(sigma, 1e-6)) ** 2
    return jax.nn.softmax(exponents, axis=-1)


def correlate_line(images: jax.Array, weights: Any, axis: int, padding: str = "same") -> jax.Array:
    """Computes weighted sums of neighbours along one axis.

    Args:
        weights: a sequence of k numbers, or an array of shape (k,) or (b, k).
        axis: 1 to filter along the height, 2 along the width.
        padding: "same" with zeros around the images, or "valid" for full windows only.

    Returns:
        An array like `images`, k - 1 cells shorter with padding "valid".
    """
    count = len(weights) if isinstance(weights, Sequence) else weights.shape[-1]
    if count > _LONGEST:
        raise ValueError(
            f"expected a window of at most {_LONGEST} cells, because each cell adds an operation "
            f"to the program, received {count} cells. Make the images smaller before they are "
            "filtered."
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
    images: Numbers,
    kernel_size: Sequence[int] = (3, 3),
    sigma: Numbers = (1.0, 1.0),
    data_format: str | None = None,
) -> jax.Array:
    """Computes Gaussian-weighted means of each pixel's neighbours, with zeros around the image.

    Args:
        images: (b, h, w, c) or (h, w, c), or with the channels before h. Integers are converted
            to float32.
        kernel_size: size of the window along the width, and along the height. (Keras documents
            the other order, but computes this order.)
        sigma: standard deviation along the width, and along the height, in pixels: two numbers,
            or an array (b, 2) for a separate window for each image.

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
    batch, unbatch = as_batch(images, data_format)
    if not jnp.issubdtype(batch.dtype, jnp.floating):
        batch = batch.astype("float32")
    sigma = jnp.asarray(sigma)
    row_weights, column_weights = (
        gaussian_weights(kernel_size[i], sigma[..., i].astype("float32")).astype(batch.dtype)
        for i in range(2)
    )
    return unbatch(
        correlate_line(correlate_line(batch, column_weights, _ROWS), row_weights, _COLUMNS)
    )


def sobel_edges(images: Numbers, data_format: str | None = None) -> jax.Array:
    """Computes the vertical and horizontal gradients of images with Sobel filters.

    Args:
        images: array (b, h, w, c) or (h, w, c), or with the channels before h. The image is
            padded with zeros.

    Returns:
        An array of the shape of `images` with an additional last axis of size 2: (dy, dx).

    Raises:
        ValueError: for images of another rank.

    Example:
        >>> import jax.numpy as jnp
        >>> ramp = jnp.arange(9.0).reshape(3, 3, 1)
        >>> sobel_edges(ramp)[1, 1, 0]
        Array([24.,  8.], dtype=float32)
    """
    batch, unbatch = as_batch(images, data_format)
    slope, mean = (-1, 0, 1), (1, 2, 1)
    dy = correlate_line(correlate_line(batch, mean, _COLUMNS), slope, _ROWS)
    dx = correlate_line(correlate_line(batch, slope, _COLUMNS), mean, _ROWS)
    return jnp.stack((unbatch(dy), unbatch(dx)), axis=-1)


def smooth(images: jax.Array, data_format: str | None = None) -> jax.Array:
    """Computes means of 3 by 3 pixels with weight 5 for the middle; zeros pad the image.

    Returns:
        An array like `images`.
    """
    batch, unbatch = as_batch(images, data_format)
    ones = (1, 1, 1)
    # the window of ones already counts the middle once; 4 more make 5 of 13
    window_sums = correlate_line(correlate_line(batch, ones, _ROWS), ones, _COLUMNS)
    return unbatch(window_sums * (1 / 13) + batch * (4 / 13))


def sharpen(images: jax.Array, factor: Any, data_format: str | None = None) -> jax.Array:
    """Interpolates between smoothed images and the images, or extrapolates beyond the images.

    Args:
        factor: 0 for the smoothed images, 1 for no change, above 1 for sharper images: a scalar,
            or an array that broadcasts.

    Returns:
        An array like `images`.
    """
    return blend(images, smooth(images, data_format), 1 - factor)
