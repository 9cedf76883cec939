"""The loop of SimpleRNN, LSTM and GRU, with products of all steps outside of the loop where that is faster.

On accelerators, the gradients of the weights are products of the arrays of all steps, after the loop. A loop that
adds to the gradients reads and writes them in each step, and its products with the rows of one batch do not
fill a matrix unit.

GPUs also multiply all inputs by the kernel before the loop, which would read the kernel in each step. On one CPU
thread (t = 64, b = 32, d = u = 128) an LSTM with all products in the loop takes .75 of the time forward and .94 forward
and backward, because the product of one step stays in the cache. One matrix for [x_t, h] takes 1.05 and 1.10.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero

from fkeras.nn.cpu.forms import On, compute, has_typed_axes
from fkeras.nn.numerics.axes import align
from fkeras.nn.recurrence import input_product, masked_matmul, scan_sequence

# arguments of the two products of a step
_INPUT = ("kernel", "bias", "input_mask")
_RECURRENT = ("recurrent_kernel", "recurrent_bias", "recurrent_mask")


def scan_products(
    step: functools.partial, x: jax.Array, initial: Any, mask: jax.Array | None, **options: Any
) -> tuple[jax.Array, Any]:
    """Computes `scan_sequence`, with products inside or outside of the loop by the platform of the program.

    Args:
        step: `lstm_step`, `gru_step` or `simple_rnn_step` with its arguments by keyword.
        Other arguments: those of `scan_sequence`; with `unroll` all products are in the steps.
    """
    names = [name for name in (*_INPUT, *_RECURRENT) if name in step.keywords]
    reset_after = step.keywords.get("reset_after", False)

    def inside(x: jax.Array, initial: Any, mask: Any, arrays: Any) -> Any:
        return scan_sequence(functools.partial(step, **arrays), x, initial, mask, **options)

    def inputs_of(x: Any, arrays: Any) -> list[Any]:
        return [x, *(arrays[name] for name in _INPUT)]

    def loop(products: jax.Array, initial: Any, x: jax.Array, mask: Any, arrays: Any) -> Any:
        inner = functools.partial(step, **arrays | {"kernel": None}, record=True)

        def one(inputs: tuple[jax.Array, jax.Array], states: Any) -> Any:
            product, x_t = inputs
            return inner(_on_gpu(product, input_product(*inputs_of(x_t, arrays))), states)

        results = scan_sequence(one, x, initial, mask, prepare=lambda xs: (products, xs), **options)
        return results[:2], results[2]

    @jax.custom_jvp
    def outside(x: jax.Array, initial: Any, mask: Any, arrays: Any) -> Any:
        products = input_product(*inputs_of(jnp.swapaxes(x, 0, 1), arrays))
        return loop(products, initial, x, mask, arrays)[0]

    def rule(primals: Any, tangents: Any) -> Any:
        (x, initial, mask, arrays), (dx, dinitial, _, darrays) = primals, tangents
        dx = dx if _is_zero(dx) else jnp.swapaxes(dx, 0, 1)
        inputs = inputs_of(jnp.swapaxes(x, 0, 1), arrays)
        products = input_product(*inputs)
        fixed = functools.partial(loop, x=x, mask=mask, arrays=arrays)
        results, linear, records = jax.linearize(fixed, products, initial, has_aux=True)
        weights = ([each.get(name) for name in _RECURRENT] for each in (arrays, darrays))
        recurrent = functools.partial(_recurrent_product, records, reset_after)
        terms = [
            *_tangent(input_product, inputs, inputs_of(dx, darrays)),
            *_tangent(recurrent, *weights),
        ]
        dproducts = functools.reduce(jnp.add, terms) if terms else jnp.zeros_like(products)
        return results, linear(dproducts, jax.tree.map(_whole, dinitial))

    outside.defjvp(rule, symbolic_zeros=True)
    operands = x, initial, mask, {name: step.keywords[name] for name in names}
    functions: list[Any] = [value for value in step.keywords.values() if callable(value)]
    # `jax.custom_jvp` has no derivatives for what a function closes over
    closes = any(_closes_over_tracers(function, initial[0]) for function in functions)
    if options.get("unroll") or closes or has_typed_axes(*jax.tree.leaves(operands)):
        return inside(*operands)
    return lax.platform_dependent(*operands, cpu=inside, default=outside)


@jax.custom_jvp
def _on_gpu(product: jax.Array, own: jax.Array) -> jax.Array:
    return jnp.where(compute(On("gpu")), product, own)


@_on_gpu.defjvp
def _on_gpu_jvp(primals: Any, tangents: Any) -> Any:
    # `own` is the same product of the same inputs
    return _on_gpu(*primals), tangents[0]


def _recurrent_product(
    records: Sequence[jax.Array],
    reset_after: bool,
    kernel: jax.Array,
    bias: jax.Array | None,
    mask: jax.Array | None,
) -> jax.Array:
    """Computes the terms of the recurrent kernel in the gates of all steps (t, b, gates * u), given the reset gates."""
    h, *reset = records
    if not reset:
        return masked_matmul(h, kernel, mask)
    (r,), u = reset, h.shape[-1]
    if reset_after:
        inner = masked_matmul(h, kernel, mask)
        inner = inner if bias is None else inner + align(bias, inner.ndim)
        return jnp.concatenate([inner[..., : 2 * u], r * inner[..., 2 * u :]], -1)
    gates = masked_matmul(h, kernel[:, : 2 * u], None if mask is None else mask[:2])
    dropped = h if mask is None else h * mask[2:]
    return jnp.concatenate([gates, (r * dropped) @ kernel[:, 2 * u :]], -1)


def _tangent(function: Callable[..., jax.Array], operands: Any, tangents: Any) -> list[jax.Array]:
    """Returns the tangent of the function; none if no operand has a tangent."""
    moving = [n for n, t in enumerate(tangents) if not (t is None or _is_zero(t))]

    def of_moving(*values: jax.Array) -> jax.Array:
        known = dict(zip(moving, values, strict=True))
        return function(*(known.get(n, x) for n, x in enumerate(operands)))

    values, slopes = ([each[n] for n in moving] for each in (operands, tangents))
    return [jax.jvp(of_moving, values, slopes)[1]] if moving else []


def _whole(tangent: Any) -> jax.Array:
    return jnp.zeros(tangent.shape, tangent.dtype) if _is_zero(tangent) else tangent


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _closes_over_tracers(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> bool:
    if isinstance(function, types.FunctionType) and function.__closure__ is None:
        return False
    spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return any(isinstance(each, Tracer) for each in jax.make_jaxpr(function)(spec).consts)
