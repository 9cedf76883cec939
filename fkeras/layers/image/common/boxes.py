"""Bounding boxes in layers that move images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fkeras.layers.image.common.base import ImageLayer, ImageShape
from fkeras.nn.image.boxes import clip_to_image_size, convert_format


def move_boxes(
    layer: ImageLayer,
    bounding_boxes: dict[str, Any],
    shape: ImageShape,
    move: Callable[[jax.Array], jax.Array],
    size: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Moves boxes in pixels, whatever their format, and cuts them at the new image's borders.

    Args:
        layer: tells the boxes' format.
        bounding_boxes: {"boxes": (b, n, 4), "labels": ...}.
        shape: of the images before.
        move: takes boxes (b, n, 4) in "xyxy" to where they lie in the new images.
        size: (height, width) of the new images, None for that of the old ones.

    Returns:
        The dictionary with the new boxes, and the label -1 for those of which nothing is left.
    """
    written = layer.box_format()
    height, width = (shape.height, shape.width) if size is None else size
    corners = convert_format(bounding_boxes, written, "xyxy", shape.height, shape.width)
    moved = clip_to_image_size({**corners, "boxes": move(corners["boxes"])}, height, width)
    return convert_format(moved, "xyxy", written, height, width)


def stretch(boxes: jax.Array, part: tuple[int, int, int, int], size: tuple[int, int]) -> jax.Array:
    """Boxes after a part of the image `(top, left, height, width)` became an image of `size`.

    Example:
        >>> import jax.numpy as jnp
        >>> stretch(jnp.array([[[2.0, 2.0, 4.0, 4.0]]]), (0, 2, 4, 4), (8, 8))
        Array([[[0., 4., 4., 8.]]], dtype=float32)
    """
    top, left, height, width = part
    rows, columns = size[0] / height, size[1] / width
    factors = jax.numpy.array((columns, rows, columns, rows), boxes.dtype)
    starts = jax.numpy.array((left, top, left, top), boxes.dtype)
    line = (1,) * (boxes.ndim - 1) + (4,)
    return (boxes - starts.reshape(line)) * factors.reshape(line)
