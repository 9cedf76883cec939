"""Resizing of images, with rules for the aspect ratio; scaling and translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.image.layout import as_batch, one_of

# scales below are raised to it: 1 / scale**2, and products with it, stay in the range of float32
_LEAST_SCALE = 2.0**-40
METHODS = ("bilinear", "nearest", "lanczos3", "lanczos5", "bicubic")
_SCALING_METHODS = (
    "linear",
    "bilinear",
    "trilinear",
    "cubic",
    "bicubic",
    "tricubic",
    "lanczos3",
    "lanczos5",
)


def window(
    height: int, width: int, size: tuple[int, int], crop: bool = False, pad: bool = False
) -> tuple[int, int, int, int]:
    """The part of an image that is stretched to `size`.

    Args:
        height: the image's height.
        width: the image's width.
        size: the new (height, width).
        crop: take the largest part in the middle that has the aspect ratio of `size`.
        pad: take the smallest frame around the image that has about this ratio: whole pixels, as
            many on one side as on the other.

    Returns:
        `(top, left, height, width)` of the part in pixels; top and left are below 0 for a frame.

    Example:
        >>> window(4, 8, (2, 2)), window(4, 8, (2, 2), crop=True), window(4, 8, (2, 2), pad=True)
        ((0, 0, 4, 8), (0, 2, 4, 4), (-2, 0, 8, 8))
    """
    if not crop and not pad:
        return 0, 0, height, width
    fit_height, fit_width = width * size[0] // size[1], height * size[1] // size[0]
    if crop:
        fit_height = max(min(height, fit_height), 1)
        fit_width = max(min(width, fit_width), 1)
        return (height - fit_height) // 2, (width - fit_width) // 2, fit_height, fit_width
    rows, columns = max(0, fit_height - height) // 2, max(0, fit_width - width) // 2
    columns = 0 if rows else columns
    return -rows, -columns, height + 2 * rows, width + 2 * columns


def resize(
    images: Any,
    size: Sequence[int],
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> jax.Array:
    """Gives images another size.

    Args:
        size: the new (height, width).
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        antialias: whether a smaller image is made of means over all of the larger one.
        crop_to_aspect_ratio: whether to keep the aspect ratio and crop the excess.
        pad_to_aspect_ratio: whether to keep the aspect ratio and pad.
        fill_mode: "constant" is the only one.
        fill_value: value of the padding.

    Returns:
        An array of the new size and the old dtype; integers are rounded.

    Raises:
        ValueError: for sizes below 1, unknown words, and where both cropping and padding are
            asked for.

    Example:
        >>> import jax.numpy as jnp
        >>> resize(jnp.array([[[0.0], [4.0]]]), (1, 4)).ravel()
        Array([0., 1., 3., 4.], dtype=float32)
    """
    one_of("interpolation", interpolation, *METHODS)
    one_of("fill_mode", fill_mode, "constant")
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError(
            "resize: expected at most one of crop_to_aspect_ratio and pad_to_aspect_ratio, "
            "received both. Cropping leaves nothing to pad: give one of them."
        )
    size = tuple(size)
    if len(size) != 2 or min(size) < 1:
        raise ValueError(
            f"resize: expected size=(height, width), both 1 or more, received {size}. An image of "
            "no pixels has nothing to show."
        )
    images = jnp.asarray(images)
    dtype = images.dtype
    integral = not jnp.issubdtype(dtype, jnp.floating)
    if integral and interpolation != "nearest":
        images = images.astype("float32")
    batch, back = as_batch(images, data_format)
    batch = cut(
        batch,
        window(*batch.shape[1:3], size, crop_to_aspect_ratio, pad_to_aspect_ratio),
        fill_value,
    )
    shape = (batch.shape[0], *size, batch.shape[3])
    resized = jax.image.resize(batch, shape, interpolation, antialias=antialias)
    return back(as_dtype(resized, dtype))


def cut(batch: jax.Array, part: tuple[int, int, int, int], fill_value: Any = 0.0) -> jax.Array:
    """A part of the images, with `fill_value` where it reaches beyond them.

    Args:
        batch: array of shape (b, h, w, c).
        part: `(top, left, height, width)` in pixels.
        fill_value: value outside the images.

    Returns:
        An array of shape (b, height, width, c).

    Example:
        >>> import jax.numpy as jnp
        >>> cut(jnp.ones((1, 2, 2, 1)), (-1, 1, 3, 1))[0, :, :, 0].ravel()
        Array([0., 1., 1.], dtype=float32)
    """
    top, left, height, width = part
    rows = (-top, top + height - batch.shape[1], 0)
    columns = (-left, left + width - batch.shape[2], 0)
    if rows == columns == (0, 0, 0):
        return batch
    value = jnp.asarray(fill_value).astype(batch.dtype)
    return lax.pad(batch, value, ((0, 0, 0), rows, columns, (0, 0, 0)))


def as_dtype(x: jax.Array, dtype: Any) -> jax.Array:
    """Numbers in a dtype; integers are rounded, and stop at the ends of their range.

    Args:
        x: floating array of any shape.
        dtype: the dtype.

    Example:
        >>> import jax.numpy as jnp
        >>> as_dtype(jnp.array([-3.0, 1.6, 300.0]), "uint8")
        Array([  0,   2, 255], dtype=uint8)
    """
    if x.dtype == dtype or jnp.issubdtype(dtype, jnp.floating):
        return x.astype(dtype)
    ends = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x), ends.min, ends.max).astype(dtype)


def scale_and_translate(
    images: Any,
    output_shape: Sequence[int],
    scale: Any,
    translation: Any,
    spatial_dims: Sequence[int],
    method: str,
    antialias: bool = True,
) -> jax.Array:
    """Stretches an array along some axes and moves it, by any real amounts.

    Args:
        images: array of any shape.
        output_shape: the shape of the result.
        scale: the factor along each of `spatial_dims`, (n,).
        translation: how far along each of them, in cells of the result, (n,).
        spatial_dims: the axes that change.
        method: "linear", "bilinear" or "trilinear", which mean the same, "cubic", "bicubic" or
            "tricubic", "lanczos3" or "lanczos5".
        antialias: whether cells of a smaller result are means.

    Returns:
        An array of shape `output_shape`, with zeros where nothing of `images` lies.

    Raises:
        ValueError: for an unknown method.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([1.0, 2.0])
        >>> scale_and_translate(x, (3,), jnp.ones(1), jnp.ones(1), (0,), "linear")
        Array([0., 1., 2.], dtype=float32)
    """
    one_of("method", method, *_SCALING_METHODS)
    images = jnp.asarray(images)
    scale, translation = (jnp.asarray(v).astype("float32") for v in (scale, translation))
    # the derivatives hold 1 / scale**2; a smaller scale gives the values of the smallest here
    scale = jnp.where(jnp.abs(scale) < _LEAST_SCALE, _LEAST_SCALE, scale)
    return jax.image.scale_and_translate(
        images, tuple(output_shape), tuple(spatial_dims), scale, translation, method, antialias
    )
