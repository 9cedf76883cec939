"""Rematerialization: a step that keeps fewer intermediate arrays and computes them again.

A backward pass needs what the forward pass computed. One `jax.checkpoint` around a whole loss saves
nothing: all of it is computed again at once. Here the calls of a graph are cut into segments;
between them tensors are kept, inside of them they are computed again when the gradient arrives
there. The cuts are chosen so that what is kept between segments and what the largest of them holds
are least together: n equal layers in a row make about sqrt(n) segments (Chen et al., Training deep
nets with sublinear memory cost, 2016), and a row of blocks is cut between the blocks.

Twelve Dense(256) with 4096 rows, temporary bytes of a compiled step: 100.9 M without, 100.9 M with
one checkpoint around the loss, 54.8 M with one for each layer, 38.0 M in segments ("full"). Eight
residual blocks of two Dense layers: 987 M without, 325 M with "full", 342 M with "dots".
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

from fkeras.engine import Context, FrozenDict, Layer, Network, Output, suggest
from fkeras.engine.graph.walk import crossing, segment
from fkeras.transforms.intercepting import Intercepted

Policy = Callable[..., Any]

Model = TypeVar("Model", bound=Layer)


def _products(primitive: Any, *args: Any, **params: Any) -> Any:
    # products with weights cost most and keep little; those with batch axes, such as the scores of
    # attention, grow with the square of the length and are computed again
    if primitive.name == "conv_general_dilated":
        return True
    keep = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return keep(primitive, *args, **params)


_POLICIES = types.MappingProxyType(
    {"full": jax.checkpoint_policies.nothing_saveable, "dots": _products}
)


def get_policy(policy: Any) -> Policy | None:
    """The policy of `jax.checkpoint` by its name: which arrays a segment keeps.

    Args:
        policy: None, "full", "dots", or a policy of `jax.checkpoint_policies`.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import jax
        >>> get_policy("full") is jax.checkpoint_policies.nothing_saveable
        True
    """
    if policy is None or (callable(policy) and not isinstance(policy, type)):
        return policy
    if not isinstance(policy, str) or policy not in _POLICIES:
        own = isinstance(policy, str) and hasattr(jax.checkpoint_policies, policy)
        hint = suggest(policy, _POLICIES) if isinstance(policy, str) and not own else ""
        name = policy if own else "dots_saveable"
        raise ValueError(
            f"remat: expected None, {', '.join(map(repr, _POLICIES))} or a policy of JAX, received "
            f"{policy!r}.{hint} JAX's own go as functions: remat=jax.checkpoint_policies.{name}."
        )
    return _POLICIES[policy]


def rematerialized(model: Model, policy: Any) -> Model:
    """The model with calls that keep fewer arrays for their gradient and compute the rest again.

    Its values are those of the model, its leaves are the model's, and random layers draw the same
    numbers, since the keys are the same. A network that holds more than half of the
    numbers of the network around it is cut into segments itself.

    On GPUs and TPUs any compiled function saves the memory. XLA's CPU compiler undoes it, unless
    the function is compiled with `compiler_options()`.

    Args:
        model: a built model; a layer that is no network is one segment.
        policy: "full" keeps only what stands between the segments, about one more forward pass of
            computing; "dots" keeps the products with weights too, convolutions included, and
            computes the cheap rest again: activations, normalization, the scores of attention. None
            changes nothing. Any policy of `jax.checkpoint_policies` says for itself what is kept.

    Raises:
        ValueError: for an unknown name.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> from fkeras.transforms.remat import rematerialized
        >>> model = fk.Sequential([fk.Input((4,)), *(fk.layers.Dense(4) for _ in range(9))])
        >>> model, x = model.build(jax.random.key(0)), jnp.ones((2, 4))
        >>> def loss(model, policy):
        ...     return rematerialized(model, policy).apply(x, training=True).value.sum()
        >>> jax.grad(loss)(model, "full") == jax.grad(loss)(model, None)
        True
    """
    keep = get_policy(policy)
    if keep is None:
        return model
    around = functools.partial(_run, keep)
    return Intercepted(model, around, name=model.name, trainable=model.trainable, dtype=model.dtype)


def compiler_options() -> dict[str, str]:
    """What `jax.jit(..., compiler_options=...)` needs so that the backend does not undo it.

    The CPU compiler drops the barriers between first and second computing and then merges the two;
    other backends need nothing. JAX takes these options at the outermost jit alone.

    Example:
        >>> import jax
        >>> step = jax.jit(lambda x: x + 1, compiler_options=compiler_options())
        >>> int(step(1))
        2
    """
    if jax.default_backend() != "cpu":
        return {}
    return {"xla_disable_hlo_passes": "cse_barrier_expander"}


def _run(
    keep: Policy, path: str, layer: Layer, context: Context, inputs: tuple, options: Mapping
) -> Output:
    if isinstance(layer, Network) and layer.graph is not None and not options:
        return _run_segments(keep, layer, context, inputs)
    compute = jax.checkpoint(lambda *given: context.run(layer, *given, **options), policy=keep)
    return compute(*inputs)


def _run_segments(keep: Policy, network: Network, context: Context, inputs: tuple) -> Output:
    graph, large = network.graph, _large(network)
    opened = {graph.calls[number].layer for number in large}
    layers = {n: rematerialized(v, keep) if n in opened else v for n, v in network.layers.items()}
    network = network.replace(layers=FrozenDict(layers))
    parts = _segments(network, large)
    out = Output(inputs, mask=context.mask)
    updates, losses, metrics = {}, (), {}
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        piece = network.replace(graph=segment(graph, part, first=index == 0, last=last))

        def compute(state: Any, mask: Any, *given: Any, piece: Network = piece) -> Output:
            own = copy.copy(context)
            own.state, own.mask = state, mask
            return piece.forward(own, *given)

        if not last and not large.intersection(part):
            # the last segment is needed at once, so it would be computed twice for nothing
            compute = jax.checkpoint(compute, policy=keep)
        state = {**context.state, **updates}
        out = compute(state, out.mask, *(inputs if index == 0 else (out.value,)))
        updates = {**updates, **out.updates}
        losses, metrics = (*losses, *out.losses), {**metrics, **out.metrics}
    return dataclasses.replace(out, updates=updates, losses=losses, metrics=metrics)


def _size(specs: Any) -> int:
    return sum(math.prod(d for d in spec.dims if isinstance(d, int)) for spec in specs)


def _held(network: Any, number: int) -> int:
    """How many numbers a row of the batch leaves behind in a call."""
    call = network.graph.calls[number]
    layer = network.layers[call.layer]
    if not isinstance(layer, Network) or layer.graph is None:
        return 0 if call.is_input else _size(call.outputs)
    return sum(_held(layer, inner) for inner in range(len(layer.graph.calls)))


def _large(network: Network) -> frozenset[int]:
    """The calls of a network inside that holds more than half of all numbers."""
    held = [_held(network, number) for number in range(len(network.graph.calls))]
    return frozenset(
        number
        for number, call in enumerate(network.graph.calls)
        if isinstance(network.layers[call.layer], Network) and held[number] > sum(held) / 2
    )


def _segments(network: Network, large: frozenset[int]) -> list[list[int]]:
    """The numbers of the calls in segments, for which kept and held numbers are least together."""
    graph = network.graph
    numbers = graph.run_order
    held = {number: 0 if number in large else _held(network, number) for number in numbers}
    specs, given = graph.specs, set(graph.input_slots)
    kept = {
        number: _size(specs[s] for s in crossing(graph, place) if s not in given)
        for place, number in enumerate(numbers)
    }

    def cut(limit: float) -> list[list[int]]:
        parts, total = [], 0
        for number in numbers:
            alone = number in large or (parts and parts[-1][-1] in large)
            total += held[number]
            if not parts or alone or total > limit:
                parts.append([])
                total = held[number]
            parts[-1].append(number)
        return parts

    def cost(parts: list[list[int]]) -> int:
        between = sum(kept[part[0]] for part in parts[1:])
        return between + max(sum(held[n] for n in part) for part in parts)

    choices = [cut(sum(held.values()) / count) for count in range(1, len(numbers) + 1)]
    # of equal choices the one with shorter segments: a call holds more than its outputs
    return min(reversed(choices), key=cost)
