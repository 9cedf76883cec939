"""Cubic interpolation of an axis as a matrix."""

from __future__ import annotations

import numpy as np


def cubic_weights(old: int, new: int, antialias: bool = False) -> np.ndarray:
    """Returns the matrix (new, old) of cubic interpolation of an axis, as PyTorch computes it.

    Without antialiasing, Keys's kernel has the parameter -0.75, and positions outside of the axis
    have the value at its end; with antialiasing the parameter is -0.5, and they are left out.
    """
    scale = old / new
    stretch = max(scale, 1.0) if antialias else 1.0
    centers = (np.arange(new) + 0.5) * scale - 0.5
    reach = int(np.ceil(2 * stretch)) + 1
    # every position within the reach of the kernel, also outside of the axis
    places = np.arange(-reach, old + reach)
    weights = cubic((places - centers[:, None]) / stretch, -0.5 if antialias else -0.75)
    inside = np.clip(places, 0, old - 1)
    if antialias:
        weights = weights * (inside == places)
    matrix = np.zeros((new, old))
    np.add.at(matrix.T, inside, weights.T)
    return matrix / matrix.sum(axis=1, keepdims=True)


def cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Computes Keys's cubic kernel with the parameter `a`, the slope at 1."""
    x = np.abs(x)
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))
