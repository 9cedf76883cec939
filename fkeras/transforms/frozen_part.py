"""Finds the frozen part of a model: the calls whose outputs for a sample never change in a training.

The part has the calls upstream of every trained weight, every random layer and every layer that
computes other values in training. A nested network is split too where it is called once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax

from fkeras.engine.call.inference import key_spec, run_call
from fkeras.engine.call.signature import RecordedCall
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.effects import may_have_effects
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.layer.layer import Layer
from fkeras.engine.network.network import Network
from fkeras.engine.rows.program import RowProgram
from fkeras.engine.rows.values import WHOLE, Value, rows
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Leaf, Tree
from fkeras.engine.values.spec import Spec, as_probes, as_spec
from fkeras.programs.walk import equations, text_of
from fkeras.transforms.graph.rebuilding import runs_graph
from fkeras.transforms.splitting import (
    Cut,
    argument_slots,
    feature_slots,
    front_network,
    front_slots,
    has_trained_weights,
)

#: the reason of a call with trained weights
TRAINED = "has trained weights"

# for axes of unknown size, where the program of a call is traced
_SIZE = 32


@dataclasses.dataclass(frozen=True)
class FrozenPart:
    """The result of `find_cut`.

    Attributes:
        cut: where the model is split.
        reasons: the layer of each call that ends the frozen part, and the reason.
    """

    cut: Cut
    reasons: tuple[str, ...]


def find_cut(model: Network, x: Tree) -> FrozenPart:
    """Returns the cut behind the frozen part of a model.

    Args:
        model: a built model with a graph, without strings.
        x: the inputs, or their specs; the number of rows has no effect.
    """
    reasons: dict[str, str] = {}
    cut = _by_behavior(model, "", None, reasons)
    kinds = iter(_kinds(model, cut, x))
    cut = _by_rows(model, "", cut, kinds, reasons)
    return FrozenPart(cut, tuple(f"{where} {reason}" for where, reason in reasons.items()))


def _by_behavior(
    network: Network, path: str, training: bool | None, reasons: dict[str, str]
) -> Cut:
    """Returns the cut behind the calls that compute the same values in every step.

    Args:
        training: the mode that an outer call fixes with `training=...`; None for the mode of the run.
        reasons: filled with the reason of each call that ends the frozen part, by layer.
    """
    graph, front, inside = network.graph, [], []
    # filled slots: tensors that depend on the sample alone
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
    """Returns the layer if it is a network that can be split; None otherwise."""
    if not isinstance(layer, Network) or layer.graph is None or not runs_graph(layer):
        return None
    # the state of a network with several calls may change between them
    if len(graph.calls_of[call.layer]) > 1 or call.options.children:
        return None
    slots = argument_slots(layer, call)
    return layer if len(slots) == len(layer.graph.input_slots) else None


def _reason(network: Network, number: int, training: bool | None) -> str | None:
    """Returns why a call may compute other values in another step; None if it never does."""
    graph, call = network.graph, network.graph.calls[number]
    layer = network.layers[call.layer]
    if has_trained_weights(layer):
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
    shapes = structure.fill_specs(call.args, tuple(map(as_spec, tensors)))
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
    if any(key is atom for equation in equations(programs[0]) for atom in equation.invars):
        return "draws random numbers"
    if len(set(map(text_of, programs))) > 1:
        return "computes other values in training"
    return None


def _kinds(model: Network, cut: Cut, x: Tree) -> list[Value]:
    """Returns whether each output of the front has a batch axis, and whether it mixes rows."""
    if not cut.front and not cut.inside:
        return []
    network = front_network(model, cut, front_slots)

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
    """Returns the cut without calls that mix rows; calls without a batch axis may be in both parts.

    Args:
        kinds: the result of `_kinds`: outer networks come before nested networks.
    """
    graph = network.graph
    by_slot = dict(zip(front_slots(graph, network, cut), kinds, strict=False))
    available, front, whole, inside = set(graph.input_slots), [], set(), []
    for number in cut.front:
        call, slots = graph.calls[number], graph.output_slots_of(number)
        slot_kinds = [by_slot[slot] for slot in slots]
        if not available.issuperset(call.inputs):
            continue
        if all(kind.is_whole for kind in slot_kinds):
            whole.add(number)
        elif not all(kind.is_rows and kind.axis == 0 for kind in slot_kinds):
            where = f"{join_path(path, call.layer)!r} ({type(network.layers[call.layer]).__name__})"
            reasons.setdefault(where, "may compute a row from other rows of the batch")
            continue
        available.update(slots)
        front.append(number)
    for number, inner in cut.inside:
        call = graph.calls[number]
        nested: Any = network.layers[call.layer]
        inner = _by_rows(nested, join_path(path, call.layer), inner, kinds, reasons)
        if available.issuperset(call.inputs) and (inner.front or inner.inside):
            inside.append((number, inner))
    rest = {number for number in graph.run_order if number not in front}
    while True:
        part = Cut(tuple(front), tuple(n for n in graph.run_order if n in rest), tuple(inside))
        needed = {graph.producer(slot)[0] for slot in feature_slots(graph, network, part)} & whole
        if not needed:
            return part
        rest |= needed
