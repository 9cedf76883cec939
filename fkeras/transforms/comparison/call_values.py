"""The values of the calls of a graph, by coordinates: what `agree` compares."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import Context, Layer, Network
from fkeras.engine.call.strings import has_strings
from fkeras.engine.config.late_module import late_module
from fkeras.engine.graph.call_table import Coord
from fkeras.engine.tree.skeleton import leaves_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values.structure import visits
from fkeras.transforms.depth import unroll
from fkeras.transforms.intercepting import TracedCall, trace_calls


@dataclasses.dataclass(frozen=True, eq=False)
class CallValues:
    """The arrays of one call.

    Attributes:
        values: the outputs.
        parts: other results by name: masks, updates of the state, losses; None if unknown.
        reduction: number of terms of the longest sum in the call, estimated from shapes.
    """

    values: tuple[Any, ...]
    parts: Mapping[str, Any] | None = None
    reduction: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """What one side of a comparison computed.

    Attributes:
        calls: the calls in running order, by path of the layer and index of the call.
        outputs: the outputs, None if unknown.
        with_calls: the outputs and the values by coordinates, for a function that returns both: the
            outputs of a model with probes.
        names: the coordinates of the outputs, for a network.
        model: the model, if the side is one.
    """

    calls: Mapping[tuple[str, int], CallValues]
    outputs: tuple[Any, ...] | None = None
    names: tuple[Coord, ...] = ()
    model: Layer | None = None
    with_calls: tuple[Any, ...] = ()


def run_side(
    side: Any,
    inputs: Any,
    training: bool,
    key: jax.Array | None,
    custom_objects: Mapping[str, Any] | None,
) -> Run:
    """Computes one side of `agree`, which documents the arguments."""
    if isinstance(side, str | os.PathLike):
        path = side
        side = late_module("saving.computed_files").open_computed(path, custom_objects)
    if isinstance(side, Layer):
        return _run_model(side, None, inputs, training, key)
    if isinstance(side, tuple) and len(side) == 2 and isinstance(side[0], Layer):
        return _run_model(side[0], side[1], inputs, training, key)
    if not callable(side):
        raise TypeError(
            "transforms.agree: expected a model, (model, state), a function or the path of a file, "
            f"received {type(side).__name__}."
        )
    return _sorted(side(inputs))


def _run_model(model: Layer, state: Any, inputs: Any, training: bool, key: jax.Array | None) -> Run:
    if not model.built:
        raise ValueError(
            f"transforms.agree, {model._where}: expected a built model, received one without weights. "
            "Build it: `model = model.build(jax.random.key(0))`."
        )
    if has_strings(model):
        raise ValueError(
            f"transforms.agree, {model._where}: expected a model of numbers, received one with strings. "
            "Compare the device part: `host, device = fk.split_host(model)`."
        )
    if state is not None and not isinstance(state, Mapping):
        raise TypeError(
            f"transforms.agree, {model._where}: expected a state as a dictionary, received "
            f"{type(state).__name__}. Pass (model, state), with the state of init_state or of a run."
        )
    # repeated blocks call by call: a loop would show one layer for all blocks
    model = unroll(model)
    arrays = jax.tree.map(jnp.asarray, inputs)
    context = Context(state=state, training=training, key=key)
    traced_calls, output = trace_calls(
        model,
        lambda layer: context.run(layer, arrays),
        lambda layer: isinstance(layer, Network),
    )
    orders = _node_orders(model)
    layers = dict(sublayers(model))
    calls = {
        (call.path, _node(call, orders)): _values(call, layers[call.path])
        for call in traced_calls
        if call.path
    }
    graph = model.graph if isinstance(model, Network) else None
    names = () if graph is None else tuple(graph.coords[slot] for slot in visits(graph.outputs))
    return Run(calls, tuple(jax.tree.leaves(output.value)), names, model)


def _node_orders(model: Layer) -> dict[str, list[int]]:
    """Returns the indices of each layer's calls in running order, by the path of the layer."""
    orders = {}
    for path, network in sublayers(model):
        if isinstance(network, Network):
            graph = network.graph
            places = {number: place for place, number in enumerate(graph.run_order)}
            for name in network.layers:
                numbers = [n for n in graph.calls_of.get(name, ()) if n in places]
                computed = sorted(numbers, key=places.__getitem__)
                nodes = [graph.node_indices[number] for number in computed]
                orders[join_path(path, name)] = nodes
    return orders


