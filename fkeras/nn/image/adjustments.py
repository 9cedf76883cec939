"""Adjustments of brightness, contrast and colour, pixel by pixel.

Amounts are scalars, or arrays that broadcast against the images: (b, 1, 1, 1) for a separate amount
for each image. `value_range` is (lowest, highest), the scale of the images.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.colors import channels_of, hexagon, rgb_to_grayscale
from fkeras.nn.image.layout import image_axes

Range = tuple[float, float]
_BYTE = (0.0, 255.0)


def rescale(images: jax.Array, source: Range, target: Range) -> jax.Array:
    """Maps floating images linearly from one value range to another.

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
    fraction = (images - source[0]) / (source[1] - source[0])
    return fraction * (target[1] - target[0]) + target[0]


def _amount(value: Any, images: jax.Array) -> Any:
    """Returns scalars unchanged, and casts arrays to the dtype of the images."""
    # a Python scalar is weakly typed and leaves the dtype of bfloat16 images unchanged
    return value if isinstance(value, int | float) else jnp.asarray(value).astype(images.dtype)


def blend(images: jax.Array, degenerate: jax.Array, share: Any) -> jax.Array:
    """Mixes images with degenerate ones: `images + share * (degenerate - images)`.

    Args:
        degenerate: array that broadcasts against `images`.
        share: 0 returns the images, 1 the degenerate ones; other values extrapolate.

    Returns:
        An array like `images`.
    """
    return images + _amount(share, images) * (degenerate - images)


def adjust_brightness(images: jax.Array, delta: Any, value_range: Range = _BYTE) -> jax.Array:
    """Adds `delta` to all pixels, and clips to the value range.

    Returns:
        An array like `images`.
    """
    return jnp.clip(images + _amount(delta, images), *value_range)


