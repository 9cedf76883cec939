"""Bounding boxes: formats, clipping, cropping, padding, and transforms along with the image.

A box is four numbers: "xyxy" is (left, top, right, bottom) in pixels, "yxyx" is (top, left, bottom,
right), "xywh" a corner and the size, "center_xywh" and "center_yxhw" the center and the size.
The prefix "rel_" means fractions of the image's size instead of pixels.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.layout import one_of

FORMATS = (
    "xyxy",
    "yxyx",
    "xywh",
    "center_xywh",
    "center_yxhw",
    "rel_xyxy",
    "rel_yxyx",
    "rel_xywh",
    "rel_center_xywh",
)


def convert_format(
    boxes: Any,
    source: str,
    target: str,
    height: Any = None,
    width: Any = None,
    dtype: str = "float32",
) -> Any:
    """Converts boxes to another format.

    Args:
        boxes: array of shape (..., 4), or a dictionary with such an array as "boxes".
        source: the format of `boxes`.
        height: height of the images; needed if one of the formats is relative.
        width: width of the images; needed if one of the formats is relative.

    Returns:
        An array of shape (..., 4), or the dictionary with the converted "boxes".

    Raises:
        ValueError: for an unknown format, boxes without four numbers, and a relative format
            without the size of the images.

    Example:
        >>> import jax.numpy as jnp
        >>> convert_format(jnp.array([[10, 20, 30, 50]]), "xyxy", "center_xywh")
        Array([[20., 35., 20., 30.]], dtype=float32)
    """
    if isinstance(boxes, dict):
        return {
            **boxes,
            "boxes": convert_format(boxes["boxes"], source, target, height, width, dtype),
        }
    source = one_of("source", str(source).lower(), *FORMATS)
    target = one_of("target", str(target).lower(), *FORMATS)
    boxes = jnp.asarray(boxes).astype(dtype)
    if boxes.shape[-1] != 4:
        raise ValueError(
            f"boxes: expected four numbers on the last axis, received the shape {boxes.shape}. A "
            f"box in the format {source!r} has four numbers."
        )
    if source == target:
        return boxes
    relative = source.startswith("rel_"), target.startswith("rel_")
    if any(relative) and (height is None or width is None):
        raise ValueError(
            f"convert_format from {source!r} to {target!r}: expected the size of the images, "
            f"received height={height}, width={width}. Give both: relative coordinates are "
            "fractions of the size."
        )
    corners = _to_corners(boxes, source.removeprefix("rel_"))
    if relative[0] != relative[1]:
        h, w = (jnp.asarray(size).astype(dtype) for size in (height, width))
        # one size for all images, or one size per image, which must align with the batch
        h, w = (s if s.ndim else jnp.reshape(s, (1,) * boxes.ndim) for s in (h, w))
        x1, y1, x2, y2 = _split(corners)
        parts = (
            (x1 * w, y1 * h, x2 * w, y2 * h) if relative[0] else (x1 / w, y1 / h, x2 / w, y2 / h)
        )
        corners = jnp.concatenate(parts, axis=-1)
    return _from_corners(corners, target.removeprefix("rel_"))


def _split(boxes: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(boxes[..., i : i + 1] for i in range(4))


def _to_corners(boxes: jax.Array, source: str) -> jax.Array:
    a, b, c, d = _split(boxes)
    if source == "xyxy":
        return boxes
    if source == "yxyx":
        parts = (b, a, d, c)
    elif source == "xywh":
        parts = (a, b, a + c, b + d)
    else:
        x, y, w, h = (a, b, c, d) if source == "center_xywh" else (b, a, d, c)
        parts = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
    return jnp.concatenate(parts, axis=-1)


def _from_corners(boxes: jax.Array, target: str) -> jax.Array:
    x1, y1, x2, y2 = _split(boxes)
    w, h = x2 - x1, y2 - y1
    if target == "xyxy":
        return boxes
    if target == "yxyx":
        parts = (y1, x1, y2, x2)
    elif target == "xywh":
        parts = (x1, y1, w, h)
    elif target == "center_xywh":
        parts = (x1 + w / 2, y1 + h / 2, w, h)
    else:
        parts = (y1 + h / 2, x1 + w / 2, h, w)
    return jnp.concatenate(parts, axis=-1)


def clip_to_image_size(
    bounding_boxes: dict[str, Any],
    height: Any = None,
    width: Any = None,
    bounding_box_format: str = "xyxy",
) -> dict[str, Any]:
    """Clips boxes at the borders of the image, and labels boxes without any area left -1.

    Args:
        bounding_boxes: {"boxes": (..., n, 4), "labels": (..., n) or (..., n, k)}; the labels may
            be missing.
        height: the images' height; not needed for "rel_xyxy".
        width: the images' width; not needed for "rel_xyxy".
        bounding_box_format: "xyxy" or "rel_xyxy".

    Returns:
        The dictionary with the clipped boxes and the new labels.

    Raises:
        ValueError: for another format, and for "xyxy" without the size of the images.

    Example:
        >>> import jax.numpy as jnp
        >>> boxes = {"boxes": jnp.array([[-5.0, 1.0, 3.0, 9.0]]), "labels": jnp.array([7])}
        >>> clip_to_image_size(boxes, height=4, width=4)["boxes"]
        Array([[0., 1., 3., 4.]], dtype=float32)
    """
    one_of("bounding_box_format", bounding_box_format, "xyxy", "rel_xyxy")
    boxes = jnp.asarray(bounding_boxes["boxes"])
    if bounding_box_format == "rel_xyxy":
        # relative coordinates end at 1
        height = width = 1
    elif height is None or width is None:
        raise ValueError(
            "clip_to_image_size: expected the size of the images for 'xyxy', received "
            f"height={height}, width={width}. Give both, or boxes in relative coordinates "
            "('rel_xyxy')."
        )
    clipped = crop(boxes, 0, 0, height, width)
    labels = bounding_boxes.get("labels")
    if labels is None:
        return {**bounding_boxes, "boxes": clipped}
    labels = jnp.asarray(labels)
    x1, y1, x2, y2 = (part[..., 0] for part in _split(clipped))
    # boxes without an area lie outside; label -1 marks padding
    left = (x2 - x1) * (y2 - y1) > 0
    left = jnp.reshape(left, left.shape + (1,) * (labels.ndim - left.ndim))
    return {
        **bounding_boxes,
        "boxes": clipped,
        "labels": jnp.where(left, labels, jnp.asarray(-1, labels.dtype)),
    }


def crop(boxes: Any, top: Any, left: Any, height: Any, width: Any) -> jax.Array:
    """Returns boxes in the coordinates of a crop of the image, clipped at its borders.

    Args:
        boxes: array of shape (..., 4), in "xyxy".

    Returns:
        An array of shape (..., 4).
    """
    boxes = jnp.asarray(boxes)
    top, left, height, width = (
        jnp.asarray(v).astype(boxes.dtype) for v in (top, left, height, width)
    )
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    parts = (
        jnp.clip(x1 - left, 0, width),
        jnp.clip(y1 - top, 0, height),
        jnp.clip(x2 - left, 0, width),
        jnp.clip(y2 - top, 0, height),
    )
    return jnp.stack(parts, axis=-1)


def pad(boxes: Any, top: Any, left: Any) -> jax.Array:
    """Returns boxes in the coordinates of an image that was padded at its top and left.

    Args:
        boxes: array of shape (..., 4), in "xyxy".

    Returns:
        An array of shape (..., 4).

    Example:
        >>> import jax.numpy as jnp
        >>> pad(jnp.array([[1.0, 2.0, 3.0, 4.0]]), top=10, left=20)
        Array([[21., 12., 23., 14.]], dtype=float32)
    """
    boxes = jnp.asarray(boxes)
    top, left = (jnp.asarray(v).astype(boxes.dtype) for v in (top, left))
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    return jnp.stack((x1 + left, y1 + top, x2 + left, y2 + top), axis=-1)


def follow(boxes: jax.Array, matrix: jax.Array) -> jax.Array:
    """Returns the boxes that enclose the transformed corners of boxes.

    Args:
        boxes: array of shape (b, n, 4), in "xyxy".
        matrix: array of shape (b, 3, 3) that maps a point (x, y, 1) of the new image to the
            corresponding point of the old image, as in the transforms of images.

    Returns:
        An array of shape (b, n, 4), not clipped at the borders.
    """
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    x, y = jnp.stack((x1, x2, x1, x2), axis=-1), jnp.stack((y1, y1, y2, y2), axis=-1)
    # `matrix` maps output points to input points, and boxes move in the other direction; the
    # adjugate is the inverse up to a factor, which cancels in x / k and y / k
    rows = _adjugate(matrix.astype(boxes.dtype))
    x, y, k = (r[0] * x + r[1] * y + r[2] for r in rows)
    # points at infinity must not become 0 / 0
    k = jnp.where(k == 0, jnp.finfo(k.dtype).eps, k)
    x, y = x / k, y / k
    corners = (x.min(-1), y.min(-1), x.max(-1), y.max(-1))
    return jnp.stack(corners, axis=-1)


def _adjugate(matrix: jax.Array) -> tuple[tuple[jax.Array, ...], ...]:
    """Returns the inverses up to a factor, which homogeneous coordinates ignore; (b, 1, 1) each."""
    (a, b, c), (d, e, f), (g, h, i) = (
        [matrix[:, row, column][:, None, None] for column in range(3)] for row in range(3)
    )
    return (
        (e * i - f * h, c * h - b * i, b * f - c * e),
        (f * g - d * i, a * i - c * g, c * d - a * f),
        (d * h - e * g, b * g - a * h, a * e - b * d),
    )
