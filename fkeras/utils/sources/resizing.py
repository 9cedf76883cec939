"""Resizing of an image by NumPy: `fkeras.nn.image.resize` would compile for each size of a file."""

from __future__ import annotations

import numpy as np

from fkeras.nn.image.resizing import window

METHODS = ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5")
# number of pixels on each side that contribute to a new pixel
_REACH = (("bilinear", 1), ("bicubic", 2), ("lanczos3", 3), ("lanczos5", 5))


def resized(
    image: np.ndarray, size: tuple[int, int], method: str, crop: bool = False, pad: bool = False
) -> np.ndarray:
    """Resizes one image, without averaging over the pixels of larger images, as Keras does.

    Args:
        image: array of shape (h, w, c).
        size: the new (height, width).
        method: one of `METHODS`.
        crop: whether to keep the aspect ratio and cut off borders.
        pad: whether to keep the aspect ratio and add black borders.

    Returns:
        An array of the new size, float32.

    Example:
        >>> resized(np.asarray([[[0.0], [4.0]]]), (1, 4), "bilinear").ravel()
        array([0., 1., 3., 4.], dtype=float32)
    """
    image = image.astype("float32")
    height, width = image.shape[:2]
    top, left, rows, columns = window(height, width, size, crop, pad)
    if crop:
        image = image[top : top + rows, left : left + columns]
    elif pad:
        image = np.pad(
            image, ((-top, rows - height + top), (-left, columns - width + left), (0, 0))
        )
    image = _along(image, size[0], method)
    return _along(image.swapaxes(0, 1), size[1], method).swapaxes(0, 1)


def _along(image: np.ndarray, size: int, method: str) -> np.ndarray:
    """Resizes axis 0."""
    old = image.shape[0]
    if old == size:
        return image
    ratio = np.float32(old / size)
    centers = (np.arange(size, dtype="float32") + np.float32(0.5)) * ratio
    if method == "nearest":
        return image[np.floor(centers).astype(int)]
    centers = centers - np.float32(0.5)
    reach = dict(_REACH)[method]
    first = np.floor(centers).astype(int) - reach + 1
    places = first[:, None] + np.arange(2 * reach)
    weights = _kernel(np.abs(centers[:, None] - places.astype("float32")), method)
    # pixels outside of the image have no weight; the others keep a sum of 1
    weights = np.where((places >= 0) & (places < old), weights, np.float32(0))
    weights = weights / weights.sum(axis=1, keepdims=True)
    places = places.clip(0, old - 1)
    shape = (size, *[1] * (image.ndim - 1))
    result = np.zeros((size, *image.shape[1:]), "float32")
    for tap in range(2 * reach):
        result += weights[:, tap].reshape(shape) * image[places[:, tap]]
    return result


def _kernel(x: np.ndarray, method: str) -> np.ndarray:
    """Returns the weight of a pixel at the distance `x`."""
    if method == "bilinear":
        return np.maximum(0, 1 - x)
    if method == "bicubic":  # the cubic of Keys with a = -0.5
        near = ((1.5 * x - 2.5) * x) * x + 1
        far = ((-0.5 * x + 2.5) * x - 4) * x + 2
        return np.where(x < 1, near, np.where(x < 2, far, 0)).astype("float32")
    radius = int(method[-1])
    return np.where(x <= radius, np.sinc(x) * np.sinc(x / radius), 0).astype("float32")
