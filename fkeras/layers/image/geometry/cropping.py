"""`CenterCrop` and `RandomCrop`: parts of images of a given size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.engine import Context, Output, option
from fkeras.engine.config.converters import data_format_name, integer
from fkeras.engine.config.field_types import DataFormat, Integer, OptionalInteger
from fkeras.layers.image.common.base import ImageLayer, ImageShape, RandomImageLayer
from fkeras.layers.image.common.boxes import move_boxes, stretch
from fkeras.layers.image.common.factors import uniform
from fkeras.nn.image.layout import as_batch
from fkeras.nn.image.resizing import as_dtype, cut, window


def middle(height: int, width: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The part in the middle of an image that becomes an image of `size`.

    Args:
        height: the image's height.
        width: the image's width.
        size: the new (height, width).

    Returns:
        `(top, left, height, width)`: of `size` itself where the image is large enough, otherwise
        the largest part of its aspect ratio.

    Example:
        >>> middle(6, 6, (2, 4)), middle(6, 6, (4, 8))
        ((2, 1, 2, 4), (1, 0, 3, 6))
    """
    if height >= size[0] and width >= size[1]:
        return (height - size[0]) // 2, (width - size[1]) // 2, *size
    return window(height, width, size, crop=True)


def _part_as_image(
    images: jax.Array,
    part: tuple[int, int, int, int],
    size: tuple[int, int],
    method: str,
    data_format: str,
) -> jax.Array:
    batch, back = as_batch(images, data_format)
    batch = cut(batch, part)
    if part[2:] != size:
        exact = method == "nearest" or jnp.issubdtype(batch.dtype, jnp.floating)
        floats = batch if exact else batch.astype("float32")
        shape = (batch.shape[0], *size, batch.shape[3])
        resized = jax.image.resize(floats, shape, method, antialias=False)
        batch = as_dtype(resized, batch.dtype)
    return back(batch)


class CenterCrop(ImageLayer):
    """Cuts the middle out of images.

    Of an image that is too small, the largest part of the aspect ratio asked for is resized.
    Masks are resized by the nearest pixel (Keras blends their ids).

    Args:
        height: the new height.
        width: the new width.
        Other arguments: those of `RandomTranslation`.

    Shapes:
        (b, h, w, c) -> (b, height, width, c), the same without b.

    Raises:
        ValueError: for sizes that are no positive integers.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.CenterCrop(1, 2)(jnp.arange(9.0).reshape(3, 3, 1)).ravel()
        Array([3., 4.], dtype=float32)
    """

    height: Integer = option(convert=integer(minimum=1))
    width: Integer = option(convert=integer(minimum=1))
    data_format: DataFormat = option(default=None, convert=data_format_name)

    def transform_images(self, images: jax.Array, transformation: Any) -> jax.Array:
        return self._cropped(images, "bilinear")

    def transform_segmentation_masks(
        self, segmentation_masks: jax.Array, transformation: Any
    ) -> jax.Array:
        return self._cropped(segmentation_masks, "nearest")

    def _cropped(self, images: jax.Array, method: str) -> jax.Array:
        shape, size = self.image_shape(images), (self.height, self.width)
        part = middle(shape.height, shape.width, size)
        return _part_as_image(images, part, size, method, self.data_format)

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: Any, shape: ImageShape
    ) -> dict[str, jax.Array]:
        size = (self.height, self.width)
        part = middle(shape.height, shape.width, size)
        return move_boxes(
            self, bounding_boxes, shape, lambda boxes: stretch(boxes, part, size), size
        )


class RandomCrop(RandomImageLayer):
    """Cuts a part out of images, in training at a place that is drawn once for the batch.

    In inference, and of images that are too small, it is the largest part in the middle that has
    the aspect ratio asked for, resized. (Keras says so too, but leaves images as they are in
    inference; the new size would then hold in training only, and no Dense layer after it could.
    It also moves the x of boxes by rows and their y by columns; here they follow the images.)
    Masks are resized by the nearest pixel.

    Args:
        height: the new height.
        width: the new width.
        Other arguments: those of `RandomTranslation`.

    Shapes:
        (b, h, w, c) -> (b, height, width, c), the same without b.

    Raises:
        ValueError: for sizes that are no positive integers; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(6.0).reshape(1, 6, 1)
        >>> fk.layers.RandomCrop(1, 2)(x, training=True, key=jax.random.key(1)).shape
        (1, 2, 1)
    """

    height: Integer = option(convert=integer(minimum=1))
    width: Integer = option(convert=integer(minimum=1))
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    data_format: DataFormat = option(default=None, convert=data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> Any:
        """`(top, left)` of the part, two integers; None where the images are too small."""
        rows, columns = shape.height - self.height, shape.width - self.width
        if rows < 0 or columns < 0:
            return None
        ends = ((0.0, rows + 1.0), (0.0, columns + 1.0))
        starts = [uniform(k, (), e) for k, e in zip(jax.random.split(key), ends, strict=True)]
        # a draw may round up to its end
        return tuple(
            jnp.minimum(s.astype("int32"), last)
            for s, last in zip(starts, (rows, columns), strict=True)
        )

    def forward(self, context: Context, data: Any) -> Output:
        if context.training:
            return super().forward(context, data)
        return Output(self._transformed(data, lambda shape: (True, None)))

    def transform_images(self, images: jax.Array, transformation: Any) -> jax.Array:
        return self._cropped(images, transformation, "bilinear")

    def transform_segmentation_masks(
        self, segmentation_masks: jax.Array, transformation: Any
    ) -> jax.Array:
        return self._cropped(segmentation_masks, transformation, "nearest")

    def _cropped(self, images: jax.Array, transformation: Any, method: str) -> jax.Array:
        shape, size = self.image_shape(images), (self.height, self.width)
        if transformation is None:
            part = window(shape.height, shape.width, size, crop=True)
            return _part_as_image(images, part, size, method, self.data_format)
        batch, back = as_batch(images, self.data_format)
        top, left = transformation
        for axis, start, length in ((1, top, self.height), (2, left, self.width)):
            batch = lax.dynamic_slice_in_dim(batch, start, length, axis)
        return back(batch)

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: Any, shape: ImageShape
    ) -> dict[str, jax.Array]:
        size = (self.height, self.width)

        def move(boxes: jax.Array) -> jax.Array:
            if transformation is None:
                return stretch(boxes, window(shape.height, shape.width, size, crop=True), size)
            top, left = (jnp.asarray(v).astype(boxes.dtype) for v in transformation)
            return boxes - jnp.reshape(jnp.stack((left, top, left, top)), (1, 1, 4))

        return move_boxes(self, bounding_boxes, shape, move, size)
