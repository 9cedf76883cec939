"""Products with quantized kernels; inputs are quantized in each call, gradients ignore rounding."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.core.dense import Dense
from fkeras.layers.core.einsum_dense import Equation, add_bias
from fkeras.layers.quantized.code_sums import byte_column_product, byte_row_product
from fkeras.nn.cpu.forms import Form, On, compute
from fkeras.nn.numerics.dtypes import wide_dtype
from fkeras.quantizers import AbsMaxQuantizer


def equation_of(layer: Any) -> Equation:
    """Returns the equation of a `Dense` or `EinsumDense`."""
    return Equation.parse("...x,xy->...y" if isinstance(layer, Dense) else layer.equation)


def finished(layer: Any, y: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Adds the bias to a product and applies the activation of `layer`."""
    y = add_bias(y, bias)
    return y if layer.activation is None else layer.activation(y)


def arrange(array: fk.Leaf, axes: str, target_axes: str) -> Any:
    """Reorders the axes of an array to `target_axes`, for broadcasting.

    Axes missing in `target_axes` must have size 1. Axes missing in `axes` are added with size 1.
    """
    sizes = dict(zip(axes, array.shape, strict=True))
    shared = [letter for letter in axes if letter in target_axes]
    array = array.reshape([sizes[letter] for letter in shared])
    array = array.transpose([shared.index(letter) for letter in target_axes if letter in shared])
    return array.reshape([sizes.get(letter, 1) for letter in target_axes])


def dequantize(codes: jax.Array, scale: jax.Array, equation: Equation) -> jax.Array:
    """Computes the float kernel `codes / scale`.

    Example:
        >>> import jax.numpy as jnp
        >>> equation = Equation.parse("ab,bc->ac")
        >>> dequantize(jnp.array([[2, 2]], "int8"), jnp.array([[1.0, 4.0]]), equation)
        Array([[2. , 0.5]], dtype=float32)
    """
    return codes.astype(scale.dtype) / arrange(scale, equation.output, equation.kernel)


def rounded_product(
    equation: Equation, quantizer: AbsMaxQuantizer, x: jax.Array, kernel: jax.Array
) -> jax.Array:
    """Computes `einsum` with quantized and dequantized `x`; gradients ignore the rounding."""
    summed_axes = tuple(i for i, n in enumerate(equation.input) if n not in equation.output)
    codes, scale = quantizer(x, axis=summed_axes)
    # straight-through estimator: the value is rounded, the gradient is that of `x`
    rounded = x + jax.lax.stop_gradient(codes.astype(x.dtype) / scale - x)
    return jnp.einsum(equation.text, rounded, kernel)


@dataclasses.dataclass(frozen=True)
class IntegerProduct(Form):
    """Sums of products of int8 codes: operands the codes of x and those of a kernel.

    Sums are computed in int32. CPUs compute those of few rows in floats, which are exact up to 2**24 in
    float32: XLA would convert the kernel to an array of int32 first.

    Args:
        equation: equation without an ellipsis.
        dtype: dtype of the result.
    """

    loops: ClassVar[bool] = True

    equation: Equation
    dtype: str

    @property
    def rows(self) -> tuple[int, ...]:
        return (0,) if self._leading else ()

    @property
    def _leading(self) -> str:
        """The letters of the output before those of the kernel."""
        output = self.equation.output
        return output[: len(output) - len(set(self.equation.kernel) & set(output))]

    def suits(self, *operands: Any) -> bool:
        x, cut = operands[0], len(self._leading)
        # an unknown number of rows is no `int`
        if not all(isinstance(n, int) for n in x.shape):
            return False
        equation, size = self.equation, math.prod(x.shape[cut:])
        summed, units = equation.input[cut:], equation.output[cut:]
        # the sum of a whole row is one computation, whose compilation takes seconds for more bytes
        known = equation.kernel == summed + units or (
            equation.kernel == units + summed and size <= 8192
        )
        few = 0 < math.prod(x.shape[:cut]) <= 4 and size % 32 == 0 and size > 0
        return few and known and equation.input.startswith(self._leading)

    def default(self, *operands: jax.Array) -> jax.Array:
        # int8 sums would overflow
        y = jnp.einsum(self.equation.text, *operands, preferred_element_type="int32")
        return y.astype(self.dtype)

    def fast(self, *operands: jax.Array) -> jax.Array:
        (x, codes), cut = operands, len(self._leading)
        # `jax.vmap` adds rows
        if not self.suits(*operands):
            return self.default(*operands)
        summed, units = self.equation.input[cut:], self.equation.output[cut:]
        size = math.prod(x.shape[cut:])
        flat = x.reshape(-1, size).astype(wide_dtype(jnp.dtype(self.dtype)))
        if self.equation.kernel == summed + units:
            y, sizes = _byte_columns(flat, codes.reshape(size, -1)), codes.shape[len(summed) :]
        else:
            y, sizes = _byte_rows(flat, codes.reshape(-1, size)), codes.shape[: len(units)]
        return y.astype(self.dtype).reshape(*x.shape[:cut], *sizes)


_byte_columns, _byte_rows = jax.jit(byte_column_product), jax.jit(byte_row_product)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def integer_product(
    equation: Equation, quantizer: AbsMaxQuantizer, x: jax.Array, codes: jax.Array, scale: jax.Array
) -> jax.Array:
    """Computes `einsum(codes of x, codes) / (scale of x * scale)`, in which sums are integers.

    Derivatives are those of `einsum(x, codes / scale)` with respect to `x`, and 0 with respect to
    the other arguments, because rounding has no derivative.

    Args:
        equation: equation without an ellipsis.
        quantizer: quantizes `x`, with one scale along all summed axes.
        codes: the quantized kernel, int8.
    """
    summed_axes = tuple(i for i, n in enumerate(equation.input) if n not in equation.output)
    x_codes, x_scale = quantizer(x, axis=summed_axes)
    y = compute(IntegerProduct(equation, x.dtype.name), x_codes, codes)
    x_scale = arrange(x_scale, equation.input, equation.output)
    return y / (x_scale * scale)


@integer_product.defjvp
def _slope(
    equation: Equation, quantizer: AbsMaxQuantizer, primals: tuple, tangents: tuple
) -> tuple[jax.Array, jax.Array]:
    x, codes, scale = primals
    y = integer_product(equation, quantizer, x, codes, scale)
    # GPUs divide after the product, which then reads the codes. In float16 sums of codes may overflow.
    of_result = jnp.logical_and(compute(On("gpu")), y.dtype != jnp.float16)
    one = jnp.ones_like(scale)
    kernel = dequantize(codes, jnp.where(of_result, one, scale), equation).astype(y.dtype)
    slope = jnp.einsum(equation.text, tangents[0], kernel).astype(scale.dtype)
    return y, (slope / jnp.where(of_result, scale, one)).astype(y.dtype)