def adjust_contrast(
    images: jax.Array, factor: Any, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Multiplies the difference of each pixel from the mean of its channel, and clips.

    Args:
        factor: 0 for constant images, 1 for no change.

    Returns:
        An array like `images`.
    """
    height, width, _ = image_axes(images.ndim, data_format)
    mean = jnp.mean(images, axis=(height, width), keepdims=True)
    return jnp.clip((images - mean) * _amount(factor, images) + mean, *value_range)


def degenerate_colors(
    images: jax.Array, share: Any, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Mixes images with their grayscale versions, and clips.

    Args:
        images: floating array (b, h, w, 3) or (h, w, 3), or with the channels before h; images
            with one channel are unchanged.
        share: 0 for no change, 1 for grayscale.

    Returns:
        An array like `images`.
    """
    return jnp.clip(blend(images, rgb_to_grayscale(images, data_format), share), *value_range)


def adjust_saturation(
    images: jax.Array, factor: Any, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Multiplies the saturation of each pixel, and clips it at 1.

    Args:
        images: floating array (b, h, w, 3) or (h, w, 3), or with the channels before h.
        factor: 0 or less for grayscale images, 1 for no change.

    Returns:
        An array like `images`.
    """
    black = value_range[0]
    images, axis = channels_of("adjust_saturation", images - black, data_format, 3)
    channels = jnp.split(images, 3, axis=axis)
    value, low, _, _ = hexagon(*channels)
    # without the hue, so that equal channels stay equal and have the gradient of an adjacent branch
    spread, factor = value - low, jnp.maximum(_amount(factor, images), 0)
    is_pure, scale = (spread > 0) & (factor * spread > value), jnp.where(spread > 0, spread, 1)
    # Two formulas, each exact at its ends, and no `jnp.minimum` of numbers that differ by rounding: XLA
    # may compute such numbers twice, and then the gradient follows both or neither.
    changed = [
        jnp.where(
            is_pure,
            jnp.where(value > 0, value * ((channel - low) / scale), value),
            value - factor * (value - channel),
        )
        for channel in channels
    ]
    return jnp.concatenate(changed, axis=axis) + black


def adjust_hue(
    images: jax.Array, delta: Any, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Rotates the hue of each pixel on the colour circle.

    Args:
        images: floating array (b, h, w, 3) or (h, w, 3), or with the channels before h.
        delta: rotation of the hue, in turns: 1/3 turns red into green.

    Returns:
        An array like `images`.
    """
    images, axis = channels_of("adjust_hue", images, data_format, 3)
    value, low, start, turn = hexagon(*jnp.split(images, 3, axis=axis))
    spread = value - low
    # hues in sixths, times the spread: no denominator is 0 for grey pixels, which count as hue 0
    scale = jnp.where(spread > 0, spread, 1)
    # the new hue minus the hue of a channel, without `turn`: the largest channel is this one, the next, the third
    angles = [jnp.mod(6 * _amount(delta, images) + 3 + start, 6) - 3 for start in (0, 2, 4)]

    def channel(hue: int) -> jax.Array:
        """Returns a channel from the distance of the pixel's hue from the channel's, at most 3."""
        same, next_start = start == hue, (hue + 2) % 6
        angle = jnp.where(same, angles[0], jnp.where(start == next_start, angles[1], angles[2]))
        ahead = angle * scale + turn >= 0
        # where two linear pieces meet, the gradient is that at a slightly larger hue, as in `hexagon`
        rest = 2 * scale - jnp.abs(angle * scale + turn)
        is_whole = jnp.where(ahead, rest > scale, rest >= scale)
        is_none = jnp.where(ahead, rest <= 0, rest < 0)
        part = 2 * spread - jnp.where(ahead, 1, -1) * (angle * spread + turn)
        return low + jnp.where(is_whole, spread, jnp.where(is_none, 0, part))

    adjusted = jnp.concatenate([channel(hue) for hue in (0, 2, 4)], axis=axis)
    # rounding may leave the value range by a few ulps
    return jnp.clip(adjusted, *value_range)


def invert(images: jax.Array, value_range: Range = _BYTE) -> jax.Array:
    """Inverts pixels: the lowest value becomes the highest, and vice versa.

    Returns:
        An array like `images`.
    """
    low, high = value_range
    return (low + high) - images


def solarize(
    images: jax.Array, threshold: Any, addition: Any = 0.0, value_range: Range = _BYTE
) -> jax.Array:
    """Adds to all pixels, then inverts those that reach the threshold.

    Args:
        threshold: number from 0 to 255, independent of `value_range`.
        addition: number to add first, from 0 to 255, independent of `value_range`.
        value_range: (lowest, highest) value of the images.

    Returns:
        An array like `images`.
    """
    bright = rescale(images, value_range, _BYTE) + _amount(addition, images)
    bright = jnp.clip(bright, *_BYTE)
    is_below = bright < _amount(threshold, images)
    return rescale(jnp.where(is_below, bright, 255 - bright), _BYTE, value_range)


def posterize(images: jax.Array, bits: Any, value_range: Range = _BYTE) -> jax.Array:
    """Keeps the highest bits of each pixel, as an 8-bit number.

    Args:
        bits: number of bits to keep, from 1 to 8: a scalar, or integers that broadcast.

    Returns:
        An array like `images`; its gradient is 0.
    """
    # powers of two divide exactly in every precision; exp2 would only approximate them
    step = jnp.left_shift(1, 8 - jnp.asarray(bits, "int32")).astype(images.dtype)
    levels = jnp.floor(jnp.clip(rescale(images, value_range, _BYTE), *_BYTE))
    return rescale(jnp.floor(levels / step) * step, _BYTE, value_range)


def auto_contrast(
    images: jax.Array, value_range: Range = _BYTE, data_format: str | None = None
) -> jax.Array:
    """Stretches each channel of each image to the whole value range.

    Args:
        value_range: (lowest, highest) value of a pixel.

    Returns:
        An array like `images`; constant channels are unchanged.
    """
    axes = image_axes(images.ndim, data_format)[:2]
    low = jnp.min(images, axis=axes, keepdims=True)
    high = jnp.max(images, axis=axes, keepdims=True)
    # the inner `where` avoids 0 / 0, whose gradient would be NaN even where it is not selected
    varied = high > low
    # the share is exactly 0 and 1 at the ends, so the result needs no clipping
    fraction = (images - low) / jnp.where(varied, high - low, 1)
    return jnp.where(varied, rescale(fraction, (0, 1), value_range), images)
