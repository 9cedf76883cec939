"""Enlarged images on CPUs: bilinear interpolation as weighted sums of neighbours."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.nn.cpu import limits
from fkeras.nn.cpu.forms import Form, Spec
from fkeras.nn.numerics.axes import align, full_rank
from fkeras.nn.numerics.dtypes import wide_dtype


@dataclasses.dataclass(frozen=True)
class Enlarge(Form):
    """Enlarges images x (b, *sizes, c) by interpolation; only "bilinear" has a fast computation.

    With `fast`, NaN and infinity reach the new cells next to their cell. With `default`, a product
    of matrices for each axis, NaN and infinity reach whole rows and columns.

    Args:
        interpolation: a method of `jax.image.resize`.
        times: the factor along each axis between batch and channels.
        data_format: "channels_last"; with "channels_first", the arrays are (b, c, *sizes).
    """

    linear: ClassVar[tuple[int, ...]] = (0,)
    rows: ClassVar[tuple[int, ...]] = (0,)

    interpolation: str
    times: tuple[int, ...]
    data_format: str

    def suits(self, x: Any) -> bool:
        if self.interpolation != "bilinear" or max(self.times) > limits.ENLARGING:
            return False
        return all(isinstance(size, int) and size > 0 for size in x.shape[1:])

    def default(self, x: jax.Array) -> jax.Array:
        factors = full_rank(self.times, self.data_format, 1)
        shape = tuple(size * n for size, n in zip(x.shape, factors, strict=True))
        # Keras enlarges without antialiasing
        return jax.image.resize(x, shape, self.interpolation, antialias=False)

    def fast(self, x: jax.Array) -> jax.Array:
        y = x.astype(wide_dtype(x.dtype))
        for axis, factor in enumerate(full_rank(self.times, self.data_format, 1)):
            y = _sum_of_cells(y, axis, *_sources(y.shape[axis], factor)) if factor > 1 else y
        return y.astype(x.dtype)

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        (y,) = operands
        x = y.astype(wide_dtype(spec.dtype))
        for axis, factor in reversed([*enumerate(full_rank(self.times, self.data_format, 1))]):
            x = _sum_of_cells(x, axis, *_targets(spec.shape[axis], factor)) if factor > 1 else x
        return x.astype(spec.dtype)


def _sum_of_cells(x: jax.Array, axis: int, cells: np.ndarray, weights: np.ndarray) -> jax.Array:
    """Computes `sum(x[cells[n]] * weights[n] for n)` along an axis.

    XLA reads the cells in one fused loop over both axes of an image. Slices that are padded or
    concatenated take 2 to 5 times as long.

    Args:
        cells: numbers of cells of shape (n, size), for a new axis of this size.
        weights: their factors, of the same shape.
    """
    terms = [
        jnp.take(x, cell, axis, mode="clip") * align(jnp.asarray(weight, x.dtype), x.ndim, axis)
        for cell, weight in zip(cells, weights, strict=True)
    ]
    return functools.reduce(operator.add, terms)


def _sources(size: int, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two old cells of each new cell, and their weights."""
    place = _places(np.arange(size * factor), size, factor)
    below = np.floor(place)
    # on the centre of an old cell, both are this cell: infinity times 0 would be NaN
    return np.stack([below, np.ceil(place)]).astype(int), np.stack(
        [1 - place + below, place - below]
    )


def _targets(size: int, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the new cells to which each old cell contributes, and the weights.

    Cells beyond the edges stand for the first and the last cell, whose weights they share.
    """
    cells = np.arange(size) * factor - factor // 2 + np.arange(2 * factor - factor % 2)[:, None]
    cells = np.clip(cells, 0, size * factor - 1)
    weights = 1 - abs(_places(cells, size, factor) - np.arange(size))
    return cells, weights / (cells[:, None] == cells).sum(0)


def _places(cells: np.ndarray, size: int, factor: int) -> np.ndarray:
    """Returns the places of new cells in units of old cells, between the first and the last."""
    return np.clip((cells + 0.5) / factor - 0.5, 0, size - 1)
