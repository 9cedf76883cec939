"""Products of sorted rows with a kernel for each group of rows, as in a mixture of experts.

XLA's CPU backend computes `jax.lax.ragged_dot` as products of all rows with all kernels. Here a loop
goes over blocks of rows of one group, so that each row meets one kernel.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from fkeras.nn.cpu.forms import Form, Spec
from fkeras.nn.numerics.dtypes import wide_dtype

# rows of a block: fewer repeat the reading of kernels, more waste products at the ends of groups
_SMALLEST, _LARGEST = 8, 128


@dataclasses.dataclass(frozen=True)
class GroupedProduct(Form):
    """`x[row] @ kernels[group of the row]`: operands x (m, d), kernels (g, d, f), sizes (g,).

    The rows are sorted by group, and `sizes` holds the number of rows of each group, all rows together.
    """

    linear: ClassVar[tuple[int, ...]] = (0, 1)
    loops: ClassVar[bool] = True
    together: ClassVar[bool] = True

    def default(self, *operands: jax.Array) -> jax.Array:
        x, kernels, sizes = operands
        return jax.lax.ragged_dot(x, kernels, sizes)

    def fast(self, *operands: jax.Array) -> jax.Array:
        x, kernels, sizes = operands
        return _products(x[None], sizes, lambda x, group: (x[0] @ _entry(kernels, group))[None])[0]

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        if number == 0:
            y, kernels, sizes = operands
            return _products(y[None], sizes, lambda y, g: (y[0] @ _entry(kernels, g).T)[None])[0]
        x, y, sizes = operands
        block, ends = _block(x.shape[0], sizes.shape[0]), jnp.cumsum(sizes)
        x, y = (jnp.pad(array, ((0, block), (0, 0))) for array in (x, y))

        def step(group: jax.Array, row: jax.Array, total: jax.Array) -> jax.Array:
            inside = row + jnp.arange(block, dtype=row.dtype) < ends[group]
            part = jnp.where(inside[:, None], jax.lax.dynamic_slice_in_dim(x, row, block), 0)
            part = part.T @ jax.lax.dynamic_slice_in_dim(y, row, block)
            part = jax.lax.dynamic_index_in_dim(total, group, keepdims=False) + part.astype(
                total.dtype
            )
            return jax.lax.dynamic_update_index_in_dim(total, part, group, 0)

        # many blocks may be summed: in half precision their sum would lose digits
        total = jnp.zeros(spec.shape, wide_dtype(spec.dtype))
        return _loop(sizes, block, step, total).astype(spec.dtype)


class CodedKernel(Protocol):
    """Computes a kernel (d, f) from arrays such as codes and scales."""

    def __call__(self, *arrays: Any, **_: Any) -> jax.Array: ...

    def parts(self, *arrays: Any, **_: Any) -> Sequence[jax.Array]:
        """Computes `p` matrices (d, f / p) in which the columns of the kernel take turns, with `f` rounded up."""
        ...


@dataclasses.dataclass(frozen=True)
class CodedGroupedProduct(Form):
    """`x[row] @ kernel(*arrays[group of the row])`: operands x (m, d), sizes (g,) and arrays of g entries each.

    CPUs compute the parts of the kernel of one group at a time, other platforms all kernels. The arrays have no
    derivative.

    Args:
        kernel: computes the kernel (d, f) of a group from its entries of the arrays.
    """

    linear: ClassVar[tuple[int, ...]] = (0,)
    loops: ClassVar[bool] = True
    together: ClassVar[bool] = True

    kernel: CodedKernel

    def default(self, *operands: jax.Array) -> jax.Array:
        x, sizes, *arrays = operands
        return jax.lax.ragged_dot(x, jax.vmap(self.kernel)(*arrays), sizes)

    def fast(self, *operands: jax.Array) -> jax.Array:
        x, sizes, *arrays = operands

        # interleaves the columns of results, which are smaller than kernels: XLA does not vectorize interleaving
        def product(x: jax.Array, group: jax.Array) -> jax.Array:
            return jnp.stack([x[0] @ part for part in self._parts(arrays, group)])

        y = jnp.moveaxis(_products(x[None], sizes, product), 0, 2)
        entries = (Spec(array.shape[1:], array.dtype) for array in arrays)
        columns = jax.eval_shape(self.kernel, *entries).shape[1]
        return y.reshape(x.shape[0], -1)[:, :columns]

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        y, sizes, *arrays = operands
        count = len(jax.eval_shape(lambda: self._parts(arrays, 0)))
        y = jnp.pad(y, ((0, 0), (0, -y.shape[1] % count)))
        y = jnp.moveaxis(y.reshape(y.shape[0], -1, count), 2, 0)

        def product(y: jax.Array, group: jax.Array) -> jax.Array:
            pairs = zip(y, self._parts(arrays, group), strict=True)
            return functools.reduce(operator.add, (y @ part.T for y, part in pairs))[None]

        return _products(y, sizes, product)[0]

    def _parts(self, arrays: Sequence[jax.Array], group: jax.Array | int) -> Sequence[jax.Array]:
        return self.kernel.parts(*(_entry(array, group) for array in arrays))


@dataclasses.dataclass(frozen=True)
class CodedProduct(Form):
    """`x @ kernel(*arrays)`: operands x (m, d) and arrays, which have no derivative.

    Under `jax.vmap` CPUs compute one kernel at a time.

    Args:
        kernel: computes the kernel (d, f) from the arrays.
    """

    linear: ClassVar[tuple[int, ...]] = (0,)
    loops: ClassVar[bool] = True

    kernel: Callable[..., jax.Array]

    def default(self, *operands: jax.Array) -> jax.Array:
        x, *arrays = operands
        return x @ self.kernel(*arrays)

    fast = default


def _entry(array: jax.Array, group: jax.Array | int) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(array, group, keepdims=False)


def _products(x: jax.Array, sizes: jax.Array, product: Callable[..., jax.Array]) -> jax.Array:
    """Computes `product(x of a block, group)` for the blocks of sorted rows of x (p, m, d).

    Args:
        product: computes an array (q, n, f) for `n` rows of x (p, n, d) and the index of their group.
    """
    rows, block = x.shape[1], _block(x.shape[1], sizes.shape[0])
    # a block at the end of a group also computes the next rows, which later blocks replace
    padded = jnp.pad(x, ((0, 0), (0, block), (0, 0)))
    like = jax.eval_shape(
        product, Spec((x.shape[0], block, x.shape[2]), x.dtype), Spec((), "int32")
    )
    y = jnp.zeros((like.shape[0], rows + block, like.shape[2]), like.dtype)

    def step(group: jax.Array, row: jax.Array, y: jax.Array) -> jax.Array:
        part = product(jax.lax.dynamic_slice_in_dim(padded, row, block, axis=1), group)
        return jax.lax.dynamic_update_slice_in_dim(y, part, row, axis=1)

    return _loop(sizes, block, step, y)[:, :rows]


def _block(rows: int, groups: int) -> int:
    return min(max(-(-rows // groups), _SMALLEST), _LARGEST)


def _loop(sizes: jax.Array, block: int, step: Callable[..., jax.Array], start: Any) -> jax.Array:
    """Calls `step(group, first row, result)` for each block of rows, in the order of the rows."""
    counts = (sizes + (block - 1)) // block
    last, first_rows = jnp.cumsum(counts), jnp.cumsum(sizes) - sizes

    def body(i: jax.Array, result: jax.Array) -> jax.Array:
        group = jnp.sum(i >= last, dtype="int32")
        row = first_rows[group] + (i - (last[group] - counts[group])) * block
        return step(group, row, result)

    return jax.lax.fori_loop(jnp.zeros((), last.dtype), last[-1], body, start)
