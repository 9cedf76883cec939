"""Products with quantized kernels; inputs are quantized in each call, gradients ignore rounding."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.core.dense import Dense
from fkeras.layers.core.einsum_dense import Equation, add_bias
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


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def integer_product(
    equation: Equation, quantizer: AbsMaxQuantizer, x: jax.Array, codes: jax.Array, scale: jax.Array
) -> jax.Array:
    """Computes `einsum(codes of x, codes) / (scale of x * scale)` in int32.

    Derivatives are those of `einsum(x, codes / scale)` with respect to `x`, and 0 with respect to
    the other arguments, because rounding has no derivative.

    Args:
        equation: equation without an ellipsis.
        quantizer: quantizes `x`, with one scale along all summed axes.
        codes: the quantized kernel, int8.
    """
    summed_axes = tuple(i for i, n in enumerate(equation.input) if n not in equation.output)
    x_codes, x_scale = quantizer(x, axis=summed_axes)
    # int8 sums would overflow: accumulate in int32
    y = jnp.einsum(equation.text, x_codes, codes, preferred_element_type="int32")
    x_scale = arrange(x_scale, equation.input, equation.output)
    return y.astype(x.dtype) / (x_scale * scale)


@integer_product.defjvp
def _slope(
    equation: Equation, quantizer: AbsMaxQuantizer, primals: tuple, tangents: tuple
) -> tuple[jax.Array, jax.Array]:
    x, codes, scale = primals
    y = integer_product(equation, quantizer, x, codes, scale)
    kernel = dequantize(codes, scale, equation).astype(y.dtype)
    return y, jnp.einsum(equation.text, tangents[0], kernel).astype(y.dtype)
