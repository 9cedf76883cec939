"""Convolutions on CPUs: fast kernels of XLA for two axes, products of matrices for the rest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.cpu import limits
from fkeras.nn.cpu.defaults import convolution, transposed_convolution
from fkeras.nn.cpu.forms import Spec
from fkeras.nn.cpu.windows import WindowForm, Windows


@dataclasses.dataclass(frozen=True)
class Convolution(WindowForm):
    """Correlates x (b, *sizes, c) with the kernel (*window, c / groups, f)."""

    linear: ClassVar[tuple[int, ...]] = (0, 1)
    rows: ClassVar[tuple[int, ...]] = (0,)
    loops: ClassVar[bool] = True

    def window(self, x: Any, kernel: Any) -> tuple[int, ...]:
        return kernel.shape[:-2]

    def suits(self, x: Any, kernel: Any) -> bool:
        is_float = jnp.issubdtype(kernel.dtype, jnp.floating) and kernel.size > 0
        return is_float and kernel.ndim <= 5 and super().suits(x, kernel)

    def default(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        return convolution(x, kernel, self.strides, self.padding, self.data_format, self.dilation)

    def compute(self, windows: Windows, x: jax.Array, kernel: jax.Array) -> jax.Array:
        return _correlate(windows, x, kernel)

    def differentiate(
        self, windows: Windows, number: int, spec: Spec, x: jax.Array, kernel: jax.Array
    ) -> jax.Array:
        if number == 1:
            return _kernel_gradient(windows, spec, x, kernel)
        return _input_gradient(windows, spec, x, kernel)


@dataclasses.dataclass(frozen=True)
class TransposedConvolution(WindowForm):
    """Adds copies of a kernel (*window, f, c), scaled by the cells of x (b, *sizes, c).

    The operand is the flipped kernel, in reverse order along the axes of the window.

    Args:
        pads: the number of zeros before and after each axis of x, whose cells are `strides` apart.
    """

    pads: tuple[tuple[int, int], ...]
    linear: ClassVar[tuple[int, ...]] = (0, 1)
    rows: ClassVar[tuple[int, ...]] = (0,)
    loops: ClassVar[bool] = True

    def window(self, x: Any, kernel: Any) -> tuple[int, ...]:
        return kernel.shape[:-2]

    def windows(self, x: Any, kernel: Any) -> Windows | None:
        """Returns the windows over the result, one for each cell of x."""
        sizes = self._sizes(x)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            return None
        pads = []
        for length, rate, (before, after) in zip(
            self.window(x, kernel), self.dilation, self.pads, strict=True
        ):
            # a negative number removes cells that no window reads
            pads.append(((length - 1) * rate - before, (length - 1) * rate - after))
        return Windows(self.window(x, kernel), self.strides, self.dilation, tuple(pads))

    def suits(self, x: Any, kernel: Any) -> bool:
        is_float = jnp.issubdtype(kernel.dtype, jnp.floating) and kernel.size > 0
        return is_float and kernel.ndim <= 5 and super().suits(x, kernel)

    def default(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        return transposed_convolution(
            x, kernel, self.strides, self.pads, self.data_format, self.dilation
        )

    def default_gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        windows = self.windows(operands[0], spec)
        if number == 0 or windows is None:
            return super().default_gradient(number, spec, *operands)
        # The convolution that maps results to inputs has the same gradient. JAX's rule reverses an array
        # on TPUs, and has a dilated window of the size of the input on GPUs.
        x, y = operands
        axes = "DHW"[-(x.ndim - 2) :]
        images = f"N{axes}C" if self.data_format == "channels_last" else f"NC{axes}"

        def convolve(kernel: jax.Array) -> jax.Array:
            return lax.conv_general_dilated(
                y,
                kernel,
                self.strides,
                windows.pads,
                rhs_dilation=self.dilation,
                dimension_numbers=(images, f"{axes}IO", images),
            )

        return _flipped(jax.linear_transpose(convolve, spec)(x)[0])

    def compute(self, windows: Windows, x: jax.Array, kernel: jax.Array) -> jax.Array:
        sizes = [
            (size - 1) * stride + 1 + sum(pads) - (length - 1) * rate
            for size, stride, pads, length, rate in zip(
                x.shape[1:-1], self.strides, self.pads, windows.sizes, self.dilation, strict=True
            )
        ]
        spec = Spec((x.shape[0], *sizes, kernel.shape[-2]), x.dtype)
        return _input_gradient(windows, spec, x, _flipped(kernel))

    def differentiate(
        self, windows: Windows, number: int, spec: Spec, x: jax.Array, kernel: jax.Array
    ) -> jax.Array:
        if number == 0:
            return _correlate(windows, x, _flipped(kernel))
        return _flipped(_kernel_gradient(windows, spec, kernel, x))


def _flipped(kernel: jax.Array) -> jax.Array:
    return lax.rev(kernel, range(kernel.ndim - 2))


def _correlate(windows: Windows, x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Correlates x (b, *sizes, c) with the kernel (*window, c / groups, f)."""
    groups = x.shape[-1] // kernel.shape[-2]
    if groups > 1:
        # XLA has no fast kernel for groups
        pairs = zip(jnp.split(x, groups, -1), jnp.split(kernel, groups, -1), strict=True)
        return jnp.concatenate([_correlate(windows, *pair) for pair in pairs], -1)
    if math.prod(windows.sizes) == 1:
        counts = windows.counts(x.shape[1:-1])
        cells = windows.cells(windows.pad(x), (0,) * len(counts), counts)
        matrix = kernel.reshape(kernel.shape[-2:])
        return lax.dot_general(cells, matrix, (((cells.ndim - 1,), (0,)), ((), ())))
    if x.ndim == 5:
        return _correlate_volumes(windows, x, kernel)
    return _convolved(x, kernel, windows.strides, windows.pads, rhs_dilation=windows.dilation)


