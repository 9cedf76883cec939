"""Means of values weighted by numbers that do not sum to one, as in attention."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from fkeras.nn.cpu.forms import Form, Spec, compute
from fkeras.nn.cpu.queries import has_many_places, query_means

# keys that fill a register of a TPU
_LANES = 128


@dataclasses.dataclass(frozen=True)
class ScaledProduct(Form):
    """An einsum of weights and values with a factor for each row: operands weights, factors, values.

    CPUs scale the result, which is smaller than the weights. TPUs and GPUs scale the weights: if exponentials
    are operands of the product, XLA's TPU compiler chooses a layout in which the softmax is slow.

    Args:
        equation: the einsum. The factors have the axes of the weights; those of the sum have size 1.
        ordered: as for `weighted_mean`.
        precision: the precision of the product: a program may be lowered under another default.
    """

    linear: ClassVar[tuple[int, ...]] = (0, 1, 2)

    equation: str
    ordered: bool = False
    precision: str | None = None

    def default(self, *operands: jax.Array) -> jax.Array:
        weights, factors, values = operands
        equation, back = _in_order(self.equation, self.ordered)
        y = jnp.einsum(equation, weights * factors, values, precision=self.precision)
        return jnp.einsum(back, y)

    def tpu(self, *operands: jax.Array) -> jax.Array:
        return self._on_tpu(operands[0]).default(*operands)

    def tpu_gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        weights = spec if number == 0 else operands[0]
        return self._on_tpu(weights).default_gradient(number, spec, *operands)

    def _on_tpu(self, weights: Any) -> ScaledProduct:
        return dataclasses.replace(self, ordered=self.ordered and has_few_keys(weights))

    def fast(self, *operands: jax.Array) -> jax.Array:
        weights, factors, values = operands
        is_query = weights.shape[-2] == 1 and ",aBcd->" in self.equation
        heads = math.prod(weights.shape[2:-2])
        if is_query and weights.dtype == values.dtype and has_many_places(values, heads):
            return query_means(weights, values) * rows_of(self.equation, factors)
        return self.transformed(*operands)

    def transformed(self, *operands: jax.Array) -> jax.Array:
        weights, factors, values = operands
        equation, back = _in_order(self.equation, self.ordered)
        y = jnp.einsum(equation, weights, values, precision=self.precision)
        return jnp.einsum(back, y * rows_of(equation, factors))


def has_few_keys(weights: Any) -> bool:
    """Returns whether the keys, the last axis, do not fill a register of a TPU; True for an unknown number."""
    keys = weights.shape[-1]
    return not isinstance(keys, int) or keys < _LANES


# A tangent of the sums changes all weights of a row by one factor, and so the row of the result. CPUs scale the result.
# TPUs and GPUs scale the weights: the gradient then has no use for the result, which they do not keep, and its sums
# are a part of the operation that multiplies by the values. With few keys, all platforms scale the result.


@dataclasses.dataclass(frozen=True)
class _ScaledWeights(Form):
    """Weights times slopes of the rows, operands in this order; 0 on CPUs."""

    linear: ClassVar[tuple[int, ...]] = (0, 1)

    def default(self, *operands: jax.Array) -> jax.Array:
        weights, slopes = operands
        return weights * slopes

    def fast(self, *operands: jax.Array) -> jax.Array:
        return jnp.zeros_like(operands[0])


@dataclasses.dataclass(frozen=True)
class _ScaledResult(Form):
    """The result times slopes of the rows, operands in this order, on CPUs or everywhere; 0 elsewhere.

    Args:
        equation: as for `ScaledProduct`.
        ordered: as for `weighted_mean`.
    """

    linear: ClassVar[tuple[int, ...]] = (0, 1)

    equation: str
    ordered: bool
    everywhere: bool

    def default(self, *operands: jax.Array) -> jax.Array:
        return self.fast(*operands) if self.everywhere else jnp.zeros_like(operands[0])

    def fast(self, *operands: jax.Array) -> jax.Array:
        y, slopes = operands
        equation, back = _in_order(self.equation, self.ordered)
        order, result = back.split("->")
        return jnp.einsum(back, jnp.einsum(f"{result}->{order}", y) * rows_of(equation, slopes))


def _in_order(equation: str, ordered: bool) -> tuple[str, str]:
    """Returns the einsum in an order, and the einsum that gives its result the order of `equation`."""
    inputs, result = equation.split("->")
    weights = inputs.split(",")[0]
    order = "".join(n for n in weights if n in result) + result[-1] if ordered else result
    return f"{inputs}->{order}", f"{order}->{result}"


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
    terms, few = [], has_few_keys(weights)
    if not (few or isinstance(t_total, SymbolicZero)):
        own = compute(_ScaledWeights(), weights, -t_total * factors)
        t_weights = own if isinstance(t_weights, SymbolicZero) else t_weights + own
    if not isinstance(t_weights, SymbolicZero):
        terms.append(compute(product, t_weights, factors, values))
    if not isinstance(t_values, SymbolicZero):
        terms.append(compute(product, weights, factors, t_values))
    if not isinstance(t_total, SymbolicZero):
        result = _ScaledResult(product.equation, product.ordered, few)
        terms.append(-compute(result, y, t_total * factors))
    # a sum with zeros would keep the zeros for the gradient
    return y, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(y)


_mean.defjvp(_mean_jvp, symbolic_zeros=True)
# as in `numerics.slopes`: without jit, each call of a custom rule would take .3 ms
_compiled = jax.jit(_mean, static_argnums=0, inline=True)


def weighted_mean(
    equation: str,
    weights: jax.Array,
    total: jax.Array,
    values: jax.Array,
    ordered: bool = False,
) -> jax.Array:
    """Computes `einsum(equation, weights / total, values)`; CPUs divide after the sum.

    Args:
        equation: the einsum; of the result's axes only the last is no axis of the weights.
        total: the sums of the weights, with axes of size 1; no sum is 0.
        ordered: whether CPUs and GPUs compute the result in the order of the weights' rows, and transpose the result.
            In another order XLA's CPU compiler transposes the weights, which takes long for many rows. TPUs choose an
            order of their own.

    Example:
        >>> weights = jnp.array([[1.0, 3.0]])
        >>> weighted_mean("ab,bc->ac", weights, jnp.array([[4.0]]), jnp.array([[8.0], [4.0]]))
        Array([[5.]], dtype=float32)
    """
    config: Any = jax.config  # JAX declares its flags at run time
    product = ScaledProduct(equation, ordered, config.jax_default_matmul_precision)
    return _compiled(product, weights, total, values)
