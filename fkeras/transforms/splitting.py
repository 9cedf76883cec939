"""Splits a network in two: the network in front of a `Cut`, and the network behind the cut.

Both are networks with the layers, names and calls of the model, so weights, state and random numbers
stay those of the model. A nested network is split too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from fkeras.engine.call.network_inputs import match_inputs
from fkeras.engine.call.signature import input_signature
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.graph import Graph
from fkeras.engine.layer.layer import Layer
from fkeras.engine.network.network import Network
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values import structure
from fkeras.engine.values.frozen import FrozenDict
from fkeras.engine.values.structure import Branch, Ref


@dataclasses.dataclass(frozen=True)
class Cut:
    """Where a network is split, by call number.

    Attributes:
        front: the calls whose outputs depend on the sample alone.
        rest: the other calls, and calls of the front without a batch axis whose outputs they take.
        inside: the cuts of nested networks, by the number of their call, which is in `rest`.
    """

    front: tuple[int, ...]
    rest: tuple[int, ...]
    inside: tuple[tuple[int, Cut], ...] = ()


def front_of(model: Network, cut: Cut) -> Network:
    """Returns the network from the inputs of a model to the list of features at a cut."""
    return front_network(model, cut, feature_slots)


def rest_of(model: Network, cut: Cut) -> Network:
    """Returns the network from the list of features at a cut to the outputs of the model.

    The model may lack the weights of `front_weights`.
    """
    graph, layers = model.graph, dict(model.layers.items())
    calls = [c if n in cut.rest else c.as_input() for n, c in enumerate(graph.calls)]
    inputs = [Ref(slot) for slot in feature_slots(graph, model, cut)]
    slots = len(graph.specs)
    for number, inner_cut in cut.inside:
        call = calls[number]
        nested = model.layers[call.layer]
        assert isinstance(nested, Network)
        inner = layers[call.layer] = rest_of(nested, inner_cut)
        outer_slots = dict(zip(nested.graph.input_slots, argument_slots(nested, call), strict=True))
        arguments = []
        for slot in inner.graph.input_slots:
            if slot not in outer_slots:
                spec, mask = inner.graph.specs[slot], inner.graph.masks[slot]
                name = _free(f"{call.layer}_{inner.graph.coords[slot].layer}", layers)
                layers[name] = InputLayer(batch_shape=spec.dims, dtype=spec.dtype, name=name)
                signature = dataclasses.replace(input_signature(spec), masks=(mask,))
                calls.append(Call(name, signature))
                inputs.append(Ref(slots))
                outer_slots[slot], slots = slots, slots + 1
            arguments.append(outer_slots[slot])
        refs = Branch("list", (), tuple(map(Ref, range(len(arguments)))))
        signature = dataclasses.replace(call.signature, args=Branch("tuple", (), (refs,)))
        calls[number] = Call(call.layer, signature, tuple(arguments))
    return _network(model, layers, calls, Branch("list", (), tuple(inputs)), graph.outputs)


def front_weights(model: Network, cut: Cut) -> tuple[str, ...]:
    """Returns the paths of the weights that only the front reads."""
    rest = {path for path, _ in _layers(model, cut, front=False)}
    return tuple(
        join_path(path, name)
        for path, layer in _layers(model, cut, front=True)
        if path not in rest
        for name, leaf in zip(skeleton_of(layer).names, leaves_of(layer), strict=True)
        if leaf is not None
    )


def frozen_values(model: Network, state: Any, cut: Cut) -> dict[str, Any]:
    """Returns the weights and the state of the layers of the front, by path."""
    values: dict[str, Any] = {}
    for path, layer in _layers(model, cut, front=True):
        names = skeleton_of(layer).names
        values |= {join_path(path, n): a for n, a in zip(names, leaves_of(layer), strict=True)}
        part = state
        for name in path.split("/"):
            part = part.get(name, {})
        values[f"{path}, state"] = part
    return values


def feature_coordinates(model: Network, cut: Cut, path: str = "") -> list[tuple[str, int, int]]:
    """Returns the coordinates of the features, without the inputs of the model; nested layers by path."""
    graph = model.graph
    coords = [
        graph.coords[s] for s in feature_slots(graph, model, cut) if s not in graph.input_slots
    ]
    places = [(join_path(path, coord.layer), coord.node, coord.tensor) for coord in coords]
    for number, inner in cut.inside:
        name = graph.calls[number].layer
        nested: Any = model.layers[name]
        places += feature_coordinates(nested, inner, join_path(path, name))
    return places


def repeated_layers(model: Network, cut: Cut) -> list[str]:
    """Returns the paths of frozen layers with weights that every step still computes."""
    return [
        path
        for path, layer in _layers(model, cut, front=False)
        if any(leaf is not None for leaf in leaves_of(layer)) and not has_trained_weights(layer)
    ]


def argument_slots(network: Network, call: Call) -> tuple[int, ...]:
    """Returns the slots of the tensors that a call passes to the inputs of a nested network."""
    arguments = structure.thaw(call.args, lambda leaf: leaf)
    refs = match_inputs(network, arguments)
    return tuple(ref.index for ref in refs if isinstance(ref, Ref))


def has_trained_weights(layer: Layer) -> bool:
    flags = zip(skeleton_of(layer).trainable, leaves_of(layer), strict=True)
    return any(flag and leaf is not None for flag, leaf in flags)


def feature_slots(graph: Graph, network: Network, cut: Cut) -> list[int]:
    """Returns the slots that the rest takes from the front or from the inputs."""
    inside = dict(cut.inside)
    made = {slot for number in cut.rest for slot in graph.output_slots_of(number)}
    needed = set(graph.output_slots)
    for number in cut.rest:
        call = graph.calls[number]
        if number not in inside:
            needed.update(call.inputs)
            continue
        nested: Any = network.layers[call.layer]
        inner = set(feature_slots(nested.graph, nested, inside[number]))
        pairs = zip(nested.graph.input_slots, argument_slots(nested, call), strict=True)
        needed.update(outer for slot, outer in pairs if slot in inner)
    return sorted(needed - made)


def front_slots(graph: Graph, network: Network, cut: Cut) -> list[int]:
    """Returns the slots that the calls of the front fill."""
    return [slot for number in cut.front for slot in graph.output_slots_of(number)]


def front_network(
    model: Network, cut: Cut, pick: Callable[[Graph, Network, Cut], list[int]], nested: bool = False
) -> Network:
    """Returns the front, with the slots of `pick` as outputs, then those of nested networks."""
    graph, layers = model.graph, dict(model.layers.items())
    calls = [c if c.is_input or n in cut.front else c.as_input() for n, c in enumerate(graph.calls)]
    # the inputs of a nested network are tensors of the outer network
    picked = [s for s in pick(graph, model, cut) if not nested or s not in graph.input_slots]
    outputs, slots = [Ref(slot) for slot in picked], len(graph.specs)
    for number, inner_cut in cut.inside:
        call = graph.calls[number]
        network: Any = model.layers[call.layer]
        inner = front_network(network, inner_cut, pick, nested=True)
        layers[call.layer] = inner
        made = inner.graph.output_slots
        signature = dataclasses.replace(
            call.signature,
            value=Branch("list", (), tuple(map(Ref, range(len(made))))),
            outputs=tuple(inner.graph.specs[slot] for slot in made),
            masks=tuple(inner.graph.masks[slot] for slot in made),
        )
        calls.append(Call(call.layer, signature, call.inputs))
        outputs += [Ref(slots + index) for index in range(len(made))]
        slots += len(made)
    return _network(model, layers, calls, graph.inputs, Branch("list", (), tuple(outputs)))


def _network(model: Network, layers: dict[str, Any], calls: list, inputs: Any, outputs: Any) -> Any:
    graph = model.graph
    new_depths = (max(graph.depths),) * (len(calls) - len(graph.calls))
    new_names = tuple(name for name in layers if name not in graph.layers)
    graph = dataclasses.replace(
        graph,
        calls=tuple(calls),
        inputs=inputs,
        outputs=outputs,
        depths=graph.depths + new_depths,
        layers=graph.layers + new_names,
    )
    return model.replace(graph=graph).replace(layers=FrozenDict(layers))


def _layers(network: Network, cut: Cut, front: bool, path: str = "") -> Iterator[tuple[str, Layer]]:
    """Yields `(path, layer)` of each layer that is called in one of the two parts."""
    graph, inside = network.graph, dict(cut.inside)
    numbers = cut.front if front else [n for n in cut.rest if n not in inside]
    names = dict.fromkeys(graph.calls[number].layer for number in numbers)
    for name in names:
        yield join_path(path, name), network.layers[name]
    for number, inner in cut.inside:
        name = graph.calls[number].layer
        nested: Any = network.layers[name]
        yield from _layers(nested, inner, front, join_path(path, name))


def _free(name: str, taken: dict[str, Any]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate
