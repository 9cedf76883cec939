"""`CenterCrop` and `RandomCrop`: crops of images to a given size."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageLayer, ImageShape, RandomImageLayer
from fkeras.layers.image.common.boxes import move_boxes, stretch
from fkeras.layers.image.common.factors import uniform
from fkeras.nn.image.layout import as_batch
from fkeras.nn.image.resizing import as_dtype, cut, window


def middle(height: int, width: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Returns the central part of an image that becomes an image of `size`.

    Args:
        size: the new (height, width).

    Returns:
        `(top, left, height, width)`: a part of `size` if the image is large enough, otherwise the
        largest part with the same aspect ratio, to be resized.
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
    batch, unbatch = as_batch(images, data_format)
    batch = cut(batch, part)
    if part[2:] != size:
        # interpolation needs floats; "nearest" copies integers exactly
        exact = method == "nearest" or jnp.issubdtype(batch.dtype, jnp.floating)
        floats = batch if exact else batch.astype("float32")
        shape = (batch.shape[0], *size, batch.shape[3])
        resized = jax.image.resize(floats, shape, method, antialias=False)
        batch = as_dtype(resized, batch.dtype)
    return unbatch(batch)


class CenterCrop(ImageLayer):
    """Crops the center of images.

    If an image is too small, the layer resizes the largest part with the requested aspect ratio.
    Masks are resized by the nearest pixel (Keras interpolates their ids).

    Args:
        height: height of the result.
        width: width of the result.

    Shapes:
        (b, h, w, c) -> (b, height, width, c), the same without b.

    Raises:
        ValueError: for sizes that are not positive integers.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.CenterCrop(1, 2)(jnp.arange(9.0).reshape(3, 3, 1)).ravel()
        Array([3., 4.], dtype=float32)
    """

    height: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    width: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def moved(self, images: jax.Array, transformation: fk.Tree, interpolation: str) -> jax.Array:
        shape, size = self.image_shape(images), (self.height, self.width)
        part = middle(shape.height, shape.width, size)
        return _part_as_image(images, part, size, interpolation, self.data_format)

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        size = (self.height, self.width)
        part = middle(shape.height, shape.width, size)
        return move_boxes(
            self, bounding_boxes, shape, lambda boxes: stretch(boxes, part, size), size
        )


class RandomCrop(RandomImageLayer):
    """Crops a part of images, in training at a position that is drawn once for the batch.

    In inference, and for images that are too small, the layer resizes the largest central part
    with the requested aspect ratio. (Keras documents this too, but returns images unchanged in
    inference; then the size would differ between training and inference, and a Dense layer could
    not follow. Keras also moves the x of boxes by rows and their y by columns; here boxes follow
    the images.) Masks are resized by the nearest pixel.

    Args:
        height: height of the result.
        width: width of the result.

    Shapes:
        (b, h, w, c) -> (b, height, width, c), the same without b.

    Raises:
        ValueError: for sizes that are not positive integers; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(6.0).reshape(1, 6, 1)
        >>> fk.layers.RandomCrop(1, 2)(x, training=True, key=jax.random.key(1)).shape
        (1, 2, 1)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name",)

    height: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    width: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    def draw(self, key: jax.Array, shape: ImageShape) -> fk.Tree:
        """Draws `(top, left)` of the part, two integers; None if the images are too small."""
        rows, columns = shape.height - self.height, shape.width - self.width
        if rows < 0 or columns < 0:
            return None
        ends = ((0.0, rows + 1.0), (0.0, columns + 1.0))
        starts = [uniform(k, (), e) for k, e in zip(jax.random.split(key), ends, strict=True)]
        # float32 rounding may reach the excluded upper end
        return tuple(
            jnp.minimum(s.astype("int32"), last)
            for s, last in zip(starts, (rows, columns), strict=True)
        )

    def forward(self, context: fk.Context, data: fk.Tree) -> fk.Output:
        # inference crops too, without a draw: the output has one size in both modes
        if context.training:
            return super().forward(context, data)
        return fk.Output(self._transformed(data, lambda shape: (True, None)))

    def moved(self, images: jax.Array, transformation: fk.Tree, interpolation: str) -> jax.Array:
        shape, size = self.image_shape(images), (self.height, self.width)
        if transformation is None:
            part = window(shape.height, shape.width, size, crop=True)
            return _part_as_image(images, part, size, interpolation, self.data_format)
        batch, unbatch = as_batch(images, self.data_format)
        top, left = transformation
        # a dynamic slice has a static size and a traced start
        for axis, start, length in ((1, top, self.height), (2, left, self.width)):
            batch = lax.dynamic_slice_in_dim(batch, start, length, axis)
        return unbatch(batch)

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        size = (self.height, self.width)

        def move(boxes: jax.Array) -> jax.Array:
            if transformation is None:
                return stretch(boxes, window(shape.height, shape.width, size, crop=True), size)
            top, left = (jnp.asarray(v).astype(boxes.dtype) for v in transformation)
            return boxes - jnp.reshape(jnp.stack((left, top, left, top)), (1, 1, 4))

        return move_boxes(self, bounding_boxes, shape, move, size)
