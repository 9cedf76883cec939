"""Changes of brightness, contrast and colour, pixel by pixel.

The amounts are numbers, or arrays that broadcast against the images: (b, 1, 1, 1) for an amount of
its own for each image. `value_range` is (lowest, highest), the scale of the images.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.colors import hsv_to_rgb, rgb_to_grayscale, rgb_to_hsv
from fkeras.nn.image.layout import image_axes

Range = tuple[float, float]
_BYTE = (0.0, 255.0)


def rescale(images: jax.Array, source: Range, target: Range) -> jax.Array:
    """Moves floating images from one scale to another, by a straight line.

    Args:
        source: (lowest, highest) value before.
        target: (lowest, highest) value after.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> rescale(jnp.array([-1.0, 0.0, 1.0]), (-1, 1), (0, 10))
        Array([ 0.,  5., 10.], dtype=float32)
    """
    if tuple(source) == tuple(target):
        return images
    share = (images - source[0]) / (source[1] - source[0])
    return share * (target[1] - target[0]) + target[0]


def _amount(value: Any, images: jax.Array) -> Any:
    """Numbers stay numbers; arrays take the dtype of the images."""
    return value if isinstance(value, int | float) else jnp.asarray(value).astype(images.dtype)


def blend(images: jax.Array, degenerate: jax.Array, share: Any) -> jax.Array:
    """Mixes images with poorer ones: `images + share * (degenerate - images)`.

    Args:
        degenerate: array that broadcasts against `images`.
        share: 0 for the images, 1 for the degenerate ones; beyond these it exaggerates.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> blend(jnp.array([1.0, 3.0]), jnp.array([2.0, 2.0]), -1.0)
        Array([0., 4.], dtype=float32)
    """
    return images + _amount(share, images) * (degenerate - images)


def adjust_brightness(images: jax.Array, delta: Any, value_range: Range = _BYTE) -> jax.Array:
    """Adds to all pixels, and cuts off at the ends of the scale.

    Args:
        delta: number to add, in the scale of the images.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> adjust_brightness(jnp.array([100.0, 250.0]), 10.0)
        Array([110., 255.], dtype=float32)
    """
    return jnp.clip(images + _amount(delta, images), *value_range)


def adjust_contrast(
    images: jax.Array, factor: Any, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Stretches the distance of each pixel from the mean of its channel, and cuts off.

    Args:
        factor: 0 for images of one colour, 1 for no change.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> adjust_contrast(jnp.array([[[1.0], [3.0]]]), 2.0).ravel()
        Array([0., 4.], dtype=float32)
    """
    height, width, _ = image_axes(images.ndim, data_format)
    mean = jnp.mean(images, axis=(height, width), keepdims=True)
    return jnp.clip((images - mean) * _amount(factor, images) + mean, *value_range)


