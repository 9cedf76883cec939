"""What the calls of a graph add beside their values: losses, metrics and updates.

A `Call` remembers it as it was recorded. Freezing changes it (a frozen layer has no penalties, and
a frozen BatchNormalization no updates), so the network that freezes reads it again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fkeras.engine.call.record import infer
from fkeras.engine.graph.graph import Call, Graph


def refreshed(network: Any) -> Graph | None:
    """The network's graph with what its layers, as they now are, add beside their values."""
    graph = network.graph
    if graph is None:
        return None
    tensors = network._open()
    calls = list(graph.calls)
    for number, call in enumerate(calls):
        if not call.is_input and _adds(network.layers[call.layer], call):
            calls[number] = _read_again(call, tensors[graph.first_slots[number]].node)
    return dataclasses.replace(graph, calls=tuple(calls))


def _adds(layer: Any, call: Call) -> bool:
    """Whether a call may add something; most need no second look."""
    if layer.stateful or call.losses or call.penalties or layer.transparent_field is not None:
        return True
    fields = (f.name for f in dataclasses.fields(layer) if f.name.endswith("_regularizer"))
    return any(getattr(layer, name) is not None for name in fields)


def _read_again(call: Call, node: Any) -> Call:
    # without the name equal layers share one inference
    found = infer(
        node.layer.replace(name=None),
        node.args,
        node.options,
        tuple(t.spec for t in node.inputs),
        tuple(t.node.masks[t.index] for t in node.inputs),
        call.training,
        call.mask_rule,
    )
    return dataclasses.replace(
        call,
        losses=found.losses,
        penalties=found.penalties,
        metrics=found.metrics,
        updates=found.updates,
    )
