"""Resizing of images with options for the aspect ratio; scaling and translation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.image.layout import as_batch, one_of
from fkeras.nn.numerics.array_types import Numbers

# smallest scale: 1 / scale**2, and products with it, then fit into float32
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
    """Returns the part of an image that `resize` stretches to `size`.

    Args:
        size: the new (height, width).
        crop: whether to take the largest central part that has the aspect ratio of `size`.
        pad: whether to take the smallest frame around the image that has approximately this
            aspect ratio: whole pixels, the same number on both sides.

    Returns:
        `(top, left, height, width)` of the part in pixels; top and left are negative for a frame.
    """
    if not crop and not pad:
        return 0, 0, height, width
    # integer arithmetic, as in Keras, so that the parts agree to the pixel
    fit_height, fit_width = width * size[0] // size[1], height * size[1] // size[0]
    if crop:
        fit_height = max(min(height, fit_height), 1)
        fit_width = max(min(width, fit_width), 1)
        return (height - fit_height) // 2, (width - fit_width) // 2, fit_height, fit_width
    rows, columns = max(0, fit_height - height) // 2, max(0, fit_width - width) // 2
    columns = 0 if rows else columns
    return -rows, -columns, height + 2 * rows, width + 2 * columns


def resize(
    images: Numbers,
    size: Sequence[int],
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> jax.Array:
    """Resizes images.

    Args:
        size: the new (height, width).
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        antialias: whether a pixel of a smaller image is a mean over all pixels it covers.
        crop_to_aspect_ratio: whether to keep the aspect ratio and crop the excess.
        pad_to_aspect_ratio: whether to keep the aspect ratio and pad the images.
        fill_mode: only "constant" is supported.
        fill_value: value of the padding.

    Returns:
        An array of the new size and the old dtype; integers are rounded.

    Raises:
        ValueError: for sizes below 1, unknown strings, and if both cropping and padding are
            requested.

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
            f"resize: expected size=(height, width), both 1 or more, received {size}. An image "
            "needs at least one pixel."
        )
    images = jnp.asarray(images)
    dtype = images.dtype
    integral = not jnp.issubdtype(dtype, jnp.floating)
    # "nearest" copies pixels, so integers need no float computation and stay exact
    if integral and interpolation != "nearest":
        images = images.astype("float32")
    batch, unbatch = as_batch(images, data_format)
    batch = cut(
        batch,
        window(*batch.shape[1:3], size, crop_to_aspect_ratio, pad_to_aspect_ratio),
        fill_value,
    )
    shape = (batch.shape[0], *size, batch.shape[3])
    resized = jax.image.resize(batch, shape, interpolation, antialias=antialias)
    return unbatch(as_dtype(resized, dtype))


def cut(batch: jax.Array, part: tuple[int, int, int, int], fill_value: Any = 0.0) -> jax.Array:
    """Returns a part of the images, with `fill_value` where the part leaves the images.

    Args:
        batch: array of shape (b, h, w, c).
        part: `(top, left, height, width)` in pixels.

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
    # negative padding of lax.pad crops, so one operation serves both
    return lax.pad(batch, value, ((0, 0, 0), rows, columns, (0, 0, 0)))


def as_dtype(x: jax.Array, dtype: Any) -> jax.Array:
    """Casts to a dtype; integers are rounded and clipped to the range of the dtype."""
    if x.dtype == dtype or jnp.issubdtype(dtype, jnp.floating):
        return x.astype(dtype)
    limits = jnp.iinfo(dtype)
    return jnp.clip(jnp.round(x), limits.min, limits.max).astype(dtype)


def scale_and_translate(
    images: Numbers,
    output_shape: Sequence[int | None],
    scale: Numbers,
    translation: Numbers,
    spatial_dims: Sequence[int],
    method: str,
    antialias: bool = True,
) -> jax.Array:
    """Scales and translates an array along some axes, by any real amounts.

    Args:
        images: array of any shape.
        output_shape: the shape of the result; None for the size of `images` along an axis.
        scale: factor along each of `spatial_dims`, (n,).
        translation: offset along each of `spatial_dims`, in cells of the result, (n,).
        spatial_dims: the axes that change.
        method: "linear", "bilinear" or "trilinear", which are equivalent, "cubic", "bicubic" or
            "tricubic", "lanczos3" or "lanczos5".
        antialias: whether cells of a smaller result are means over all cells they cover.

    Returns:
        An array of shape `output_shape`, 0 outside of `images`.

    Raises:
        ValueError: for an unknown method, or another number of sizes than axes.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([1.0, 2.0])
        >>> scale_and_translate(x, (3,), jnp.ones(1), jnp.ones(1), (0,), "linear")
        Array([0., 1., 2.], dtype=float32)
    """
    one_of("method", method, *_SCALING_METHODS)
    images = jnp.asarray(images)
    if len(output_shape) != images.ndim:
        raise ValueError(
            f"scale_and_translate: output_shape: expected {images.ndim} sizes, one for each axis of "
            f"images of shape {images.shape}, received {tuple(output_shape)}. Write None for an axis "
            "that keeps its size."
        )
    scale, translation = (jnp.asarray(v).astype("float32") for v in (scale, translation))
    # the derivatives contain 1 / scale**2; smaller scales are replaced by the smallest scale
    scale = jnp.where(jnp.abs(scale) < _LEAST_SCALE, _LEAST_SCALE, scale)
    sizes = zip(output_shape, images.shape, strict=True)
    shape = tuple(known if size is None else size for size, known in sizes)
    return jax.image.scale_and_translate(
        images, shape, tuple(spatial_dims), scale, translation, method, antialias
    )
