"""Depthwise convolutions on CPUs: sums of shifted products."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.cpu import limits
from fkeras.nn.cpu.defaults import convolution
from fkeras.nn.cpu.forms import Spec
from fkeras.nn.cpu.windows import WindowForm, Windows
from fkeras.nn.numerics.axes import align
from fkeras.nn.numerics.dtypes import wide_dtype


@dataclasses.dataclass(frozen=True)
class Depthwise(WindowForm):
    """Correlates each channel of x (b, *sizes, c) with m filters of the kernel (*window, 1, c * m).

    The m results of a channel are adjacent.
    """

    linear: ClassVar[tuple[int, ...]] = (0, 1)
    rows: ClassVar[tuple[int, ...]] = (0,)

    def window(self, x: Any, kernel: Any) -> tuple[int, ...]:
        return kernel.shape[:-2]

    def suits(self, x: Any, kernel: Any) -> bool:
        cells = math.prod(self.window(x, kernel))
        is_float = jnp.issubdtype(kernel.dtype, jnp.floating)
        return is_float and cells <= limits.DEPTHWISE_CELLS and super().suits(x, kernel)

    def default(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        return convolution(x, kernel, self.strides, self.padding, self.data_format, self.dilation)

    def compute(self, windows: Windows, x: jax.Array, kernel: jax.Array) -> jax.Array:
        dtype = x.dtype
        # sums of half precision would be rounded after each term
        x, kernel = _wide(x, kernel)
        padded, counts = windows.pad(x), windows.counts(x.shape[1:-1])
        outputs = []
        for filters in _split(kernel, x.shape[-1]):
            terms = (
                windows.cells(padded, o, counts) * align(filters[o], x.ndim)
                for o in windows.offsets
            )
            outputs.append(_total(terms))
        return _interleave(outputs).astype(dtype)

    def differentiate(
        self, windows: Windows, number: int, spec: Spec, x: jax.Array, kernel: jax.Array
    ) -> jax.Array:
        dtype = spec.dtype
        if number == 0:
            x, kernel = _wide(x, kernel)
            channels = spec.shape[-1]
            pairs = zip(_split(x, channels), _split(kernel, channels), strict=True)
            parts = [
                windows.spread(
                    # the default value binds the filters of this iteration
                    lambda offset, part, filters=filters: part * align(filters[offset], x.ndim),
                    spec.shape[1:-1],
                    part,
                )
                for part, filters in pairs
            ]
            return _total(parts).astype(dtype)
        x, y = (array.astype(wide_dtype(dtype)) for array in (x, kernel))
        parts = [_kernel_gradient(windows, x, part) for part in _split(y, x.shape[-1])]
        return _interleave(parts).reshape(spec.shape).astype(dtype)


def _kernel_gradient(windows: Windows, x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the gradient of one filter per channel for the gradient `y` of the result."""
    sizes, channels = windows.sizes, y.shape[-1]
    if not y.size:
        return jnp.zeros((*sizes, channels), y.dtype)
    if len(sizes) == 1:
        windows = Windows(
            (1, *sizes), (1, *windows.strides), (1, *windows.dilation), ((0, 0), *windows.pads)
        )
        x, y = x[:, None], y[:, None]
    along, across = windows.split()
    padded, rows, counts = windows.pad(x), y.shape[1], y.shape[2:-1]
    extent = (along.sizes[0] - 1) * along.dilation[0] + 1

    # XLA's reductions over batch and positions are slow for few channels: sum row by row into
    # arrays of the size of one row first, which stay in the cache
    def add(sums: list[jax.Array], step: jax.Array) -> Any:
        image, row = step // rows, step % rows
        start = (image, row * along.strides[0], *(0 for _ in padded.shape[2:]))
        band = lax.dynamic_slice(padded, start, (1, extent, *padded.shape[2:]))[0]
        cells = band[:: along.dilation[0]]
        part = lax.dynamic_slice(y, (image, row, *start[2:]), (1, 1, *y.shape[2:]))[0]
        products = (across.cells(cells, offset, counts) * part for offset in across.offsets)
        return [s + product for s, product in zip(sums, products, strict=True)], None

    zeros = [jnp.zeros((along.sizes[0], *y.shape[2:]), y.dtype)] * len(across.offsets)
    sums, _ = lax.scan(add, zeros, jnp.arange(y.shape[0] * rows))
    axes = range(1, len(counts) + 1)
    return jnp.stack([jnp.sum(s, axes) for s in sums], 1).reshape(*sizes, channels)


def _wide(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns an image array in a dtype for sums, and the kernel (*window, c * m) in this dtype."""
    dtype = wide_dtype(kernel.dtype)
    return x.astype(dtype), jnp.squeeze(kernel, -2).astype(dtype)


def _total(terms: Iterable[jax.Array]) -> jax.Array:
    """Returns the sum, without the zero that `sum` starts with."""
    return functools.reduce(operator.add, terms)


def _interleave(outputs: Sequence[jax.Array]) -> jax.Array:
    """Joins arrays so that the results of each channel are adjacent."""
    if len(outputs) == 1:
        return outputs[0]
    y = jnp.stack(outputs, -1)
    return y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1])


def _split(y: jax.Array, channels: int) -> list[jax.Array]:
    """Inverts `_interleave` for arrays with a number of channels."""
    count = y.shape[-1] // channels
    if count == 1:
        return [y]
    parts = y.reshape(*y.shape[:-1], channels, count)
    return [parts[..., place] for place in range(count)]