def _convolved(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
) -> jax.Array:
    """Convolves arrays with the order of axes for which XLA has a fast kernel.

    XLA transposes other orders itself, but not inside loops.
    """
    axes = "HW"[-(x.ndim - 2) :]
    numbers = (f"N{axes}C", f"{axes}IO", f"N{axes}C")
    return lax.conv_general_dilated(
        x, kernel, strides, pads, lhs_dilation, rhs_dilation, dimension_numbers=numbers
    )


def _correlate_volumes(windows: Windows, x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Correlates volumes as images, whose channels are the cells of the window along depth."""
    images, parts = _images(windows, x)
    y = _correlate(images, jnp.concatenate(parts, -1), _image_filters(kernel))
    return y.reshape(x.shape[0], y.shape[0] // x.shape[0], *y.shape[1:])


def _image_filters(kernel: jax.Array) -> jax.Array:
    """Returns the kernel (depth, *window, c, f) of volumes as a kernel (*window, depth * c, f)."""
    filters = jnp.moveaxis(kernel, 0, 2)
    return filters.reshape(*filters.shape[:2], -1, filters.shape[-1])


def _images(windows: Windows, x: jax.Array) -> tuple[Windows, list[jax.Array]]:
    """Returns the windows over images, and for each cell along depth the images that it reads."""
    depth, images = windows.split()
    (planes,) = depth.counts(x.shape[1:2])
    padded = depth.pad(x.reshape(*x.shape[:2], -1))
    shape = (x.shape[0] * planes, *x.shape[2:])
    parts = [depth.cells(padded, offset, (planes,)).reshape(shape) for offset in depth.offsets]
    return images, parts


def _input_gradient(windows: Windows, spec: Spec, y: jax.Array, kernel: jax.Array) -> jax.Array:
    """Returns the gradient of x for the gradient `y` of the result of `_correlate`."""
    groups = spec.shape[-1] // kernel.shape[-2]
    if groups > 1:
        pairs = zip(jnp.split(y, groups, -1), jnp.split(kernel, groups, -1), strict=True)
        part = Spec((*spec.shape[:-1], kernel.shape[-2]), spec.dtype)
        return jnp.concatenate([_input_gradient(windows, part, *pair) for pair in pairs], -1)
    if math.prod(windows.sizes) == 1:
        return jax.linear_transpose(lambda x: _correlate(windows, x, kernel), spec)(y)[0]
    if y.ndim == 5:

        def stacked(x: jax.Array) -> jax.Array:
            return jnp.concatenate(_images(windows, x)[1], -1)

        part = jax.eval_shape(stacked, spec)
        planes = y.reshape(y.shape[0] * y.shape[1], *y.shape[2:])
        gradient = _input_gradient(windows.split()[1], part, planes, _image_filters(kernel))
        return jax.linear_transpose(stacked, spec)(gradient)[0]
    pads = []
    for axis, (low, _) in enumerate(windows.pads):
        reach = (windows.sizes[axis] - 1) * windows.dilation[axis]
        covered = (y.shape[axis + 1] - 1) * windows.strides[axis] + 1
        pads.append((reach - low, spec.shape[axis + 1] + low - covered))
    return _convolved(
        y,
        jnp.swapaxes(_flipped(kernel), -1, -2),
        (1,) * len(pads),
        pads,
        lhs_dilation=windows.strides,
        rhs_dilation=windows.dilation,
    )


def _kernel_gradient(windows: Windows, spec: Spec, x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the gradient of the kernel for the gradient `y` of the result of `_correlate`."""
    groups = x.shape[-1] // spec.shape[-2]
    if groups > 1:
        pairs = zip(jnp.split(x, groups, -1), jnp.split(y, groups, -1), strict=True)
        part = Spec((*spec.shape[:-1], spec.shape[-1] // groups), spec.dtype)
        return jnp.concatenate([_kernel_gradient(windows, part, *pair) for pair in pairs], -1)
    if x.ndim == 5 and math.prod(windows.sizes) > 1:
        images, parts = _images(windows, x)
        y = y.reshape(y.shape[0] * y.shape[1], *y.shape[2:])
        part = Spec(spec.shape[1:], spec.dtype)
        return jnp.stack([_kernel_gradient(images, part, image, y) for image in parts])
    if math.prod(windows.sizes) == 1:
        cells = windows.cells(windows.pad(x), (0,) * (x.ndim - 2), y.shape[1:-1])
        return _matrix_product(cells, y).reshape(spec.shape)
    if limits.products_are_faster(windows, spec, y):
        return _product_gradient(windows, spec, x, y)
    return _convolved_gradient(windows, x, y)


def _product_gradient(windows: Windows, spec: Spec, x: jax.Array, y: jax.Array) -> jax.Array:
    """Computes the gradient of the kernel as products of matrices, for some rows of the batch at a time.

    A cell of the window reads x at its own shift. The columns of one matrix are the channels of x at the
    shifts along the last axes. A shift along the first axis selects whole rows of this matrix, so a window
    of 3 x 3 has 3 copies of x and 3 products, not 9.
    """
    length, stride, rate = windows.sizes[0], windows.strides[0], windows.dilation[0]
    _, others = windows.split()
    count, filters = y.shape[1], y.shape[-1]
    size = limits.rows_of_products(windows, spec, y)

    def add(number: jax.Array | int, sums: jax.Array) -> jax.Array:
        # slices of x and y: XLA would compute an array and its blocks, which have two shapes, twice
        cut_x, cut_y = (lax.dynamic_slice_in_dim(a, number * size, size) for a in (x, y))
        padded = windows.pad(cut_x)
        shifted = [others.cells(padded, offset, y.shape[2:-1]) for offset in others.offsets]
        rows = jnp.concatenate(shifted, -1)
        # written in the order of the product, which would copy its first operand otherwise
        left = jnp.moveaxis(cut_y, -1, 0).reshape(filters, -1)
        starts = [place * rate for place in range(length)]
        parts = [lax.slice_in_dim(rows, s, s + (count - 1) * stride + 1, stride, 1) for s in starts]
        return sums + jnp.stack([left @ part.reshape(-1, part.shape[-1]) for part in parts])

    columns = len(others.offsets) * spec.shape[-2]
    sums = jnp.zeros((length, filters, columns), jnp.result_type(x, y))
    sums = lax.fori_loop(0, x.shape[0] // size, add, sums)
    return jnp.moveaxis(sums, 1, -1).reshape(spec.shape)


def _matrix_product(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the product (c, f) of x (b, *counts, c) and y (b, *counts, f) over all cells."""
    axes = tuple(range(x.ndim - 1))
    return lax.dot_general(x, y, ((axes, axes), ((), ())))


def _convolved_gradient(windows: Windows, x: jax.Array, y: jax.Array) -> jax.Array:
    """Computes the gradient of the kernel as a convolution, with the batch as channels."""
    rank = x.ndim - 2
    pads = []
    for axis, (low, _) in enumerate(windows.pads):
        reach = (y.shape[axis + 1] - 1) * windows.strides[axis]
        reach += (windows.sizes[axis] - 1) * windows.dilation[axis] + 1
        pads.append((low, reach - x.shape[axis + 1] - low))
    gradient = _convolved(
        jnp.transpose(x, (rank + 1, *range(1, rank + 1), 0)),
        jnp.transpose(y, (*range(1, rank + 1), 0, rank + 1)),
        windows.dilation,
        pads,
        rhs_dilation=windows.strides,
    )
    return jnp.transpose(gradient, (*range(1, rank + 1), 0, rank + 1))
