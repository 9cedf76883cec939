"""Rematerialization: a training step that stores fewer intermediate arrays and recomputes them.

A backward pass needs the intermediate arrays of the forward pass. One `jax.checkpoint` around the
complete loss saves no memory, because the backward pass recomputes all arrays at once. This module
divides the calls of a graph into segments. The step stores the tensors between segments, and recomputes
the tensors inside a segment when the backward pass reaches the segment. The division minimizes the size
of the stored tensors plus the size of the largest segment: n equal layers in a row give about sqrt(n)
segments (Chen et al., Training deep nets with sublinear memory cost, 2016), and a row of blocks is
divided between the blocks. Repeated blocks that run as one loop are a segment each.

Temporary memory of a compiled step, for twelve Dense(256) and 4096 rows: 100.9 MB without
rematerialization, 100.9 MB with one checkpoint around the loss, 54.8 MB with one checkpoint for each
layer, 38.0 MB in segments ("full"). For eight residual blocks of two Dense layers: 987 MB without, 325 MB
with "full", 342 MB with "dots".
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
from fkeras.engine.graph.repeats import Repeat
from fkeras.engine.graph.walk import crossing, segment
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.programs.walk import equations
from fkeras.transforms.intercepting import Intercepted

Policy = Callable[..., Any]

Model = TypeVar("Model", bound=Layer)


def _weight_products(primitive: Any, *args: Any, **params: Any) -> Any:
    # Products with weights are expensive to compute and small to store. Products with batch axes, such
    # as attention scores, grow with the square of the sequence length and are recomputed.
    if primitive.name == "platform_form":
        return any(_weight_products(e.primitive, **e.params) for e in equations(params["jaxpr"]))
    if primitive.name == "conv_general_dilated":
        return True
    is_saveable = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return is_saveable(primitive, *args, **params)


_POLICIES = types.MappingProxyType(
    {"full": jax.checkpoint_policies.nothing_saveable, "dots": _weight_products}
)


def get_policy(policy: Any) -> Policy | None:
    """Returns the policy of `jax.checkpoint` with a name; a policy selects the arrays to store.

    Args:
        policy: None, "full", "dots", or a policy of `jax.checkpoint_policies`.

    Raises:
        ValueError: for an unknown name; the message suggests a similar name.

    Example:
        >>> import jax
        >>> get_policy("full") is jax.checkpoint_policies.nothing_saveable
        True
    """
    if policy is None or (callable(policy) and not isinstance(policy, type)):
        return policy
    if not isinstance(policy, str) or policy not in _POLICIES:
        is_jax_policy = isinstance(policy, str) and hasattr(jax.checkpoint_policies, policy)
        hint = suggest(policy, _POLICIES) if isinstance(policy, str) and not is_jax_policy else ""
        name = policy if is_jax_policy else "dots_saveable"
        raise ValueError(
            f"remat: expected None, {', '.join(map(repr, _POLICIES))} or a policy of JAX, received "
            f"{policy!r}.{hint} Pass JAX's policies as functions: remat=jax.checkpoint_policies.{name}."
        )
    return _POLICIES[policy]


@hides_internal_frames
def rematerialized(model: Model, policy: Any) -> Model:
    """Returns a model that stores fewer arrays for its gradient and recomputes the others.

    The results and the leaves are those of the model, and random layers draw the same numbers from the
    same keys. A nested network that stores more than half of the outer network's numbers is divided
    into segments, too.

    On GPUs and TPUs every compiled function saves memory. XLA's CPU compiler undoes the
    rematerialization unless the function is compiled with `compiler_options()`.

    Args:
        model: a built model; a layer that is not a network is one segment.
        policy: "full" stores only the tensors between segments and costs about one more forward
            pass; "dots" also stores the products with weights, convolutions included, and
            recomputes cheap operations: activations, normalization, attention scores. None returns
            the model. A policy of `jax.checkpoint_policies` is used as passed.

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
    jax_policy = get_policy(policy)
    if jax_policy is None:
        return model
    run_segments = functools.partial(_run, jax_policy)
    # typed as the model, since the wrapper forwards all attributes
    intercepted: Any = Intercepted(
        model, run_segments, name=model.name, trainable=model.trainable, dtype=model.dtype
    )
    return returned(
        intercepted, "fk.rematerialized", "model = fk.rematerialized(model, policy)", depth=2
    )


def compiler_options() -> dict[str, str]:
    """Returns the `compiler_options` of `jax.jit` with which the backend does not undo rematerialization.

    XLA's CPU compiler removes the barriers between the first and the second computation of an array, and
    then merges the two computations; other backends need no options. JAX accepts these options only in
    the outermost `jax.jit`.

    Example:
        >>> import jax
        >>> step = jax.jit(lambda x: x + 1, compiler_options=compiler_options())
        >>> int(step(1))
        2
    """
    return backend_options(jax.default_backend())


def backend_options(backend: str) -> dict[str, str]:
    """Returns the `compiler_options` for a backend by JAX's name; see `compiler_options`."""
    return {"xla_disable_hlo_passes": "cse_barrier_expander"} if backend == "cpu" else {}


def _run(
    jax_policy: Policy, path: str, layer: Layer, context: Context, inputs: tuple, options: Mapping
) -> Output:
    if isinstance(layer, Network) and layer.graph is not None and not options:
        if any(isinstance(step, Repeat) for step in layer.graph.steps):
            context = copy.copy(context)
            # XLA does not merge the computations of two loops, so no barrier is needed
            context.around_block = functools.partial(
                jax.checkpoint, policy=jax_policy, prevent_cse=False
            )
            return context.run(layer, *inputs)
        return _run_segments(jax_policy, layer, context, inputs)
    compute = jax.checkpoint(
        lambda *arrays: context.run(layer, *arrays, **options), policy=jax_policy
    )
    return compute(*inputs)


