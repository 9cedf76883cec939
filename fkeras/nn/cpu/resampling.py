"""Enlarged images: bilinear interpolation on CPUs as weighted sums of neighbours, repeated cells on TPUs."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fkeras.nn.cpu import limits
from fkeras.nn.cpu.forms import Form, Spec
from fkeras.nn.numerics.axes import align, full_rank
from fkeras.nn.numerics.dtypes import wide_dtype

# the numbers of cells of shape (n, size), and their weights
Cells = tuple[np.ndarray, np.ndarray]


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
        return self._resampled(x, [_sources(size, n) for size, n in self._axes(x)])

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        return self._resampled(operands[0], [_targets(size, n) for size, n in self._axes(spec)])

    def _axes(self, x: Any) -> list[tuple[int, int]]:
        """Returns size and factor of each axis of an image."""
        factors = full_rank(self.times, self.data_format, 1)
        return [*zip(x.shape, factors, strict=True)][1:]

    def _resampled(self, x: jax.Array, cells: Sequence[Cells]) -> jax.Array:
        def resample(image: jax.Array) -> jax.Array:
            image = image.astype(wide_dtype(x.dtype))
            for axis, (places, weights) in enumerate(cells):
                if len(places) > 1:
                    image = _sum_of_cells(image, axis, places, weights)
            return image.astype(x.dtype)

        # XLA would fuse the sums with the operations that use the images, and repeat them for each
        return lax.map(resample, x)


@dataclasses.dataclass(frozen=True)
class RepeatCells(Form):
    """Repeats each cell of x along each axis.

    TPUs take the maximum over a window that contains one cell of an array with gaps, and sum the gradient
    over windows: an axis of `times` cells would be an axis of its own in memory, which takes 2 to 18 times
    the cycles.

    Args:
        times: the number of repetitions along each axis of x.
    """

    linear: ClassVar[tuple[int, ...]] = (0,)
    rows: ClassVar[tuple[int, ...]] = (0,)

    times: tuple[int, ...]

    def suits(self, x: Any) -> bool:
        is_float = jnp.issubdtype(x.dtype, jnp.floating)
        return is_float and all(isinstance(size, int) and size > 0 for size in x.shape)

    def default(self, x: jax.Array) -> jax.Array:
        # broadcasting new axes and merging them copies once; `jnp.repeat` copies once per axis
        cells = jnp.expand_dims(x, range(1, 2 * x.ndim, 2))
        pairs = list(zip(x.shape, self.times, strict=True))
        wide = jnp.broadcast_to(cells, [size for pair in pairs for size in pair])
        return jnp.reshape(wide, [size * n for size, n in pairs])

    def fast(self, x: jax.Array) -> jax.Array:
        return self.default(x)

    def tpu(self, x: jax.Array) -> jax.Array:
        return lax.reduce_window(
            x,
            np.array(-np.inf, x.dtype),
            lax.max,
            self.times,
            (1,) * x.ndim,
            [(n - 1, n - 1) for n in self.times],
            base_dilation=self.times,
        )

    def tpu_gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        y = operands[0].astype(wide_dtype(spec.dtype))
        sums = lax.reduce_window(y, np.array(0, y.dtype), lax.add, self.times, self.times, "VALID")
        return sums.astype(spec.dtype)


def _sum_of_cells(x: jax.Array, axis: int, cells: np.ndarray, weights: np.ndarray) -> jax.Array:
    """Computes `sum(x[cells[n]] * weights[n] for n)` along an axis.

    Args:
        x: an image, or another array.
        cells: numbers of cells of shape (n, size), for a new axis of this size.
    """
    terms = [
        jnp.take(x, cell, axis, mode="clip") * align(jnp.asarray(weight, x.dtype), x.ndim, axis)
        for cell, weight in zip(cells, weights, strict=True)
    ]
    return functools.reduce(operator.add, terms)


def _sources(size: int, factor: int) -> Cells:
    """Returns the old cells of each new cell: two, or the cell itself for the factor 1."""
    if factor == 1:
        return np.arange(size)[None], np.ones((1, size))
    place = _places(np.arange(size * factor), size, factor)
    below = np.floor(place)
    # on the centre of an old cell, both are this cell: infinity times 0 would be NaN
    cells = np.stack([below, np.ceil(place)]).astype(int)
    return cells, np.stack([1 - place + below, place - below])


def _targets(size: int, factor: int) -> Cells:
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
