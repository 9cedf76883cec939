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
    """Transforms boxes in pixels, independent of their format, and clips them at the new borders.

    Args:
        bounding_boxes: {"boxes": (b, n, 4), "labels": ...}.
        shape: shape of the images before the transform.
        move: maps boxes (b, n, 4) in "xyxy" to their positions in the new images.
        size: (height, width) of the new images; None for an unchanged size.

    Returns:
        The dictionary with the new boxes, and the label -1 for boxes without any area left.
    """
    box_format = layer.box_format()
    height, width = (shape.height, shape.width) if size is None else size
    # relative formats use the old size when reading and the new size when writing
    corners = convert_format(bounding_boxes, box_format, "xyxy", shape.height, shape.width)
    moved = clip_to_image_size({**corners, "boxes": move(corners["boxes"])}, height, width)
    return convert_format(moved, "xyxy", box_format, height, width)


def stretch(boxes: jax.Array, part: tuple[int, int, int, int], size: tuple[int, int]) -> jax.Array:
    """Returns the boxes after a part `(top, left, height, width)` was resized to `size`."""
    top, left, height, width = part
    rows, columns = size[0] / height, size[1] / width
    factors = jax.numpy.array((columns, rows, columns, rows), boxes.dtype)
    starts = jax.numpy.array((left, top, left, top), boxes.dtype)
    line = (1,) * (boxes.ndim - 1) + (4,)
    return (boxes - starts.reshape(line)) * factors.reshape(line)