def _run_segments(jax_policy: Policy, network: Network, context: Context, inputs: tuple) -> Output:
    graph, large_calls = network.graph, _large_networks(network)
    nested_names = {graph.calls[number].layer for number in large_calls}
    layers = {
        name: rematerialized(layer, jax_policy) if name in nested_names else layer
        for name, layer in network.layers.items()
    }
    network = network.replace(layers=FrozenDict(layers))
    segments = _segments(network, large_calls)
    out = Output(inputs, mask=context.mask)
    updates, losses, metrics = {}, (), {}
    for index, numbers in enumerate(segments):
        last = index == len(segments) - 1
        segment_network = network.replace(
            graph=segment(graph, numbers, first=index == 0, last=last)
        )

        def compute(
            state: Any, mask: Any, *arrays: Any, segment_network: Network = segment_network
        ) -> Output:
            # segments share the key and the mode of the context, but not its state and mask
            segment_context = copy.copy(context)
            segment_context.state, segment_context.mask = state, mask
            return segment_network.forward(segment_context, *arrays)

        if not last and not large_calls.intersection(numbers):
            # The backward pass starts in the last segment, whose arrays still exist: recomputing them
            # saves no memory. Large nested networks have segments of their own.
            compute = jax.checkpoint(compute, policy=jax_policy)
        # a layer with calls in two segments continues with its updated state
        state = {**context.state, **updates}
        out = compute(state, out.mask, *(inputs if index == 0 else (out.value,)))
        updates = {**updates, **out.updates}
        losses, metrics = (*losses, *out.losses), {**metrics, **out.metrics}
    return dataclasses.replace(out, updates=updates, losses=losses, metrics=metrics)


def _size(specs: Any) -> int:
    return sum(math.prod(d for d in spec.dims if isinstance(d, int)) for spec in specs)


def _stored_size(network: Any, number: int) -> int:
    """Returns the number of array elements that a call stores for each row of the batch."""
    call = network.graph.calls[number]
    # a network with stacked blocks has the layers of one block, its graph the shapes of all layers
    skeleton, leaves = network.graph.shapes[call.layer]
    layer = skeleton.join(leaves or (None,) * len(skeleton.names))
    if not isinstance(layer, Network) or layer.graph is None:
        return 0 if call.is_input else _size(call.outputs)
    return sum(_stored_size(layer, inner) for inner in range(len(layer.graph.calls)))


def is_mostly_repeats(network: Network) -> bool:
    """Returns whether repeated blocks store more than half of the numbers of a network.

    Rematerialization then stores the tensors between the blocks; otherwise segments store less.

    Example:
        >>> import fkeras as fk
        >>> layers = [fk.layers.Dense(4) for _ in range(5)]
        >>> model = fk.Sequential([fk.Input((4,)), *layers, fk.layers.Dense(3)])
        >>> is_mostly_repeats(fk.transforms.roll(model))
        True
    """
    repeats = [step for step in network.graph.steps if isinstance(step, Repeat)]
    repeated = {number for step in repeats for block in step.blocks for number in block}
    sizes = [_stored_size(network, number) for number in range(len(network.graph.calls))]
    return sum(sizes[number] for number in repeated) > sum(sizes) / 2


def _large_networks(network: Network) -> frozenset[int]:
    """Returns the calls of nested networks that store more than half of the network's numbers."""
    sizes = [_stored_size(network, number) for number in range(len(network.graph.calls))]
    return frozenset(
        number
        for number, call in enumerate(network.graph.calls)
        if isinstance(network.layers.get(call.layer), Network) and sizes[number] > sum(sizes) / 2
    )


def _segments(network: Network, large_calls: frozenset[int]) -> list[list[int]]:
    """Returns the calls in segments that minimize the stored numbers.

    The cost is the size of the tensors between segments plus the size of the largest segment.

    Args:
        large_calls: calls of large nested networks; each is a segment alone.
    """
    graph = network.graph
    numbers = graph.run_order
    sizes = {
        number: 0 if number in large_calls else _stored_size(network, number) for number in numbers
    }
    specs, inputs = graph.specs, set(graph.input_slots)
    crossing_sizes = {
        number: _size(specs[slot] for slot in crossing(graph, position) if slot not in inputs)
        for position, number in enumerate(numbers)
    }

    def cut_at(limit: float) -> list[list[int]]:
        segments, total = [], 0
        for number in numbers:
            starts_segment = number in large_calls or (segments and segments[-1][-1] in large_calls)
            total += sizes[number]
            if not segments or starts_segment or total > limit:
                segments.append([])
                total = sizes[number]
            segments[-1].append(number)
        return segments

    def cost(segments: list[list[int]]) -> int:
        crossing_size = sum(crossing_sizes[segment_numbers[0]] for segment_numbers in segments[1:])
        return crossing_size + max(
            sum(sizes[n] for n in segment_numbers) for segment_numbers in segments
        )

    candidates = [cut_at(sum(sizes.values()) / count) for count in range(1, len(numbers) + 1)]
    # reversed: of equal costs `min` returns the first, and shorter segments are better, since a call
    # stores more arrays than its outputs
    return min(reversed(candidates), key=cost)
