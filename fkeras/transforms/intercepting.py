"""Intercepts the calls inside a layer; traces their values and gradients.

Graphs and layers that hold layers call their layers by `Context.run`. `intercept` returns a copy of a
layer in which a function handles every such call: the function may record the call, change it, or
compute something else. The copy is as pure as the layer.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.call.context import Context, Output
from fkeras.engine.layer.intercepted import Around
from fkeras.engine.layer.intercepted import Intercepted as Intercepted
from fkeras.engine.layer.layer import Layer
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.tree.array_list import replace_leaves
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import replace_children
from fkeras.engine.values.frozen import is_array


def everywhere(layer: Layer) -> bool:
    """Returns True: calls inside every layer are intercepted."""
    return True


def intercept(
    layer: Layer, around: Around, path: str = "", inside: Callable[[Layer], bool] = everywhere
) -> Layer:
    """Returns a copy of a built layer in which `around` handles its calls and all calls inside.

    The function receives the layer with the calls inside intercepted too; `context.run(layer,
    *inputs, **options)` computes the call.

    Args:
        around: `(path, layer, context, inputs, options) -> Output`; the path is that of
            `fk.engine.sublayers`.
        inside: returns whether the calls inside a layer are intercepted too.
    """
    if isinstance(layer, InputLayer):  # an input is not computed, and the graph reads its options
        return layer
    inner = layer
    if inside(layer):
        inner = replace_children(
            layer, lambda at, child: intercept(child, around, at, inside), path
        )
    return Intercepted(
        inner, around, path, name=layer.name, trainable=layer.trainable, dtype=layer.dtype
    )


@dataclasses.dataclass(frozen=True)
class TracedCall:
    """One call with its inputs and output.

    Attributes:
        path: the path of the layer; "" for the layer that was traced.
        number: the number of earlier calls with the same path.
        ticket: the number of calls begun earlier with any path, including calls under `vmap`: equal
            in every run of the same layer, so a ticket identifies a call.
        context: the context of the call.
        inputs: the positional inputs.
        options: the inputs by name.
        output: the output.
    """

    path: str
    number: int
    ticket: int
    context: Context
    inputs: tuple
    options: Mapping[str, Any]
    output: Output


def trace_values(layer: Layer, context: Context, *inputs: Any) -> tuple[TracedCall, ...]:
    """Returns every call inside a layer with its values, in the order in which the calls finish.

    A call follows the calls inside it; the last call is the call of `layer`. The computation runs
    outside of jit, one operation after the other, and loops over time step by step. The result omits
    calls under `jax.vmap`, whose arrays are tracers.

    Args:
        layer: a built layer or model.
    """
    return trace_calls(layer, lambda intercepted: context.run(intercepted, *inputs))[0]


def trace_calls(
    layer: Layer, compute: Callable[[Any], Any], inside: Callable[[Layer], bool] = everywhere
) -> tuple[tuple[TracedCall, ...], Any]:
    """Returns `(calls, value)`: every call inside a layer during a computation, and its result.

    Args:
        layer: a built layer or model.
        compute: `(layer) -> value`; calls the layer, or layers inside the layer, any number of times.
        inside: returns whether the calls inside a layer are traced too.
    """
    traced_calls: list[TracedCall] = []
    call_numbers, call_counts = itertools.count(), collections.Counter[str]()

    def around(path: str, layer: Layer, context: Context, inputs: tuple, options: Any) -> Output:
        # before the call: an outer call gets a lower ticket than the calls inside
        call_number = next(call_numbers)
        output = context.run(layer, *inputs, **options)
        numbers = jax.tree.leaves((inputs, dict(options), output))
        if not any(isinstance(a, Tracer) for a in numbers):
            traced_calls.append(
                TracedCall(path, call_counts[path], call_number, context, inputs, options, output)
            )
            call_counts[path] += 1
        return output

    # without jit and scan, so that the arrays are concrete
    with jax.disable_jit():
        value = compute(intercept(layer, around, inside=inside))
    return tuple(traced_calls), value


def trace_gradients(
    layer: Layer,
    context: Context,
    inputs: tuple,
    calls: tuple[TracedCall, ...],
    loss: Callable[[Layer, Output], jax.Array],
) -> tuple[dict[str, jax.Array], dict[int, tuple[list, list]]]:
    """Returns `(weights, calls)`: gradients of a loss for weights and for the tensors of every call.

    The function differentiates by zeros that are added to the inputs and outputs of each call. A
    tensor that is an input of several calls therefore has a gradient for each of these calls.

    Args:
        layer: a built layer or model.
        context: the context that was passed to `trace_values`.
        inputs: the inputs that were passed to `trace_values`.
        calls: the result of `trace_values`.

    Returns:
        The gradients of the trainable weights by path, and by ticket the gradients of the outputs and
        inputs of each call, one for each floating-point array in them.
    """
    skeleton, leaves = skeleton_of(layer), leaves_of(layer)
    weights = zip(skeleton.names, leaves, skeleton.trainable, strict=True)
    trained_weights = {name: leaf for name, leaf, flag in weights if flag and is_floating(leaf)}
    zeros = {
        call.ticket: tuple(
            zeros_like(tree) for tree in (call.output.value, (call.inputs, dict(call.options)))
        )
        for call in calls
    }

    def total(trained_weights: dict, zeros: dict) -> jax.Array:
        call_numbers = itertools.count()

        def around(_: str, layer: Layer, context: Context, inputs: tuple, options: Any) -> Output:
            outer, inner = zeros.get(next(call_numbers), (None, None))
            if inner is not None:
                inputs, options = add_floating((inputs, dict(options)), inner)
            out = context.run(layer, *inputs, **options)
            if outer is None:
                return out
            return dataclasses.replace(out, value=add_floating(out.value, outer))

        new_layer = replace_leaves(layer, trained_weights)
        return loss(new_layer, context.run(intercept(new_layer, around), *inputs))

    with jax.disable_jit():
        return jax.grad(total, argnums=(0, 1))(trained_weights, zeros)


def is_floating(value: Any) -> bool:
    """Returns whether `value` is a floating-point array."""
    return is_array(value) and jnp.issubdtype(value.dtype, jnp.floating)


def floating(tree: Any) -> list[Any]:
    """Returns the floating-point arrays in a tree."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_floating(leaf)]


def zeros_like(tree: Any) -> list[np.ndarray]:
    """Returns zeros for the floating-point arrays in a tree; NumPy's zeros compile nothing."""
    return [np.zeros(a.shape, a.dtype) for a in floating(tree)]


def put_floating(tree: Any, values: list[Any]) -> Any:
    """Returns the tree with `values` in the place of its floating-point arrays."""
    remaining = iter(values)
    return jax.tree.map(lambda a: next(remaining) if is_floating(a) else a, tree)


def add_floating(tree: Any, terms: list[Any]) -> Any:
    """Returns the tree with `terms` added to its floating-point arrays."""
    pairs = zip(floating(tree), terms, strict=True)
    return put_floating(tree, [array + term for array, term in pairs])
