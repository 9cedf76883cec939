"""`MaxNumBoundingBoxes`: pads or truncates the boxes of every image to the same number."""

from __future__ import annotations

from typing import ClassVar

import jax
from jax import lax
from jax import numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.image.common.base import ImageLayer, ImageShape


class MaxNumBoundingBoxes(ImageLayer):
    """Truncates or pads the boxes of each image to a fixed number.

    Images, labels and masks are unchanged.

    Args:
        max_number: number of boxes of each image.
        fill_value: value of the boxes and labels that are added.
        data_format: "channels_last" (also None) or "channels_first".
        bounding_box_format: format of the boxes; not used.

    Shapes:
        boxes (b, n, 4) -> (b, max_number, 4), their labels (b, n) -> (b, max_number), the same
        without b.

    Raises:
        ValueError: for a number that is not a positive integer.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> boxes = {"boxes": jnp.ones((1, 4)), "labels": jnp.array([7])}
        >>> data = {"images": jnp.ones((4, 4, 3)), "bounding_boxes": boxes}
        >>> fk.layers.MaxNumBoundingBoxes(3)(data)["bounding_boxes"]["labels"]
        Array([ 7, -1, -1], dtype=int32)
    """

    max_number: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    fill_value: fk.Integer = fk.option(default=-1, convert=fk.integer())
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name, kw_only=True)

    casts_images: ClassVar[bool] = False

    def transform_bounding_boxes(
        self, bounding_boxes: dict[str, jax.Array], transformation: fk.Tree, shape: ImageShape
    ) -> dict[str, jax.Array]:
        return {
            **bounding_boxes,
            "boxes": self._fitted(bounding_boxes["boxes"]),
            "labels": self._fitted(bounding_boxes["labels"]),
        }

    def _fitted(self, rows: jax.Array) -> jax.Array:
        # negative padding of lax.pad truncates
        missing = self.max_number - rows.shape[1]
        edges = [(0, missing if axis == 1 else 0, 0) for axis in range(rows.ndim)]
        return lax.pad(rows, jnp.asarray(self.fill_value).astype(rows.dtype), edges)
