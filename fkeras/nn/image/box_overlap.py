"""Overlaps of bounding boxes, and boxes encoded as differences from anchors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.image.boxes import convert_format
from fkeras.nn.image.layout import one_of
from fkeras.nn.numerics.array_types import Numbers

_EPSILON = 1e-7
_ENCODINGS = ("center_xywh", "center_yxhw")


def _size(image_shape: Sequence[int] | None) -> tuple[Any, Any]:
    return (None, None) if image_shape is None else (image_shape[0], image_shape[1])


def compute_iou(
    boxes1: Numbers,
    boxes2: Numbers,
    bounding_box_format: str,
    use_masking: bool = False,
    mask_val: float = -1,
    image_shape: Sequence[int] | None = None,
) -> jax.Array:
    """Computes the intersection over union of all pairs of boxes.

    Args:
        boxes1: array of shape (b, m, 4) or (m, 4).
        boxes2: array of shape (b, n, 4) or (n, 4).
        use_masking: whether pairs with a padding box, which has only negative numbers, give
            `mask_val`.
        image_shape: (h, w, c), needed for relative formats.

    Returns:
        An array of shape (b, m, n), or (m, n) if neither argument has a batch axis.

    Raises:
        ValueError: for boxes of another rank, and for relative formats without `image_shape`.

    Example:
        >>> import jax.numpy as jnp
        >>> a, b = jnp.array([[0.0, 0.0, 2.0, 2.0]]), jnp.array([[1.0, 0.0, 3.0, 2.0]])
        >>> compute_iou(a, b, "xyxy").round(3)
        Array([[0.333]], dtype=float32)
    """
    height, width = _size(image_shape)
    pair = [convert_format(b, bounding_box_format, "xyxy", height, width) for b in (boxes1, boxes2)]
    if any(b.ndim not in (2, 3) for b in pair):
        raise ValueError(
            f"compute_iou: expected boxes of shape (n, 4) or (b, n, 4), received {pair[0].shape} "
            f"and {pair[1].shape}. Give every image the same number of boxes."
        )
    rank = max(b.ndim for b in pair)
    # boxes without a batch axis are compared with each image of the batch
    first, second = (b if b.ndim == rank else b[None] for b in pair)
    ax1, ay1, ax2, ay2 = (first[..., :, None, i] for i in range(4))
    bx1, by1, bx2, by2 = (second[..., None, :, i] for i in range(4))
    overlap_width = jnp.maximum(jnp.minimum(ax2, bx2) - jnp.maximum(ax1, bx1), 0)
    overlap_height = jnp.maximum(jnp.minimum(ay2, by2) - jnp.maximum(ay1, by1), 0)
    intersection = overlap_width * overlap_height
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - intersection
    result = intersection / (union + _EPSILON)
    if not use_masking:
        return result
    # all coordinates below 0: a padding box
    is_padding = (first.max(-1) < 0)[..., :, None] | (second.max(-1) < 0)[..., None, :]
    return jnp.where(is_padding, jnp.asarray(mask_val).astype(result.dtype), result)


def compute_ciou(
    boxes1: Numbers,
    boxes2: Numbers,
    bounding_box_format: str,
    image_shape: Sequence[int] | None = None,
) -> jax.Array:
    """Computes the complete IoU: overlap minus penalties for distance and aspect ratio.

    Args:
        boxes1: array of shape (..., 4).
        image_shape: (h, w, c), needed for relative formats (which Keras rejects).

    Returns:
        An array of shape (...), 1 for equal boxes.

    Raises:
        ValueError: for relative formats without `image_shape`.

    Example:
        >>> import jax.numpy as jnp
        >>> box = jnp.array([[0.0, 0.0, 2.0, 4.0]])
        >>> compute_ciou(box, box, "xyxy").round(3)
        Array([1.], dtype=float32)

    References:
        Zheng et al., 2020, Distance-IoU loss, https://arxiv.org/abs/1911.08287
    """
    height, width = _size(image_shape)
    pair = [convert_format(b, bounding_box_format, "xyxy", height, width) for b in (boxes1, boxes2)]
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = ([b[..., i] for i in range(4)] for b in pair)
    widths = ax2 - ax1, bx2 - bx1
    # the terms and their epsilons are Keras's, so that losses agree
    heights = ay2 - ay1 + _EPSILON, by2 - by1 + _EPSILON
    intersection = jnp.maximum(jnp.minimum(ax2, bx2) - jnp.maximum(ax1, bx1), 0) * jnp.maximum(
        jnp.minimum(ay2, by2) - jnp.maximum(ay1, by1), 0
    )
    union = widths[0] * heights[0] + widths[1] * heights[1] - intersection + _EPSILON
    overlap = intersection / (union + _EPSILON)
    diagonal = (
        jnp.square(jnp.maximum(ax2, bx2) - jnp.minimum(ax1, bx1))
        + jnp.square(jnp.maximum(ay2, by2) - jnp.minimum(ay1, by1))
        + _EPSILON
    )
    center_distance = jnp.square((ax1 + ax2 - bx1 - bx2) / 2) + jnp.square(
        (ay1 + ay2 - by1 - by2) / 2
    )
    angles = [jnp.arctan(w / h) for w, h in zip(widths, heights, strict=True)]
    # v and alpha of the paper: the difference of the aspect ratios, and its weight
    shape = 4 / math.pi**2 * jnp.square(angles[1] - angles[0])
    weight = shape / (shape - overlap + 1 + _EPSILON)
    return overlap - (center_distance / diagonal + shape * weight)


def encode_box_to_deltas(
    anchors: Any,
    boxes: Any,
    anchor_format: str,
    box_format: str,
    encoding_format: str = "center_yxhw",
    variance: Sequence[float] | None = None,
    image_shape: Sequence[int] | None = None,
) -> jax.Array:
    """Encodes boxes relative to anchors: offsets of centers in anchor sizes, and log size ratios.

    Args:
        anchors: array of shape (n, 4).
        boxes: array of shape (b, n, 4) or (n, 4).
        encoding_format: "center_yxhw" or "center_xywh", the order of the result.
        variance: four numbers that divide the result; None for ones.
        image_shape: (h, w, c), needed for relative formats.

    Returns:
        An array like `boxes`.

    Raises:
        ValueError: for another encoding, and if variance does not have four numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> anchor, box = jnp.array([[0.0, 0.0, 4.0, 4.0]]), jnp.array([[1.0, 0.0, 5.0, 4.0]])
        >>> encode_box_to_deltas(anchor, box, "xyxy", "xyxy", "center_xywh")
        Array([[0.25, 0.  , 0.  , 0.  ]], dtype=float32)
    """
    one_of("encoding_format", encoding_format, *_ENCODINGS)
    height, width = _size(image_shape)
    anchors = convert_format(anchors, anchor_format, encoding_format, height, width)
    boxes = convert_format(boxes, box_format, encoding_format, height, width)
    anchors = jnp.reshape(anchors, (1,) * (boxes.ndim - anchors.ndim) + anchors.shape)
    # padding has anchors of size 0; 0 / 0 would spread NaN into the loss
    sizes = jnp.maximum(anchors[..., 2:], _EPSILON)
    offsets = (boxes[..., :2] - anchors[..., :2]) / sizes
    # logarithms, so that equal factors of size give equal deltas
    log_ratios = jnp.log(jnp.maximum(boxes[..., 2:], _EPSILON) / sizes)
    deltas = jnp.concatenate((offsets, log_ratios), axis=-1)
    return deltas if variance is None else deltas / _variance(variance, deltas)


def decode_deltas_to_boxes(
    anchors: Any,
    boxes_delta: Any,
    anchor_format: str,
    box_format: str,
    encoded_format: str = "center_yxhw",
    variance: Sequence[float] | None = None,
    image_shape: Sequence[int] | None = None,
) -> Any:
    """Decodes boxes from their differences from anchors; inverts `encode_box_to_deltas`.

    Args:
        anchors: array of shape (n, 4), or a dictionary of these arrays, one for each level.
        boxes_delta: array of shape (b, n, 4) or (n, 4), or a dictionary of these arrays.
        encoded_format: "center_yxhw" or "center_xywh", the order of `boxes_delta`.
        variance: the four numbers of the encoding; None for ones.
        image_shape: (h, w, c), needed for relative formats.

    Returns:
        An array like `boxes_delta`, or a dictionary of arrays.

    Raises:
        ValueError: for another encoding, and if variance does not have four numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> anchor, delta = jnp.array([[0.0, 0.0, 4.0, 4.0]]), jnp.array([[0.25, 0.0, 0.0, 0.0]])
        >>> decode_deltas_to_boxes(anchor, delta, "xyxy", "xyxy", "center_xywh")
        Array([[1., 0., 5., 4.]], dtype=float32)
    """
    if isinstance(anchors, dict) and isinstance(boxes_delta, dict):
        formats = (anchor_format, box_format, encoded_format, variance, image_shape)
        return {
            level: decode_deltas_to_boxes(anchor, boxes_delta[level], *formats)
            for level, anchor in anchors.items()
        }
    one_of("encoded_format", encoded_format, *_ENCODINGS)
    height, width = _size(image_shape)
    anchors = convert_format(anchors, anchor_format, encoded_format, height, width)
    deltas = jnp.asarray(boxes_delta)
    if variance is not None:
        deltas = deltas * _variance(variance, deltas)
    anchors = jnp.reshape(anchors, (1,) * (deltas.ndim - anchors.ndim) + anchors.shape)
    middles = deltas[..., :2] * anchors[..., 2:] + anchors[..., :2]
    boxes = jnp.concatenate((middles, jnp.exp(deltas[..., 2:]) * anchors[..., 2:]), axis=-1)
    return convert_format(boxes, encoded_format, box_format, height, width)


def _variance(variance: Sequence[float], deltas: jax.Array) -> jax.Array:
    factors = jnp.asarray(variance).astype(deltas.dtype)
    if factors.shape != (4,):
        raise ValueError(
            f"variance: expected four numbers, received the shape {factors.shape}. Give one for "
            "each coordinate of a box, for example (0.1, 0.1, 0.2, 0.2)."
        )
    return jnp.reshape(factors, (1,) * (deltas.ndim - 1) + (4,))
