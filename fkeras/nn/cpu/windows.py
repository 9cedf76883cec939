"""Sliding windows over arrays: padding, the cells at one offset of the window, sums into cells."""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.cpu.forms import Form, Spec
from fkeras.nn.numerics.axes import spatial_axes

Offset = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Windows:
    """Positions of a window that slides over the axes between batch and channels.

    Args:
        sizes: the size of the window along each axis.
        strides: the step of the window along each axis.
        dilation: the distance between the cells of the window along each axis.
        pads: the number of cells to add before and after each axis.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls,
        shape: Sequence[Any],
        sizes: Sequence[int],
        strides: Sequence[int],
        padding: str,
        dilation: Sequence[int] | None = None,
    ) -> Windows | None:
        """Returns the windows over axes; None if a size is unknown or no window fits.

        Args:
            padding: "valid", "same" or "causal".
            dilation: the distance between the cells of the window along each axis; None for 1.
        """
        dilation = (1,) * len(shape) if dilation is None else tuple(dilation)
        if len(sizes) != len(shape) or not all(isinstance(size, int) for size in shape):
            return None
        extents = [(size - 1) * rate + 1 for size, rate in zip(sizes, dilation, strict=True)]
        if padding == "causal":
            pads = [(extent - 1, 0) for extent in extents]
        else:
            pads = lax.padtype_to_pads(shape, extents, strides, padding.upper())
        pairs = tuple((int(low), int(high)) for low, high in pads)
        windows = cls(tuple(map(int, sizes)), tuple(map(int, strides)), dilation, pairs)
        return windows if math.prod(shape) and min(windows.counts(shape)) > 0 else None

    @property
    def offsets(self) -> list[Offset]:
        """The cells of the window, row by row."""
        return list(itertools.product(*map(range, self.sizes)))

    def counts(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the number of windows along each axis of an array with the sizes `shape`."""
        return tuple(
            (size + low + high - (length - 1) * rate - 1) // stride + 1
            for size, (low, high), length, rate, stride in zip(
                shape, self.pads, self.sizes, self.dilation, self.strides, strict=True
            )
        )

    def split(self) -> tuple[Windows, Windows]:
        """Returns the windows along the first axis, and those along the other axes."""
        first = Windows(self.sizes[:1], self.strides[:1], self.dilation[:1], self.pads[:1])
        return first, Windows(self.sizes[1:], self.strides[1:], self.dilation[1:], self.pads[1:])

    def pad(self, x: jax.Array, number: Any = 0) -> jax.Array:
        """Adds cells around an array of shape (b, *sizes, c)."""
        if not any(map(any, self.pads)):
            return x
        pads = [(low, high, 0) for low, high in self.pads]
        return lax.pad(x, jnp.asarray(number, x.dtype), ((0, 0, 0), *pads, (0, 0, 0)))

    def cells(self, padded: jax.Array, offset: Offset, counts: Sequence[int]) -> jax.Array:
        """Returns the cell of each window at an offset in the window.

        Args:
            padded: array of shape (..., *padded_sizes, c).
        """
        first = padded.ndim - len(counts) - 1
        starts = [place * rate for place, rate in zip(offset, self.dilation, strict=True)]
        limits = [
            start + (count - 1) * stride + 1
            for start, count, stride in zip(starts, counts, self.strides, strict=True)
        ]
        leading, channels = padded.shape[:first], padded.shape[-1]
        return lax.slice(
            padded,
            (*(0,) * first, *starts, 0),
            (*leading, *limits, channels),
            (*(1,) * first, *self.strides, 1),
        )

    def spread(
        self, term: Callable[..., jax.Array], shape: Sequence[int], *arrays: jax.Array
    ) -> jax.Array:
        """Adds one term for each window and offset to the cell that the window reads there.

        This is the transpose of `pad` and `cells`. Cells with the same remainder by the strides
        form one array, which is a sum of slices; the arrays of all remainders are interleaved.

        Args:
            term: function of an offset and slices of `arrays` that returns the terms.
            *arrays: arrays of shape (b, *counts, c) with an entry for each window; the terms of
                entries 0 must be 0.

        Returns:
            An array of shape (b, *shape, f), with the channels of the terms.
        """
        counts, rank = arrays[0].shape[1:-1], len(shape)
        lengths = [
            -(-(size + low + high) // stride)
            for size, (low, high), stride in zip(shape, self.pads, self.strides, strict=True)
        ]
        shifts = [
            [place * rate // stride for place in range(size)]
            for size, rate, stride in zip(self.sizes, self.dilation, self.strides, strict=True)
        ]
        edges = [(s[-1], n - count, 0) for s, n, count in zip(shifts, lengths, counts, strict=True)]
        edges = ((0, 0, 0), *edges, (0, 0, 0))
        padded = [lax.pad(x, jnp.zeros((), x.dtype), edges) for x in arrays]
        phases: dict[Offset, jax.Array] = {}
        for offset in self.offsets:
            places = zip(offset, self.dilation, self.strides, strict=True)
            phase = tuple(place * rate % stride for place, rate, stride in places)
            starts = [shifts[axis][-1] - shifts[axis][offset[axis]] for axis in range(rank)]
            inner = [slice(start, start + n) for start, n in zip(starts, lengths, strict=True)]
            part = term(offset, *(x[:, *inner] for x in padded))
            phases[phase] = phases[phase] + part if phase in phases else part
        full = _interleaved(phases, self.strides)
        inner = [slice(low, low + size) for size, (low, _) in zip(shape, self.pads, strict=True)]
        return full[:, *inner]


def _interleaved(phases: Mapping[Offset, jax.Array], strides: Sequence[int]) -> jax.Array:
    """Returns the array whose cells at `phase + i * strides` are those of `phases[phase]`."""
    zeros = jnp.zeros_like(next(iter(phases.values())))

    def join(prefix: Offset) -> jax.Array:
        axis = len(prefix)
        if axis == len(strides):
            return phases.get(prefix, zeros)
        parts = [join((*prefix, remainder)) for remainder in range(strides[axis])]
        if len(parts) == 1:
            return parts[0]
        stacked = jnp.stack(parts, axis + 2)
        shape = stacked.shape
        size = shape[axis + 1] * shape[axis + 2]
        return stacked.reshape(*shape[: axis + 1], size, *shape[axis + 3 :])

    return join(())


@dataclasses.dataclass(frozen=True)
class WindowForm(Form):
    """A form of windows; the operands of `rows` and the result are arrays (b, *sizes, c).

    Args:
        strides: the step of the window along each axis.
        padding: "valid", "same" or "causal".
        data_format: "channels_last"; with "channels_first", the arrays are (b, c, *sizes).
        dilation: the distance between the cells of the window along each axis.
    """

    strides: tuple[int, ...]
    padding: str
    data_format: str
    dilation: tuple[int, ...]

    @abc.abstractmethod
    def window(self, *operands: Any) -> tuple[int, ...]:
        """Returns the sizes of the window."""

    @abc.abstractmethod
    def compute(self, windows: Windows, *operands: jax.Array) -> jax.Array:
        """Computes the function of arrays with channels last on CPUs."""

    @abc.abstractmethod
    def differentiate(
        self, windows: Windows, number: int, spec: Spec, *operands: jax.Array
    ) -> jax.Array:
        """Computes `gradient` of arrays with channels last."""

    def windows(self, *operands: Any) -> Windows | None:
        """Returns the positions of the window over the first operand; None if there are none."""
        x = operands[self.rows[0]]
        window = self.window(*operands)
        return Windows.of(self._sizes(x), window, self.strides, self.padding, self.dilation)

    def _sizes(self, x: Any) -> list[Any]:
        return [x.shape[axis] for axis in spatial_axes(x.ndim, self.data_format)]

    def suits(self, *operands: Any) -> bool:
        return self.windows(*operands) is not None

    def fast(self, *operands: jax.Array) -> jax.Array:
        windows = self.windows(*operands)
        assert windows is not None
        y = self.compute(windows, *map(self._last, range(len(operands)), operands))
        return self._moved(y, -1, 1)

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        specs = (*operands[:number], spec, *operands[number + 1 :])
        windows = self.windows(*specs)
        assert windows is not None
        if number in self.rows:
            moved = jax.eval_shape(lambda x: self._last(number, x), spec)
            gradient = self.differentiate(
                windows, number, moved, *map(self._last, range(len(operands)), operands)
            )
            return self._moved(gradient, -1, 1)
        arrays = [self._last(place, x) for place, x in enumerate(operands)]
        arrays[number] = self._moved(operands[number], 1, -1)
        return self.differentiate(windows, number, spec, *arrays)

    def _last(self, number: int, x: jax.Array) -> jax.Array:
        return self._moved(x, 1, -1) if number in self.rows else x

    def _moved(self, x: jax.Array, source: int, target: int) -> jax.Array:
        return x if self.data_format == "channels_last" else jnp.moveaxis(x, source, target)
