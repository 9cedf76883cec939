"""Enlarged images on CPUs: bilinear interpolation as weighted sums of neighbours."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.cpu import limits
from fkeras.nn.cpu.forms import Form, Spec
from fkeras.nn.numerics.axes import full_rank
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
            y = _enlarge(y, axis, factor) if factor > 1 else y
        return y.astype(x.dtype)

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        (y,) = operands
        x = y.astype(wide_dtype(spec.dtype))
        for axis, factor in reversed([*enumerate(full_rank(self.times, self.data_format, 1))]):
            x = _reduce(x, axis, factor) if factor > 1 else x
        return x.astype(spec.dtype)


def _enlarge(x: jax.Array, axis: int, factor: int) -> jax.Array:
    """Interpolates along one axis; beyond the edges, the first and the last cell repeat."""
    size = x.shape[axis]
    first, last = (lax.slice_in_dim(x, n, n + 1, axis=axis) for n in (0, size - 1))
    before = lax.concatenate([first, lax.slice_in_dim(x, 0, size - 1, axis=axis)], axis)
    after = lax.concatenate([lax.slice_in_dim(x, 1, size, axis=axis), last], axis)
    phases = [
        x * (1 - abs(place)) + (before if place < 0 else after) * abs(place) if place else x
        for place in _places(factor)
    ]
    shape = (*x.shape[:axis], size * factor, *x.shape[axis + 1 :])
    return jnp.stack(phases, axis + 1).reshape(shape)


def _reduce(y: jax.Array, axis: int, factor: int) -> jax.Array:
    """Computes the transpose of `_enlarge`."""
    size = y.shape[axis] // factor
    split = y.reshape(*y.shape[:axis], size, factor, *y.shape[axis + 1 :])
    x = before = after = jnp.zeros((), y.dtype)
    for number, place in enumerate(_places(factor)):
        phase = lax.index_in_dim(split, number, axis + 1, keepdims=False)
        x = x + phase * (1 - abs(place))
        if place < 0:
            before = before + phase * -place
        elif place > 0:
            after = after + phase * place
    if size == 1:
        return x + before + after

    def part(array: Any, start: int, stop: int) -> jax.Array:
        return lax.slice_in_dim(array, start, stop, axis=axis)

    edge = jnp.zeros_like(part(x, 0, 1))
    first = part(before, 0, 1) + part(before, 1, 2)
    last = part(after, size - 2, size - 1) + part(after, size - 1, size)
    shifted = lax.concatenate([first, part(before, 2, size), edge], axis)
    return x + shifted + lax.concatenate([edge, part(after, 0, size - 2), last], axis)


def _places(factor: int) -> list[float]:
    """Returns the distances of the new cells from the centre of a cell, in cells."""
    return [(number + 0.5) / factor - 0.5 for number in range(factor)]
