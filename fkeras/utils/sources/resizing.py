"""Resizing of images by NumPy: `fkeras.nn.image.resize` would compile once for each image size."""

from __future__ import annotations

import numpy as np

from fkeras.nn.image.resizing import window

METHODS = ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5")
# number of source pixels on each side that contribute to a new pixel
_RADIUS = (("bilinear", 1), ("bicubic", 2), ("lanczos3", 3), ("lanczos5", 5))


def resize_image(
    image: np.ndarray, size: tuple[int, int], method: str, crop: bool = False, pad: bool = False
) -> np.ndarray:
    """Resizes one image; as in Keras, shrinking does not average over the skipped pixels.

    Args:
        image: array of shape (h, w, c).
        crop: whether to preserve the aspect ratio by cropping the borders.
        pad: whether to preserve the aspect ratio by adding black borders.

    Returns:
        A float32 array of shape (height, width, c).

    Example:
        >>> resize_image(np.asarray([[[0.0], [4.0]]]), (1, 4), "bilinear").ravel()
        array([0., 1., 3., 4.], dtype=float32)
    """
    image = image.astype("float32")
    height, width = image.shape[:2]
    top, left, rows, columns = window(height, width, size, crop, pad)
    # for `pad`, top and left are negative: the window is larger than the image
    if crop:
        image = image[top : top + rows, left : left + columns]
    elif pad:
        image = np.pad(
            image, ((-top, rows - height + top), (-left, columns - width + left), (0, 0))
        )
    image = _resize_rows(image, size[0], method)
    return _resize_rows(image.swapaxes(0, 1), size[1], method).swapaxes(0, 1)


def _resize_rows(image: np.ndarray, size: int, method: str) -> np.ndarray:
    """Resizes axis 0 by a weighted sum of source rows for each new row."""
    height = image.shape[0]
    if height == size:
        return image
    ratio = np.float32(height / size)
    # centers of the new rows in source rows; a source row's center is at its number plus 0.5
    centers = (np.arange(size, dtype="float32") + np.float32(0.5)) * ratio
    if method == "nearest":
        return image[np.floor(centers).astype(int)]
    centers = centers - np.float32(0.5)
    radius = dict(_RADIUS)[method]
    first = np.floor(centers).astype(int) - radius + 1
    source_rows = first[:, None] + np.arange(2 * radius)
    weights = _pixel_weight(np.abs(centers[:, None] - source_rows.astype("float32")), method)
    # rows outside of the image have the weight 0, and the other weights are scaled to the sum 1
    weights = np.where((source_rows >= 0) & (source_rows < height), weights, np.float32(0))
    weights = weights / weights.sum(axis=1, keepdims=True)
    source_rows = source_rows.clip(0, height - 1)
    shape = (size, *[1] * (image.ndim - 1))
    result = np.zeros((size, *image.shape[1:]), "float32")
    for tap in range(2 * radius):
        result += weights[:, tap].reshape(shape) * image[source_rows[:, tap]]
    return result


def _pixel_weight(x: np.ndarray, method: str) -> np.ndarray:
    """Returns the weight of a pixel at the distance `x`."""
    if method == "bilinear":
        return np.maximum(0, 1 - x)
    if method == "bicubic":  # the cubic of Keys with a = -0.5
        near = ((1.5 * x - 2.5) * x) * x + 1
        far = ((-0.5 * x + 2.5) * x - 4) * x + 2
        return np.where(x < 1, near, np.where(x < 2, far, 0)).astype("float32")
    radius = int(method[-1])
    return np.where(x <= radius, np.sinc(x) * np.sinc(x / radius), 0).astype("float32")
