"""Conversions between colour spaces: RGB, grayscale, HSV.

All functions accept one image or a batch, with the channels last or first.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.layout import image_axes
from fkeras.nn.numerics.array_types import Numbers

# weights of red, green and blue in perceived brightness (ITU-R BT.601)
_LUMA = (0.2989, 0.5870, 0.1140)


def precise(dtype: Any) -> Any:
    """Returns the dtype to compute in: float64 for float64, otherwise float32."""
    return "float64" if jnp.dtype(dtype) == jnp.dtype("float64") else "float32"


def channels_of(
    function: str, images: Numbers, data_format: str | None, *counts: int
) -> tuple[jax.Array, int]:
    """Converts images to an array, checks the number of channels, and returns the channel axis.

    Raises:
        ValueError: for another rank, or a number of channels not in `counts`.
    """
    images = jnp.asarray(images)
    axis = image_axes(images.ndim, data_format)[2]
    if images.shape[axis] not in counts:
        raise ValueError(
            f"{function}: expected {' or '.join(map(str, counts))} channels on axis {axis}, "
            f"received {images.shape[axis]} in the shape {images.shape}. The channels come last "
            "unless data_format='channels_first' says otherwise."
        )
    return images, axis


def _floating(function: str, images: jax.Array) -> jax.Array:
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            f"{function}: expected floating images, received {images.dtype}. Hue and saturation "
            "are fractions: convert the images first, `images.astype('float32') / 255`."
        )
    return images


def rgb_to_grayscale(images: Numbers, data_format: str | None = None) -> jax.Array:
    """Computes the brightness `0.2989 red + 0.5870 green + 0.1140 blue` of each pixel.

    Args:
        images: (b, h, w, 3) or (h, w, 3), or with the channels before h, of any dtype. Images
            with one channel are already grayscale and returned unchanged.

    Returns:
        An array with one channel, of the dtype of `images`; integers are truncated.

    Raises:
        ValueError: for another number of channels.

    Example:
        >>> import jax.numpy as jnp
        >>> rgb_to_grayscale(jnp.array([[[255, 0, 0], [255, 255, 255]]], "uint8")).ravel()
        Array([ 76, 254], dtype=uint8)
    """
    images, axis = channels_of("rgb_to_grayscale", images, data_format, 1, 3)
    if images.shape[axis] == 1:
        return images
    # half precision would lose the differences between the three products
    compute = precise(images.dtype)
    red, green, blue = (
        jax.lax.slice_in_dim(images, i, i + 1, axis=axis).astype(compute) for i in range(3)
    )
    grey = red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2]
    return grey.astype(images.dtype)


def rgb_to_hsv(images: Numbers, data_format: str | None = None) -> jax.Array:
    """Computes hue (0 to 1 around the circle), saturation (0 to 1) and value of each pixel.

    Grey pixels have hue 0, black pixels also saturation 0. Where channels are equal, the gradient is that
    of a slightly larger hue.

    Args:
        images: floating array (b, h, w, 3) or (h, w, 3) of any scale from 0, or with the channels
            before h.

    Returns:
        An array like `images`; the value has the scale of the images.

    Raises:
        ValueError: for another number of channels, and for integer images.

    Example:
        >>> import jax.numpy as jnp
        >>> rgb_to_hsv(jnp.array([[[0.0, 1.0, 0.5], [0.5, 0.5, 0.5]]]))
        Array([[[0.4166667, 1.       , 1.       ],
                [0.       , 0.       , 0.5      ]]], dtype=float32)
    """
    images, axis = channels_of("rgb_to_hsv", images, data_format, 3)
    images = _floating("rgb_to_hsv", images)
    # a channel of exactly 0 keeps its gradient
    tiny = (images != 0) & (jnp.abs(images) < float(jnp.finfo(images.dtype).eps))
    images = jnp.where(tiny, 0, images)
    value, low, start, turn = hexagon(*(jnp.take(images, i, axis=axis) for i in range(3)))
    spread = value - low
    coloured, lit = spread > 0, value > 0
    # each denominator is replaced by 1 where it is 0: `where` alone would leave NaN gradients
    saturation = jnp.where(lit, spread / jnp.where(lit, value, 1), 0)
    hue = turn / (6 * jnp.where(coloured, spread, 1)) + start / 6
    hue = jnp.where(coloured, hue, 0)
    hue = jnp.where(hue < 0, hue + 1, hue)
    return jnp.stack((hue, saturation, value), axis=axis)


def hexagon(red: jax.Array, green: jax.Array, blue: jax.Array) -> tuple[jax.Array, ...]:
    """Returns `(value, low, start, turn)`, for which the hue in sixths is `start + turn / (value - low)`.

    Where two channels are equal, all results have the gradient at a slightly larger hue. With `jnp.maximum`,
    `value` would have the mean of the gradients on both sides, and the hue the gradient on one side.

    Returns:
        The largest and the smallest channel, the hue of the largest (0, 2 or 4), and the difference
        between the next channel on the circle and the one before.
    """
    # compare channels, not `value`: XLA may compute a channel twice with different rounding, and
    # then no channel equals the maximum
    is_red, is_green = (red > green) & (red >= blue), (green >= red) & (green > blue)

    def select(of_red: Any, of_green: Any, of_blue: Any) -> jax.Array:
        return jnp.where(is_red, of_red, jnp.where(is_green, of_green, of_blue))

    value, after, before = (
        select(red, green, blue),
        select(green, blue, red),
        select(blue, red, green),
    )
    low = jnp.where(after >= before, before, after)
    return value, low, select(0, 2, 4).astype(value.dtype), after - before


def hsv_to_rgb(images: Numbers, data_format: str | None = None) -> jax.Array:
    """Computes red, green and blue from hue, saturation and value.

    Args:
        images: floating array (b, h, w, 3) or (h, w, 3), or with the channels before h; the hue
            is in turns, so 1.25 equals 0.25.

    Returns:
        An array like `images`, from 0 to the value.

    Raises:
        ValueError: for another number of channels, and for integer images.

    Example:
        >>> import jax.numpy as jnp
        >>> hsv_to_rgb(jnp.array([[[0.5, 1.0, 1.0], [0.5, 0.0, 0.5]]]))
        Array([[[0. , 1. , 1. ],
                [0.5, 0.5, 0.5]]], dtype=float32)
    """
    images, axis = channels_of("hsv_to_rgb", images, data_format, 3)
    images = _floating("hsv_to_rgb", images)
    hue, saturation, value = (jnp.take(images, i, axis=axis) for i in range(3))
    sector = jnp.mod(hue, 1) * 6
    # piecewise linear functions of the hue have no branches, unlike the usual six cases
    fractions = (
        jnp.clip(jnp.abs(sector - 3) - 1, 0, 1),
        jnp.clip(2 - jnp.abs(sector - 2), 0, 1),
        jnp.clip(2 - jnp.abs(sector - 4), 0, 1),
    )
    grey = 1 - saturation
    return jnp.stack([value * (grey + saturation * fraction) for fraction in fractions], axis=axis)
