"""Similarity measures of images: `ssim` and `psnr`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.colors import precise
from fkeras.nn.image.filters import correlate_line, gaussian_weights
from fkeras.nn.image.layout import as_batch
from fkeras.nn.numerics.array_types import Numbers


def _checked_pair(function: str, first: Any, second: Any) -> tuple[jax.Array, jax.Array, Any]:
    first, second = jnp.asarray(first), jnp.asarray(second)
    if first.shape != second.shape:
        raise ValueError(
            f"{function}: expected two arrays of one shape, received {first.shape} and {second.shape}. "
            "They are compared pixel by pixel: resize or crop one of them first."
        )
    dtype = first.dtype if jnp.issubdtype(first.dtype, jnp.floating) else jnp.dtype("float32")
    compute = precise(dtype)
    return first.astype(compute), second.astype(compute), dtype


def ssim(
    image1: Numbers,
    image2: Numbers,
    max_val: float = 1.0,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    data_format: str | None = None,
) -> jax.Array:
    """Computes the structural similarity of images: 1 for equal images, down to -1.

    Args:
        image1: (b, h, w, c) or (h, w, c), or with the channels before h.
        image2: array of the same shape.
        max_val: difference between the highest and the lowest possible value of a pixel: 1 or 255.
        filter_size: side of the Gaussian window in which images are compared, in pixels.
        filter_sigma: standard deviation of the window.
        k1: keeps the comparison of means finite in dark images.
        k2: keeps the comparison of variances finite in flat images.

    Returns:
        An array of shape (b,), or a scalar for single images; floating also for integer images.

    Raises:
        ValueError: for different shapes, and for images smaller than the window.

    Example:
        >>> import jax.numpy as jnp
        >>> image = jnp.arange(256.0).reshape(16, 16, 1) / 256
        >>> round(float(ssim(image, image)), 4), round(float(ssim(image, image * 0.5)), 2)
        (1.0, 0.65)

    References:
        Wang et al., 2004, Image quality assessment: from error visibility to structural
        similarity, https://ieeexplore.ieee.org/document/1284395
    """
    first, second, dtype = _checked_pair("ssim", image1, image2)
    # float32 or float64: the variance is a small difference of two large means
    x, y = (as_batch(v, data_format)[0] for v in (first, second))
    if min(x.shape[1:3]) < filter_size:
        raise ValueError(
            f"ssim: expected images of at least filter_size={filter_size} pixels a side, received "
            f"{x.shape[1]} by {x.shape[2]}. Give a smaller filter_size."
        )
    weights = gaussian_weights(filter_size, filter_sigma, first.dtype)

    def mean(v: jax.Array) -> jax.Array:
        return correlate_line(correlate_line(v, weights, 1, "valid"), weights, 2, "valid")

    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2
    mean_x, mean_y = mean(x), mean(y)
    squares, product = mean_x * mean_x + mean_y * mean_y, mean_x * mean_y
    variances = mean(x * x) + mean(y * y) - squares
    covariance = mean(x * y) - product
    similarity = (2 * product + c1) * (2 * covariance + c2)
    similarity = similarity / ((squares + c1) * (variances + c2))
    result = jnp.mean(similarity, axis=(1, 2, 3)).astype(dtype)
    return result[0] if first.ndim == 3 else result


def psnr(x1: Numbers, x2: Numbers, max_val: float) -> jax.Array:
    """Computes the peak signal-to-noise ratio, in decibels.

    Args:
        x1: array of any shape.
        x2: array of the same shape.
        max_val: largest possible value of a pixel: 1 or 255.

    Returns:
        A scalar for the whole arrays: infinity if they are equal, with gradient 0.

    Raises:
        ValueError: for different shapes.

    Example:
        >>> import jax.numpy as jnp
        >>> print(round(float(psnr(jnp.zeros((2, 2)), jnp.full((2, 2), 0.1), 1.0)), 3))
        20.0
    """
    first, second, dtype = _checked_pair("psnr", x1, x2)
    error = jnp.mean(jnp.square(first.astype(dtype) - second.astype(dtype)))
    # log10(0) has an infinite gradient, which `where` alone would turn into NaN
    differ = error > 0
    ratio = 20 * jnp.log10(jnp.asarray(max_val, dtype)) - 10 * jnp.log10(
        jnp.where(differ, error, 1)
    )
    return jnp.where(differ, ratio, jnp.inf)
