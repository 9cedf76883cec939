"""`Resizing`: images resized to a given size."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageLayer, ImageShape
from fkeras.layers.image.common.boxes import move_boxes, stretch
from fkeras.nn.image.resizing import METHODS, resize, window


class Resizing(ImageLayer):
    """Resizes images: stretches, crops or pads them to a given size.

    Boxes follow their pixels exactly (Keras rounds the width of the padding or of the crop to whole
    pixels of the result). Boxes of four zeros or four -1 are padding, and become zeros. Masks are
    resized by the nearest pixel. Integer images stay integer.

    Args:
        height: height of the result.
        width: width of the result.
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        crop_to_aspect_ratio: whether to keep the aspect ratio and crop the excess.
        pad_to_aspect_ratio: whether to keep the aspect ratio and pad the images.
        fill_mode: only "constant" is supported.
        fill_value: value of the padding of `pad_to_aspect_ratio`.
        antialias: whether a pixel of a smaller image is a mean over all pixels it covers.

    Shapes:
        (b, h, w, c) -> (b, height, width, c), the same without b.

    Raises:
        ValueError: for sizes that are not positive integers, unknown strings, and if both cropping
            and padding are requested.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Resizing(8, 6)(jnp.ones((2, 3, 3, 1))).shape
        (2, 8, 6, 1)
    """

    height: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    width: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    interpolation: str = fk.option(default="bilinear", convert=fk.choice(*METHODS))
    crop_to_aspect_ratio: bool = fk.option(default=False, convert=fk.boolean)
    pad_to_aspect_ratio: bool = fk.option(default=False, convert=fk.boolean)
    fill_mode: str = fk.option(default="constant", convert=fk.choice("constant"))
    fill_value: fk.Real = fk.option(default=0.0, convert=fk.real())
    antialias: bool = fk.option(default=False, convert=fk.boolean)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)

    casts_images: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop_to_aspect_ratio and self.pad_to_aspect_ratio:
            raise ValueError(
                f"{self._where}: expected at most one of crop_to_aspect_ratio and "
                "pad_to_aspect_ratio, received both. Cropping leaves nothing to pad: give one."
            )

    def moved(self, images: jax.Array, transformation: fk.Tree, interpolation: str) -> jax.Array:
        return resize(
            images,
            (self.height, self.width),
            interpolation,
            self.antialias,
            self.crop_to_aspect_ratio,
            self.pad_to_aspect_ratio,
            self.fill_mode,
            self.fill_value,
            self.data_format,
        )

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        size = (self.height, self.width)
        part = window(
            shape.height, shape.width, size, self.crop_to_aspect_ratio, self.pad_to_aspect_ratio
        )
        old_boxes = bounding_boxes["boxes"]
        # padding boxes must not be moved to a visible position
        is_padding = jnp.all(old_boxes == 0, axis=-1) | jnp.all(old_boxes == -1, axis=-1)

        def move(boxes: jax.Array) -> jax.Array:
            return jnp.where(is_padding[..., None], 0.0, stretch(boxes, part, size))

        return move_boxes(self, bounding_boxes, shape, move, size)
