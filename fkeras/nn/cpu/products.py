"""Products of arrays with several axes of rows, such as batch and time, and a kernel."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.nn.cpu.forms import Form, compute
from fkeras.nn.cpu.limits import FEWEST_SUMS, MOST_ROWS, MOST_TERMS, row_is_convolution


@dataclasses.dataclass(frozen=True)
class RowProduct(Form):
    """Sums over the last axes of x and the first axes of a kernel: operands x and the kernel.

    The gradient of the kernel sums over all other axes of x. For several axes, XLA's CPU backend first
    writes a transposed copy of the gradient or of x, which takes two to four times the product. With one
    axis of rows, XLA makes no copy. CPUs of a mesh that share another axis of rows than the first gather x.

    XLA compiles a kernel for each product of one row, in about 9 ms each. A convolution over one pixel is a
    call into a library with jaxlib 0.10.2, and a product with older releases.

    Args:
        axes: number of the axes of the sum.
    """

    linear: ClassVar[tuple[int, ...]] = (0, 1)
    rows: ClassVar[tuple[int, ...]] = (0,)

    axes: int

    def default(self, *operands: jax.Array) -> jax.Array:
        x, kernel = operands
        return jnp.tensordot(x, kernel, self.axes)

    def fast(self, *operands: jax.Array) -> jax.Array:
        return self._product(*operands, in_library=True)

    def transformed(self, *operands: jax.Array) -> jax.Array:
        return self._product(*operands, in_library=False)

    def _product(self, x: jax.Array, kernel: jax.Array, in_library: bool) -> jax.Array:
        size = math.prod(kernel.shape[: self.axes])
        leading, columns = x.shape[: x.ndim - self.axes], kernel.shape[self.axes :]
        matrix = kernel.reshape(size, math.prod(columns))
        if in_library and math.prod(leading) == 1 and row_is_convolution(x.dtype, matrix):
            pixel, axes = x.reshape(1, 1, 1, size), ("NHWC", "HWIO", "NHWC")
            y = jax.lax.conv_general_dilated(
                pixel, matrix[None, None], (1, 1), "VALID", dimension_numbers=axes
            )
        else:
            y = x.reshape(math.prod(leading), size) @ matrix
        return y.reshape(*leading, *columns)


def row_product(x: jax.Array, kernel: jax.Array, axes: int) -> jax.Array:
    """Computes `jnp.tensordot(x, kernel, axes)`, with a fast gradient on CPUs.

    Args:
        x: array with at least one axis more than the sum.
        kernel: array whose first axes are the last axes of `x`.
        axes: number of the axes of the sum.
    """
    if x.ndim - axes < 2:
        return jnp.tensordot(x, kernel, axes)
    return compute(RowProduct(axes), x, kernel)


def block_product(x: jax.Array, stack: jax.Array, index: jax.Array, axes: int) -> jax.Array:
    """Computes the row product of one row of `x` and the kernel `stack[index]`, without a copy of the kernel.

    XLA's CPU backend copies a kernel that is taken from a stack in a loop. Sums of slices of the stack read the
    stack itself.

    Args:
        x: float32 array with one row: the size of the leading axes is 1.
        stack: kernels (n, *k) of equal blocks.
        index: the number of the block.
        axes: number of the axes of the sum.
    """
    size = math.prod(stack.shape[1 : axes + 1])
    leading, columns = x.shape[: x.ndim - axes], stack.shape[axes + 1 :]
    y = _product_of_row(x.reshape(size), stack.reshape(len(stack), size, -1), index)
    return y.reshape(*leading, *columns)


# equal layers are traced once
@jax.jit
def _product_of_row(row: jax.Array, stack: jax.Array, index: jax.Array) -> jax.Array:
    size, width = stack.shape[1:]
    terms = sum_terms(size)
    groups = size // terms
    grouped, factors = stack.reshape(-1, groups, terms, width), row.reshape(1, groups, terms, 1)

    def term(number: int) -> jax.Array:
        rows = jax.lax.dynamic_slice(grouped, (index, 0, number, 0), (1, groups, 1, width))
        return jax.lax.slice_in_dim(factors, number, number + 1, axis=2) * rows

    sums = functools.reduce(jnp.add, map(term, range(terms)))
    return _sum_of_rows(sums.reshape(groups, width))


def sum_terms(size: int) -> int:
    """Returns how many terms of a sum are added at once; 1 if no number of terms is fast.

    The number divides the size and leaves `FEWEST_SUMS` sums, which XLA keeps in an array, and sums that few
    operations add.

    Example:
        >>> sum_terms(576), sum_terms(509), sum_terms(8)
        (24, 1, 1)
    """
    fit = (n for n in range(2, MOST_TERMS + 1) if size % n == 0 and size // n >= FEWEST_SUMS)
    return max((n for n in fit if _rows_at_once(size // n) <= MOST_ROWS), default=1)


def _rows_at_once(count: int) -> int:
    """Returns how many of a number of rows are added at once."""
    fit = range(FEWEST_SUMS, MOST_TERMS + 1)
    return next((n for n in fit if count % n == 0 and count // n >= FEWEST_SUMS), count)


def _sum_of_rows(rows: jax.Array) -> jax.Array:
    """Returns the sum over the first axis of an array (n, u)."""
    count, terms = len(rows), _rows_at_once(len(rows))
    groups = rows.reshape(-1, terms, rows.shape[1])
    # slices keep their axes: XLA would move a reshape of each term in a pass of its own
    parts = (jax.lax.slice_in_dim(groups, n, n + 1, axis=1) for n in range(terms))
    sums = functools.reduce(jnp.add, parts)
    return sums.reshape(-1) if terms == count else _sum_of_rows(sums.reshape(len(groups), -1))


@dataclasses.dataclass(frozen=True)
class Varied(Form):
    """An array that XLA's CPU compiler does not treat as a constant: operands x and a source.

    With jaxlib 0.10.2, a compiled product is wrong if its right operand is known at compile time, all entries of
    each matrix are equal, the result has 4,096 entries or more, and XLA fuses the product with a reduction.

    Args:
        axis: an axis of the matrices.
    """

    linear: ClassVar[tuple[int, ...]] = (0,)

    axis: int

    def default(self, *operands: jax.Array) -> jax.Array:
        return operands[0]

    def fast(self, *operands: jax.Array) -> jax.Array:
        x, source = operands
        # No index is below this number, which is at most 0, but the compiler does not know its sign.
        number = -jnp.abs(jnp.sum(source[(slice(1),) * source.ndim]))
        places = jax.lax.broadcasted_iota(number.dtype, x.shape, self.axis)
        return jnp.where(places < number, jnp.zeros_like(x), x)


def varied(x: jax.Array, axis: int, source: jax.Array) -> jax.Array:
    """Returns `x`, the right operand of a product, which XLA's CPU compiler does not treat as a constant.

    Args:
        axis: an axis of the matrices of `x`.
        source: an array of floats that is not known at compile time.

    Example:
        >>> varied(jnp.ones((2, 3)), 0, jnp.array([-5.0])).sum()
        Array(6., dtype=float32)
    """
    return compute(Varied(axis), x, source)
