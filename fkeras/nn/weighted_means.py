"""Means of values weighted by numbers that do not sum to one, as in attention."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from fkeras.nn.cpu.forms import Form, Spec, compute

# lanes of a TPU register
_LANES = 128


@dataclasses.dataclass(frozen=True)
class ScaledProduct(Form):
    """An einsum of weights and values with a factor for each row: operands weights, factors, values.

    CPUs scale the result, which is smaller than the weights. TPUs and GPUs scale the weights: if exponentials
    are operands of the product, XLA's TPU compiler chooses a layout in which the softmax is slow.

    Args:
        equation: the einsum. The factors have the axes of the weights; those of the sum have size 1.
        precision: the precision of the product: a program may be lowered under another default.
    """

    linear: ClassVar[tuple[int, ...]] = (0, 1, 2)

    equation: str
    precision: str | None = None

    def default(self, *operands: jax.Array) -> jax.Array:
        weights, factors, values = operands
        return self._product(weights * factors, values)

    def fast(self, *operands: jax.Array) -> jax.Array:
        weights, factors, values = operands
        return self._product(weights, values) * rows_of(self.equation, factors)

    def tpu_gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        gradient, keys = super().tpu_gradient(number, spec, *operands), spec.shape[-1]
        # Fused with the gradient of the softmax, the product takes two to four times its cycles. If the keys
        # do not fill a register, a barrier costs more: a copy into another layout.
        full = isinstance(keys, int) and keys >= _LANES
        return jax.lax.optimization_barrier(gradient) if number == 0 and full else gradient

    def _product(self, weights: jax.Array, values: jax.Array) -> jax.Array:
        return jnp.einsum(self.equation, weights, values, precision=self.precision)


def rows_of(equation: str, factors: jax.Array) -> jax.Array:
    """Returns the factors of the rows of the weights, with the axes of the einsum's result.

    Example:
        >>> rows_of("acbB,aBcd->abcd", jnp.ones((2, 4, 5, 1))).shape
        (2, 5, 4, 1)
    """
    operands, result = equation.split("->")
    weights = operands.split(",")[0]
    kept = [axis for axis, letter in enumerate(weights) if letter in result]
    sums = tuple(axis for axis in range(len(weights)) if axis not in kept)
    letters = "".join(weights[axis] for axis in kept)
    order = tuple(letters.index(letter) for letter in result[:-1])
    return jnp.transpose(jnp.squeeze(factors, sums), order)[..., None]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _mean(
    product: ScaledProduct, weights: jax.Array, total: jax.Array, values: jax.Array
) -> jax.Array:
    return compute(product, weights, 1 / total, values)


def _mean_jvp(product: ScaledProduct, primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (weights, total, values), (t_weights, t_total, t_values) = primals, tangents
    y, factors = _mean(product, *primals), 1 / total
    terms = []
    if not isinstance(t_weights, SymbolicZero):
        terms.append(compute(product, t_weights, factors, values))
    if not isinstance(t_values, SymbolicZero):
        terms.append(compute(product, weights, factors, t_values))
    if not isinstance(t_total, SymbolicZero):
        # from `y`, without a second product of weights and values
        terms.append(-y * rows_of(product.equation, t_total * factors))
    # a sum with zeros would keep the zeros for the gradient
    return y, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(y)


_mean.defjvp(_mean_jvp, symbolic_zeros=True)
# as in `numerics.slopes`: without jit, each call of a custom rule would take .3 ms
_compiled = jax.jit(_mean, static_argnums=0, inline=True)


def weighted_mean(
    equation: str, weights: jax.Array, total: jax.Array, values: jax.Array
) -> jax.Array:
    """Computes `einsum(equation, weights / total, values)`; CPUs divide after the sum.

    Args:
        equation: the einsum; of the result's axes only the last is no axis of the weights.
        total: the sums of the weights, with axes of size 1; no sum is 0.

    Example:
        >>> weights = jnp.array([[1.0, 3.0]])
        >>> weighted_mean("ab,bc->ac", weights, jnp.array([[4.0]]), jnp.array([[8.0], [4.0]]))
        Array([[5.]], dtype=float32)
    """
    config: Any = jax.config  # JAX declares its flags at run time
    product = ScaledProduct(equation, config.jax_default_matmul_precision)
    return _compiled(product, weights, total, values)
