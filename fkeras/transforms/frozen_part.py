"""Splits a model behind its frozen part, whose outputs for a sample never change in a training.

The front has the calls upstream of every trained weight, every random layer and every layer that
computes other values in training. A nested network is split too where it is called once. Both parts
are networks with the layers, names and calls of the model, so weights, state and random numbers stay
those of the model.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax

from fkeras.engine.call.inference import key_spec, run_call
from fkeras.engine.call.network_inputs import match_inputs
from fkeras.engine.call.signature import RecordedCall, input_signature
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.effects import may_have_effects
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.layer.layer import Layer
from fkeras.engine.network.network import Network
from fkeras.engine.rows.program import RowProgram
from fkeras.engine.rows.values import WHOLE, Value, rows
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Leaf, Tree
from fkeras.engine.values.frozen import FrozenDict
from fkeras.engine.values.spec import Spec, as_probes, as_spec
from fkeras.engine.values.structure import Branch, Ref
from fkeras.transforms.graph.rebuilding import runs_graph

#: the reason of a call with trained weights
TRAINED = "has trained weights"

_ADDRESS = re.compile(r"0x[0-9a-f]+")
# for axes of unknown size, where the program of a call is traced
_SIZE = 32


@dataclasses.dataclass(frozen=True)
class Cut:
    """The place where a network is split, by numbers of its calls.

    Attributes:
        front: the calls whose outputs depend on the sample alone.
        rest: the other calls, and calls of the front that have no rows and whose outputs they take.
        inside: the cuts of nested networks, by number of the call, which is one of `rest`.
    """

    front: tuple[int, ...]
    rest: tuple[int, ...]
    inside: tuple[tuple[int, Cut], ...] = ()


@dataclasses.dataclass(frozen=True)
class FrozenPart:
    """The result of `find_cut`.

    Attributes:
        cut: where the model is split.
        reasons: for each call that ends the front, the layer and why.
    """

    cut: Cut
    reasons: tuple[str, ...]


def find_cut(model: Network, x: Tree) -> FrozenPart:
    """Returns where a model is split behind its frozen part.

    Args:
        model: a built model with a graph, without strings.
        x: the inputs, or their specs; the number of rows has no effect.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from fkeras.transforms.frozen_part import find_cut, front_of
        >>> body = fk.layers.Dense(3, name="body", trainable=False)
        >>> model = fk.Sequential([fk.Input((2,)), body, fk.layers.Dropout(0.5), fk.layers.Dense(1)])
        >>> part = find_cut(model.build(jax.random.key(0)), np.ones((4, 2), "float32"))
        >>> part.cut.front, part.reasons
        ((1,), ("'dropout' (Dropout) draws random numbers",))
    """
    reasons: dict[str, str] = {}
    cut = _by_behavior(model, "", None, reasons)
    kinds = iter(_kinds(model, cut, x))
    cut = _by_rows(model, "", cut, kinds, reasons)
    return FrozenPart(cut, tuple(f"{where} {reason}" for where, reason in reasons.items()))


def front_of(model: Network, cut: Cut) -> Network:
    """Returns the network from the inputs of a model to the list of the features at a cut."""
    return _front(model, cut, _features)


def rest_of(model: Network, cut: Cut) -> Network:
    """Returns the network from the list of the features at a cut to the outputs of the model.

    The weights of `front_weights` may be missing.
    """
    graph, layers = model.graph, dict(model.layers.items())
    calls = [c if n in cut.rest else c.as_input() for n, c in enumerate(graph.calls)]
    inputs = [Ref(slot) for slot in _features(graph, model, cut)]
    slots = len(graph.specs)
    for number, inner_cut in cut.inside:
        call = calls[number]
        nested = model.layers[call.layer]
        assert isinstance(nested, Network)
        inner = layers[call.layer] = rest_of(nested, inner_cut)
        outer_slots = dict(
            zip(nested.graph.input_slots, _argument_slots(nested, call), strict=True)
        )
        arguments = []
        for slot in inner.graph.input_slots:
            if slot not in outer_slots:
                spec, mask = inner.graph.specs[slot], inner.graph.masks[slot]
                name = _free(f"{call.layer}_{inner.graph.coords[slot].layer}", layers)
                layers[name] = InputLayer(spec.dims, dtype=spec.dtype, name=name)
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


def places(model: Network, cut: Cut, path: str = "") -> list[tuple[str, int, int]]:
    """Returns the coordinates of the features inside of the front, nested layers by path."""
    graph = model.graph
    coords = [graph.coords[s] for s in _features(graph, model, cut) if s not in graph.input_slots]
    found = [(join_path(path, coord.layer), coord.node, coord.tensor) for coord in coords]
    for number, inner in cut.inside:
        name = graph.calls[number].layer
        nested: Any = model.layers[name]
        found += places(nested, inner, join_path(path, name))
    return found


def repeated_layers(model: Network, cut: Cut) -> list[str]:
    """Returns the paths of the layers with frozen weights alone that every step computes."""
    return [
        path
        for path, layer in _layers(model, cut, front=False)
        if any(leaf is not None for leaf in leaves_of(layer)) and not _trains(layer)
    ]


# -- the calls of the front -----------------------------------------------------------------------


def _by_behavior(
    network: Network, path: str, training: bool | None, reasons: dict[str, str]
) -> Cut:
    """Returns the cut behind the calls that compute the same in every step.

    Args:
        training: the mode that a call of an outer network pins.
        reasons: receives the reason of each call that ends the front, by layer.
    """
    graph, front, inside = network.graph, [], []
    # a sample alone determines the tensors of the filled slots
    slots = new_slots(graph, [True] * len(graph.input_slots))

    def visit(number: int, call: Call) -> Tree:
        if not all(slots[slot] for slot in call.inputs):
            return None
        layer, at = network.layers[call.layer], join_path(path, call.layer)
        mode = training if call.training is None else call.training
        nested = _opened(graph, call, layer)
        if nested is not None:
            cut = _by_behavior(nested, at, mode, reasons)
            if cut.rest:
                if cut.front or cut.inside:
                    inside.append((number, cut))
                return None
        else:
            calls = [n for n in graph.calls_of[call.layer] if layer.stateful or n == number]
            found = (_reason(network, n, training) for n in calls)
            reason = next(filter(None, found), None)
            if reason is not None:
                reasons.setdefault(f"{at!r} ({type(layer).__name__})", reason)
                return None
        front.append(number)
        return structure.fill(call.value, [True] * len(call.outputs))

    run_calls(graph, slots, visit)
    rest = tuple(number for number in graph.run_order if number not in front)
    return Cut(tuple(front), rest, tuple(inside))


def _opened(graph: Graph, call: Call, layer: Layer) -> Network | None:
    """Returns the nested network whose calls are looked at one by one; None for another layer."""
    if not isinstance(layer, Network) or layer.graph is None or not runs_graph(layer):
        return None
    # the state of a network with several calls may change between them
    if len(graph.calls_of[call.layer]) > 1 or call.options.children:
        return None
    slots = _argument_slots(layer, call)
    return layer if len(slots) == len(layer.graph.input_slots) else None


def _argument_slots(network: Network, call: Call) -> tuple[int, ...]:
    """Returns the slots of the tensors that a call passes to the inputs of a nested network."""
    arguments = structure.thaw(call.args, lambda leaf: leaf)
    refs = match_inputs(network, arguments)
    return tuple(ref.index for ref in refs if isinstance(ref, Ref))


def _trains(layer: Layer) -> bool:
    flags = zip(skeleton_of(layer).trainable, leaves_of(layer), strict=True)
    return any(flag and leaf is not None for flag, leaf in flags)


def _reason(network: Network, number: int, training: bool | None) -> str | None:
    """Returns why a call may compute other values in another step; None if it never does."""
    graph, call = network.graph, network.graph.calls[number]
    layer = network.layers[call.layer]
    if _trains(layer):
        return TRAINED
    if not may_have_effects(layer):
        return None
    # layers that differ only in name share one trace
    skeleton = skeleton_of(layer if layer.name is None else layer.replace(name=None))
    leaves = tuple(None if leaf is None else as_spec(leaf) for leaf in leaves_of(layer))
    mode = training if call.training is None else call.training
    recorded = call.signature.recorded._replace(training=mode)
    return _behavior(skeleton, leaves, recorded, *graph.input_specs(number))


# A memo of a pure function of hashable values, as for inference: networks repeat their calls.
@functools.lru_cache(maxsize=1024)
def _behavior(
    skeleton: Skeleton,
    leaves: tuple[Spec | None, ...],
    call: RecordedCall,
    specs: tuple[Spec, ...],
    masks: tuple[Spec | None, ...],
) -> str | None:
    tensors, tensor_masks, weights = (
        tuple(as_probes(each, _SIZE)) for each in (specs, masks, leaves)
    )
    shapes = structure.fill(call.args, tuple(map(as_spec, tensors)))
    outputs = []

    def trace(training: bool) -> Any:
        def compute(key: Leaf, weights: tuple, tensors: tuple, tensor_masks: tuple) -> Tree:
            layer, mode = skeleton.join(weights), call._replace(training=training)
            out = run_call(layer, mode, shapes, key, tensors, tensor_masks)
            outputs.append(out)
            return out.value, out.mask

        return jax.make_jaxpr(compute)(key_spec(), weights, tensors, tensor_masks)

    modes = (True, False) if call.training is None else (call.training,)
    try:
        programs = [trace(mode) for mode in modes]
    except Exception as error:
        return f"cannot be traced for {_SIZE} rows ({type(error).__name__})"
    if outputs[0].updates:
        return "changes its state in training"
    if outputs[0].losses:
        return "adds a loss"
    if outputs[0].metrics:
        return "reports a metric"
    key = programs[0].jaxpr.invars[0]
    if any(key is atom for equation in programs[0].jaxpr.eqns for atom in equation.invars):
        return "draws random numbers"
    if len({_ADDRESS.sub("", str(program)) for program in programs}) > 1:
        return "computes other values in training"
    return None


# -- rows -----------------------------------------------------------------------------------------


def _kinds(model: Network, cut: Cut, x: Tree) -> list[Value]:
    """Returns how each output of the calls of the front depends on the rows of a batch."""
    if not cut.front and not cut.inside:
        return []
    network = _front(model, cut, _made)

    def compute(model: Network, state: Any, x: Tree) -> Tree:
        return network.replace(layers=model.layers).apply(x, state=state).value

    layers = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), network)
    state = jax.eval_shape(model.init_state)

    def trace(count: int) -> Any:
        batch = jax.tree.map(lambda a: jax.ShapeDtypeStruct((count, *a.shape[1:]), a.dtype), x)
        return jax.make_jaxpr(compute)(layers, state, batch)

    whole = len(jax.tree.leaves((layers, state)))
    values = [WHOLE] * whole + [rows(0)] * len(jax.tree.leaves(x))
    # the engine records models for any number of rows from 2 on
    return RowProgram().results(trace(4), trace(3), values)


def _by_rows(
    network: Network, path: str, cut: Cut, kinds: Iterator[Value], reasons: dict[str, str]
) -> Cut:
    """Returns the cut without calls that mix rows; calls without rows are in both parts.

    Args:
        kinds: those of the outputs of the calls, in the order of `_made` of all networks.
    """
    graph = network.graph
    by_slot = dict(zip(_made(graph, network, cut), kinds, strict=False))
    made, front, whole, inside = set(graph.input_slots), [], set(), []
    for number in cut.front:
        call, slots = graph.calls[number], graph.output_slots_of(number)
        found = [by_slot[slot] for slot in slots]
        if not made.issuperset(call.inputs):
            continue
        if all(kind.is_whole for kind in found):
            whole.add(number)
        elif not all(kind.is_rows and kind.axis == 0 for kind in found):
            where = f"{join_path(path, call.layer)!r} ({type(network.layers[call.layer]).__name__})"
            reasons.setdefault(where, "may compute a row from other rows of the batch")
            continue
        made.update(slots)
        front.append(number)
    for number, inner in cut.inside:
        call = graph.calls[number]
        nested: Any = network.layers[call.layer]
        inner = _by_rows(nested, join_path(path, call.layer), inner, kinds, reasons)
        if made.issuperset(call.inputs) and (inner.front or inner.inside):
            inside.append((number, inner))
    rest = {number for number in graph.run_order if number not in front}
    while True:
        part = Cut(tuple(front), tuple(n for n in graph.run_order if n in rest), tuple(inside))
        needed = {graph.producer(slot)[0] for slot in _features(graph, network, part)} & whole
        if not needed:
            return part
        rest |= needed


# -- the two networks -----------------------------------------------------------------------------


def _features(graph: Graph, network: Network, cut: Cut) -> list[int]:
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
        inner = set(_features(nested.graph, nested, inside[number]))
        pairs = zip(nested.graph.input_slots, _argument_slots(nested, call), strict=True)
        needed.update(outer for slot, outer in pairs if slot in inner)
    return sorted(needed - made)


def _made(graph: Graph, network: Network, cut: Cut) -> list[int]:
    """Returns the slots that the calls of the front fill."""
    return [slot for number in cut.front for slot in graph.output_slots_of(number)]


def _front(
    model: Network, cut: Cut, pick: Callable[[Graph, Network, Cut], list[int]], nested: bool = False
) -> Network:
    """Returns the network of the front that returns the slots of `pick`, then those inside."""
    graph, layers = model.graph, dict(model.layers.items())
    calls = [c if c.is_input or n in cut.front else c.as_input() for n, c in enumerate(graph.calls)]
    # the inputs of a nested network are tensors of the outer one
    picked = [s for s in pick(graph, model, cut) if not nested or s not in graph.input_slots]
    outputs, slots = [Ref(slot) for slot in picked], len(graph.specs)
    for number, inner_cut in cut.inside:
        call = graph.calls[number]
        network: Any = model.layers[call.layer]
        inner = _front(network, inner_cut, pick, nested=True)
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
    """Yields `(path, layer)` of the layers that the calls of one part call."""
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