def degenerate_colors(
    images: jax.Array, share: Any, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Mixes images with their grey versions, and clips.

    Args:
        images: floating array (b, h, w, 3) or (h, w, 3), or with the channels before h; images of
            one channel stay as they are.
        share: 0 for no change, 1 for grey.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> degenerate_colors(jnp.array([[[0.0, 100.0, 0.0]]]), 0.5).ravel()
        Array([29.35, 79.35, 29.35], dtype=float32)
    """
    return jnp.clip(blend(images, rgb_to_grayscale(images, data_format), share), *value_range)


def adjust_saturation(
    images: jax.Array, factor: Any, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Multiplies the saturation of each pixel, up to pure colours.

    Args:
        images: floating array (b, h, w, 3) or (h, w, 3), or with the channels before h.
        factor: 0 for grey images, 1 for no change.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> adjust_saturation(jnp.array([[[50.0, 100.0, 100.0]]]), 0.5).ravel()
        Array([ 75., 100., 100.], dtype=float32)
    """

    def change(hue: jax.Array, saturation: jax.Array) -> tuple[jax.Array, jax.Array]:
        return hue, jnp.clip(saturation * _amount(factor, saturation), 0, 1)

    return _in_hsv(images, change, value_range, data_format)


def adjust_hue(
    images: jax.Array, delta: Any, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Turns the hue of each pixel on the circle of colours.

    Args:
        images: floating array (b, h, w, 3) or (h, w, 3), or with the channels before h.
        delta: rotation of the hue, in turns: 1/3 turns red into green.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> adjust_hue(jnp.array([[[255.0, 0.0, 0.0]]]), 0.5).ravel()
        Array([  0., 255., 255.], dtype=float32)
    """

    def change(hue: jax.Array, saturation: jax.Array) -> tuple[jax.Array, jax.Array]:
        return hue + _amount(delta, hue), saturation

    shares = _in_hsv(images, change, value_range, data_format)
    return jnp.clip(shares, *value_range)


def _in_hsv(images: jax.Array, change: Any, value_range: Range, data_format: str | None) -> Any:
    # hue and saturation do not depend on the scale, only on where black is
    axis, black = image_axes(images.ndim, data_format)[2], value_range[0]
    hue, saturation, value = jnp.split(rgb_to_hsv(images - black, data_format), 3, axis=axis)
    hsv = jnp.concatenate((*change(hue, saturation), value), axis=axis)
    return hsv_to_rgb(hsv, data_format) + black


def invert(images: jax.Array, value_range: Range = _BYTE) -> jax.Array:
    """The negative: the lowest value for the highest, and so on.

    Args:
        images: array of any shape.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> invert(jnp.array([-1.0, 0.5]), (-1, 1))
        Array([ 1. , -0.5], dtype=float32)
    """
    low, high = value_range
    return (low + high) - images


def solarize(
    images: jax.Array, threshold: Any, addition: Any = 0.0, value_range: Range = _BYTE
) -> jax.Array:
    """Adds to all pixels, and inverts those that reach a threshold then.

    Args:
        threshold: from 0 to 255, whatever the scale of the images.
        addition: number to add first, also from 0 to 255.
        value_range: (lowest, highest) value of the images.

    Returns:
        An array like `images`.

    Example:
        >>> import jax.numpy as jnp
        >>> solarize(jnp.array([10.0, 200.0]), 128.0)
        Array([10., 55.], dtype=float32)
    """
    bright = rescale(images, value_range, _BYTE) + _amount(addition, images)
    bright = jnp.clip(bright, *_BYTE)
    kept = bright < _amount(threshold, images)
    return rescale(jnp.where(kept, bright, 255 - bright), _BYTE, value_range)


def posterize(images: jax.Array, bits: Any, value_range: Range = _BYTE) -> jax.Array:
    """Keeps the first bits of each pixel, which is written with 8 bits.

    Args:
        bits: how many to keep, from 1 to 8: a number, or integers that broadcast.

    Returns:
        An array like `images`; its gradient is 0.

    Example:
        >>> import jax.numpy as jnp
        >>> posterize(jnp.array([100.0, 200.0, 300.0]), 2)
        Array([ 64., 192., 192.], dtype=float32)
    """
    # powers of two divide exactly in every precision; exp2 would only be near them
    step = jnp.left_shift(1, 8 - jnp.asarray(bits, "int32")).astype(images.dtype)
    levels = jnp.floor(jnp.clip(rescale(images, value_range, _BYTE), *_BYTE))
    return rescale(jnp.floor(levels / step) * step, _BYTE, value_range)


def auto_contrast(
    images: jax.Array, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Stretches each channel of each image over the whole scale.

    Args:
        value_range: (lowest, highest) value of the scale.

    Returns:
        An array like `images`; channels of one single value stay as they are.

    Example:
        >>> import jax.numpy as jnp
        >>> auto_contrast(jnp.array([[[50.0], [100.0], [75.0]]])).ravel()
        Array([  0. , 255. , 127.5], dtype=float32)
    """
    axes = image_axes(images.ndim, data_format)[:2]
    low = jnp.min(images, axis=axes, keepdims=True)
    high = jnp.max(images, axis=axes, keepdims=True)
    varied = high > low
    # a share of exactly 0 and 1 at the ends, so that nothing has to be cut off
    share = (images - low) / jnp.where(varied, high - low, 1)
    return jnp.where(varied, rescale(share, (0, 1), value_range), images)