def _node(call: TracedCall, orders: Mapping[str, list[int]]) -> int:
    # a nested network that is called twice calls each layer inside twice as often
    order = orders.get(call.path, [0])
    round_number, place = divmod(call.number, len(order))
    return round_number * len(order) + order[place]


def _values(call: TracedCall, layer: Layer) -> CallValues:
    output = call.output
    values = tuple(jax.tree.leaves(output.value))
    trees = {"mask": output.mask, "updates": dict(output.updates), "losses": output.losses}
    parts = {}
    if not isinstance(layer, Network):  # the parts of a network are those of the calls inside
        for name, tree in trees.items():
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
                inner = jax.tree_util.keystr(path, simple=True, separator="/")
                parts[f"{name} {inner}".strip()] = leaf
    return CallValues(values, parts, _reduction(call, layer, values))


def _reduction(call: TracedCall, layer: Layer, values: tuple[Any, ...]) -> float:
    if isinstance(layer, Network):
        return 0.0
    # a kernel has a column of weights for each output; other layers reduce inputs to outputs
    kernels = [leaf for leaf in leaves_of(layer) if leaf is not None and np.ndim(leaf) > 1]
    columns = [leaf.size / leaf.shape[-1] for leaf in kernels if leaf.size]
    inputs = [leaf for leaf in jax.tree.leaves((call.inputs, dict(call.options))) if np.ndim(leaf)]
    smallest = min((np.size(value) for value in values), default=1)
    return max([1.0, sum(leaf.size for leaf in inputs) / max(smallest, 1), *columns])


def _sorted(result: Any) -> Run:
    """Returns the result of a function as outputs, as values by coordinates, or as both."""
    if isinstance(result, Mapping) and result and all(as_coord(k) for k in result):
        return Run(_by_call(result))
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
        if result[1] and all(as_coord(k) for k in result[1]):
            outputs, both = (tuple(jax.tree.leaves(tree)) for tree in (result[0], result))
            return Run(_by_call(result[1]), outputs, with_calls=both)
    return Run({}, tuple(jax.tree.leaves(result)))


def _by_call(values: Mapping[Any, Any]) -> dict[tuple[str, int], CallValues]:
    by_call: dict[tuple[str, int], dict[int, Any]] = {}
    for key, value in values.items():
        coord = as_coord(key)
        assert coord is not None
        tensors = by_call.setdefault((coord.layer, coord.node), {})
        tensors.update({coord.tensor + i: leaf for i, leaf in enumerate(jax.tree.leaves(value))})
    return {
        call: CallValues(tuple(tensors.get(i) for i in range(max(tensors, default=-1) + 1)))
        for call, tensors in by_call.items()
    }


def as_coord(key: object) -> Coord | None:
    """Returns the coordinates for a key of a function's result; None for any other value.

    Args:
        key: coordinates, a tuple `(layer, node, tensor)`, or the key of a call such as "dense_ib-0".

    Example:
        >>> as_coord("encoder/dense_ib-1"), as_coord("score")
        (Coord(layer='encoder/dense', node=1, tensor=0), None)
    """
    if isinstance(key, tuple) and len(key) == 3 and isinstance(key[0], str):
        return Coord(*key)
    if isinstance(key, str):
        layer, mark, node = key.rpartition("_ib-")
        if mark and node.isdigit():
            return Coord(layer, int(node), 0)
    return None


def renamed(calls: Iterable[tuple[str, int]], paths: Mapping[str, str]) -> dict[Any, Any]:
    """Returns for each call the call of the same index of the layer that matches by structure."""
    return {(path, node): (paths.get(path, path), node) for path, node in calls}
