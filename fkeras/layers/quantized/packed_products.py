"""Products with a matrix of 4-bit codes: few rows multiply the codes, many rows the dequantized matrix."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.quantized.code_sums import column_product, fits_columns, fits_rows, row_product
from fkeras.nn.cpu.forms import Form, Spec, compute
from fkeras.nn.numerics.dtypes import wide_dtype
from fkeras.quantizers.codes import dequantize_groups, int4_codes

# more rows make the product dearer than dequantizing the matrix once
_MOST_ROWS = 32
# fewer codes cost less than the operations that unpack them for a TPU
_FEWEST_UNPACKED = 1 << 16
# bytes of each row of codes that a step on a CPU dequantizes: their floats fit into the cache
_WIDTH = 256
# equal layers are traced once
_column_product = jax.jit(column_product, static_argnames="block")
_row_product = jax.jit(row_product, static_argnames="block")


@dataclasses.dataclass(frozen=True)
class PackedProduct(Form):
    """Product of x (..., i) with the matrix of codes: operands x, codes, scales and zero points.

    Bytes have two codes each; codes in `int4` arrays are not packed.

    Without zero points the matrix is `codes / scales`, otherwise `(codes - zero points) * scales`.
    Accelerators multiply codes, and so do CPUs for very few rows; for more rows CPUs dequantize a few
    outputs at a time. Scales without zero points have no derivative.

    Args:
        block: the number of inputs with the same scales; None for all inputs.
        pairs: "inputs" if a byte has the codes of two inputs, "outputs" for those of two outputs.
        outputs: the axis of the outputs in codes, scales and zero points.
    """

    rows: ClassVar[tuple[int, ...]] = (0,)
    loops: ClassVar[bool] = True

    block: int | None
    pairs: str
    outputs: int

    @property
    def linear(self) -> tuple[int, ...]:
        return (0,) if self.block is None else (0, 2)

    def default(self, *operands: jax.Array) -> jax.Array:
        x, codes, *factors = (
            operands if self.outputs else [operands[0], *(a.T for a in operands[1:])]
        )
        if codes.dtype == "int4":
            sums = _by_group(x, np.ones((x.shape[-1], 1)), self.block)
            return _scaled(x, _by_group(x, codes, self.block), sums, factors)
        four = codes.dtype.type(4)
        halves = [(codes << four) >> four, codes >> four]
        if self.pairs == "outputs":
            y = jnp.stack([_by_group(x, half, self.block) for half in halves], axis=-1)
            y = y.reshape(*y.shape[:-2], -1)
            sums = _by_group(x, np.ones((x.shape[-1], 1)), self.block)
        else:
            x, block = _pairs_of_inputs(x, len(codes)), self.block and self.block // 2
            ones = [np.ones((len(codes), 1))] * 2
            y, sums = (
                _by_group(x[..., 0], low, block) + _by_group(x[..., 1], high, block)
                for low, high in (halves, ones)
            )
        return _scaled(x, y, sums, factors)

    def fast(self, *operands: jax.Array) -> jax.Array:
        x, codes, *factors = operands
        rows = x.reshape(-1, x.shape[-1]).astype(wide_dtype(x.dtype))
        kind = (self.pairs, self.outputs)
        if kind == ("outputs", 1) and fits_columns(rows, codes, self.block):
            y = _column_product(rows, codes, *factors, block=self.block)
        elif kind == ("inputs", 0) and fits_rows(rows, codes, self.block):
            y = _row_product(rows, codes, *factors, block=self.block)
        else:
            return self._tiled(*operands)
        return y.astype(x.dtype).reshape(*x.shape[:-1], -1)

    def _tiled(self, *operands: jax.Array) -> jax.Array:
        """Computes some outputs after the other."""
        x, codes, *factors = operands
        leading, x = x.shape[:-1], x.reshape(-1, x.shape[-1])
        size, cut = codes.shape[self.outputs], jax.lax.dynamic_slice_in_dim
        # XLA moves the floats of a single step out of an outer loop, and keeps them
        steps = max(2, -(-size // _WIDTH))
        width = size // steps

        def part(start: jax.Array | int, width: int) -> jax.Array:
            n = 2 if self.pairs == "outputs" else 1
            taken = [(codes, start, width), *((f, n * start, n * width) for f in factors)]
            arrays = (cut(*place, axis=self.outputs) for place in taken)
            return self._product(x, *arrays)

        parts = [part(steps * width, size % steps)] if size % steps else []
        if width:
            starts = jnp.arange(steps, dtype="int32") * width
            y = jax.lax.map(lambda start: part(start, width), starts)
            parts.insert(0, jnp.moveaxis(y, 0, 1).reshape(x.shape[0], -1))
        return jnp.concatenate(parts, axis=1).reshape(*leading, -1)

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        def product(operand: Any) -> jax.Array:
            return self._tiled(*operands[:number], operand, *operands[number + 1 :])

        # The product is linear, so its derivative is the product. jax 0.7 transposes the loop of the
        # derivative alone, in which the linear operands are marked.
        def derivative(tangent: Any) -> jax.Array:
            return jax.jvp(product, (jnp.zeros(spec.shape, spec.dtype),), (tangent,))[1]

        return jax.linear_transpose(derivative, spec)(operands[number])[0]

    def _product(self, x: jax.Array, *arrays: jax.Array) -> jax.Array:
        """Computes some outputs from dequantized codes."""
        codes, *factors = arrays if self.outputs else [array.T for array in arrays]
        size, columns = codes.shape
        # both halves of the bytes in one array: the low halves move to the place of the high ones
        codes = (codes[None] << np.array([4, 0], codes.dtype)[:, None, None]) >> codes.dtype.type(4)
        if self.pairs == "outputs":
            factors = [jnp.moveaxis(f.reshape(-1, columns, 2), 2, 0) for f in factors]
            low, high = _floats(codes, factors, self.block)
            return jnp.stack([x @ low, x @ high], axis=-1).reshape(*x.shape[:-1], -1)
        x, block = _pairs_of_inputs(x, size), self.block and self.block // 2
        low, high = _floats(codes, [f[None] for f in factors], block)
        return x[..., 0] @ low + x[..., 1] @ high


@dataclasses.dataclass(frozen=True)
class BlockMatrix(Form):
    """Floats (i, o) of a matrix of codes: operands codes, scales and zero points (groups, o), and groups (i,).

    Bytes have the codes of two outputs; codes in `int4` arrays are not packed. On TPUs, the floats of many codes are
    NaN unless the groups are in order, as in `checked`.

    Args:
        block: the number of inputs of a group.
    """

    linear: ClassVar[tuple[int, ...]] = (1,)

    block: int

    def default(self, *operands: jax.Array) -> jax.Array:
        codes, scale, zero, groups = operands
        codes = int4_codes(codes, scale.shape[1], axis=1)
        return dequantize_groups(codes, scale, zero, groups, axis=0)

    def fast(self, *operands: jax.Array) -> jax.Array:
        return self.default(*operands)

    def tpu(self, *operands: jax.Array) -> jax.Array:
        codes, scale, zero, groups = operands
        (size, columns), block = (len(codes), scale.shape[1]), min(self.block, len(codes))
        if size * columns < _FEWEST_UNPACKED:
            return self.default(*operands)
        codes = int4_codes(codes, columns, axis=1).astype("int4")
        codes = jnp.pad(codes, ((0, -size % block), (0, 0))).reshape(-1, block, columns)
        # One operation then computes the floats. Without an axis of groups, XLA would first write scales and zero
        # points with the shape of the matrix.
        codes = jax.lax.optimization_barrier(codes)
        zero, scale = zero.astype(scale.dtype), checked(scale, groups, self.block)
        floats = (codes.astype(scale.dtype) - zero[:, None]) * scale[:, None]
        return floats.reshape(-1, columns)[:size]


def _pairs_of_inputs(x: jax.Array, size: int) -> jax.Array:
    """Returns x (..., i) as (..., size, 2), with zeros at the end."""
    x = jnp.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, 2 * size - x.shape[-1])])
    return x.reshape(*x.shape[:-1], size, 2)


def _by_group(x: jax.Array, kernel: Any, block: int | None) -> jax.Array:
    """Returns the products (..., g, o) of each group of inputs x (..., i) with codes (i, o).

    The caller scales the products: on accelerators, scaling the matrix costs more than a product of few
    rows.
    """
    size, columns = kernel.shape
    block = block or size
    rest = -size % block
    if rest:
        x = jnp.pad(x, [*[(0, 0)] * (x.ndim - 1), (0, rest)])
        kernel = jnp.pad(kernel, ((0, rest), (0, 0)))
    kernel = kernel.reshape(-1, block, columns).astype(x.dtype)
    x = x.reshape(*x.shape[:-1], -1, block)
    wide = wide_dtype(x.dtype)
    return jnp.einsum("...gi,gio->...go", x, kernel, preferred_element_type=wide)


def _scaled(x: jax.Array, y: jax.Array, sums: jax.Array, factors: Sequence[jax.Array]) -> jax.Array:
    """Returns the products of x (..., o), given those with codes (..., g, o) and the sums (..., g, 1) of x."""
    leading = (1,) * (y.ndim - 2)
    scale, *zero = (f.astype(y.dtype).reshape(*leading, *f.shape) for f in factors)
    y = (y - sums * zero[0]) * scale if zero else y / scale
    return jnp.sum(y, axis=-2).astype(x.dtype)


def _floats(codes: jax.Array, factors: list[jax.Array], block: int | None) -> jax.Array:
    """Returns floats (2, i, o) for codes (2, i, o) and factors with an axis of groups for that of `i`."""
    scale, *zero = factors
    size = codes.shape[1]

    def spread(factor: jax.Array) -> jax.Array:
        halves, groups, columns = factor.shape
        shape = (halves, groups, block or size, columns)
        factor = jnp.broadcast_to(factor[:, :, None], shape).reshape(halves, -1, columns)
        return factor[:, :size].astype(scale.dtype)

    floats = codes.astype(scale.dtype)
    return (floats - spread(zero[0])) * spread(scale) if zero else floats / spread(scale)


def packed_product(
    form: PackedProduct, x: jax.Array, codes: jax.Array, scale: jax.Array, zero: jax.Array | None
) -> jax.Array | None:
    """Computes the product of a form for x (..., i); None if `x` has many rows or another dtype.

    Args:
        codes: packed codes; or codes in an `int4` array, whose scales may have another dtype than `x`.
        scale: scales with an axis of groups and an axis of outputs, or of outputs alone.
        zero: zero points, or None.
    """
    rows = math.prod(x.shape[:-1])
    odd = form.pairs == "inputs" and (form.block or 0) % 2
    # an unknown number of rows is no `int`
    if not isinstance(rows, int) or not 0 < rows <= _MOST_ROWS:
        return None
    is_packed = codes.dtype != "int4"
    if is_packed and (odd or x.dtype != scale.dtype):
        return None
    factors = [jnp.atleast_2d(scale) if form.outputs else scale.reshape(len(scale), -1)]
    factors += [] if zero is None else [zero]
    if not is_packed:
        return form.default(x, codes, *factors)
    count = factors[0].shape[form.outputs]
    if form.pairs == "outputs" and count % 2:
        factors = [jnp.pad(f, ((0, 0), (0, 1)), constant_values=1) for f in factors]
    return compute(form, x, codes, *factors)[..., :count]


def checked(array: jax.Array, groups: jax.Array, block: int) -> jax.Array:
    """Returns floats that are NaN unless each group is `block` inputs which follow each other.

    The check of the inputs of a product costs less than that of the scales.

    Args:
        groups: the number of the group of each input, (i,).
    """
    in_order = jnp.all(groups == (np.arange(len(groups)) // block).astype(groups.dtype))
    return jnp.where(in_order, array, jnp.nan)
