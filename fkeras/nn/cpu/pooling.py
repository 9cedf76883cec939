"""Maximum and sum of windows on CPUs: elementwise maxima and sums of slices."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fkeras.nn.cpu import limits
from fkeras.nn.cpu.forms import Form, Spec
from fkeras.nn.cpu.windows import WindowForm, Windows
from fkeras.nn.numerics.axes import full_rank
from fkeras.nn.numerics.dtypes import wide_dtype


@dataclasses.dataclass(frozen=True)
class _Pooling(WindowForm):
    """A form of a window of fixed sizes.

    Args:
        sizes: the size of the window along each axis.
    """

    sizes: tuple[int, ...]

    def window(self, *operands: Any) -> tuple[int, ...]:
        return self.sizes


@dataclasses.dataclass(frozen=True)
class MaxPool(_Pooling):
    """The maximum of each window of x (b, *sizes, c)."""

    rows: ClassVar[tuple[int, ...]] = (0,)

    def suits(self, x: Any) -> bool:
        return math.prod(self.sizes) <= limits.POOLING_CELLS and super().suits(x)

    def default(self, x: jax.Array) -> jax.Array:
        sizes, strides = (full_rank(n, self.data_format, 1) for n in (self.sizes, self.strides))
        return lax.reduce_window(x, _lowest(x.dtype), lax.max, sizes, strides, self.padding.upper())

    def compute(self, windows: Windows, x: jax.Array) -> jax.Array:
        return functools.reduce(lax.max, _cells(windows, x))

    def differentiate(self, *_: Any) -> jax.Array:
        raise NotImplementedError("the maximum is not linear")

    def tangent_form(self, number: int) -> Form:
        return _Tangent(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})


@dataclasses.dataclass(frozen=True)
class _Tangent(_Pooling):
    """The tangent of the maximum: the tangent of the first cell that equals it.

    The operands are the input of the maximum and its tangent.
    """

    linear: ClassVar[tuple[int, ...]] = (1,)
    rows: ClassVar[tuple[int, ...]] = (0, 1)

    def default(self, x: jax.Array, tangent: jax.Array) -> jax.Array:
        pool = MaxPool(**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)})
        return jax.jvp(pool.default, (x,), (tangent,))[1]

    def compute(self, windows: Windows, x: jax.Array, tangent: jax.Array) -> jax.Array:
        winners, padded = _winners(windows, x), windows.pad(tangent)
        counts = windows.counts(x.shape[1:-1])
        first, *rest = (windows.cells(padded, o, counts) for o in windows.offsets)
        for place, cell in enumerate(rest, 1):
            first = jnp.where(winners == place, cell, first)
        return first

    def differentiate(
        self, windows: Windows, number: int, spec: Spec, x: jax.Array, cotangent: jax.Array
    ) -> jax.Array:
        places = {offset: place for place, offset in enumerate(windows.offsets)}

        def term(offset: Any, part: jax.Array, winners: jax.Array) -> jax.Array:
            return jnp.where(winners == places[offset], part, jnp.zeros_like(part))

        return windows.spread(term, spec.shape[1:-1], cotangent, _winners(windows, x))


@dataclasses.dataclass(frozen=True)
class SumPool(_Pooling):
    """The sum of each window of x (b, *sizes, c)."""

    linear: ClassVar[tuple[int, ...]] = (0,)
    rows: ClassVar[tuple[int, ...]] = (0,)

    def suits(self, x: Any) -> bool:
        pairs = zip(self.sizes, self.strides, strict=True)
        overlaps = any(size > stride for size, stride in pairs)
        least, most = limits.OVERLAPPING_SUMS if overlaps else limits.SEPARATE_SUMS
        return least <= math.prod(self.sizes) <= most and super().suits(x)

    def default(self, x: jax.Array) -> jax.Array:
        sizes, strides = (full_rank(n, self.data_format, 1) for n in (self.sizes, self.strides))
        zero = np.array(0, x.dtype)
        return lax.reduce_window(x, zero, lax.add, sizes, strides, self.padding.upper())

    def compute(self, windows: Windows, x: jax.Array) -> jax.Array:
        padded, counts = windows.pad(x.astype(wide_dtype(x.dtype))), windows.counts(x.shape[1:-1])
        cells = (windows.cells(padded, offset, counts) for offset in windows.offsets)
        return functools.reduce(lax.add, cells).astype(x.dtype)

    def differentiate(
        self, windows: Windows, number: int, spec: Spec, cotangent: jax.Array
    ) -> jax.Array:
        wide = cotangent.astype(wide_dtype(spec.dtype))
        return windows.spread(lambda _, part: part, spec.shape[1:-1], wide).astype(spec.dtype)


def _cells(windows: Windows, x: jax.Array) -> list[jax.Array]:
    padded, counts = windows.pad(x, _lowest(x.dtype)), windows.counts(x.shape[1:-1])
    return [windows.cells(padded, offset, counts) for offset in windows.offsets]


def _winners(windows: Windows, x: jax.Array) -> jax.Array:
    """Returns the place in the window of the first cell that equals the maximum."""
    first, *rest = _cells(windows, x)
    winners = jnp.zeros(first.shape, np.int32)
    for place, cell in enumerate(rest, 1):
        # NaN wins against any number, and ties go to the first cell
        stays = (first >= cell) | (first != first)
        first = jnp.where(stays, first, cell)
        winners = jnp.where(stays, winners, place)
    return winners


def _lowest(dtype: Any) -> np.ndarray:
    """Returns the smallest number of a dtype."""
    dtype = np.dtype(dtype)
    # a concrete identity of max: only then does JAX use the reduction that has a gradient
    if jnp.issubdtype(dtype, jnp.floating):
        return np.array(-np.inf, dtype)
    return np.array(False if dtype.kind == "b" else jnp.iinfo(dtype).min, dtype)
