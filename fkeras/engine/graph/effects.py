"""Effects of a graph's calls: losses, penalties, metrics and updates, computed when asked for.

Effects depend on the layers: a frozen layer has no penalties, a frozen BatchNormalization no
updates. A graph therefore stores the layers of its network as shapes and infers the effects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fkeras.engine.call.inference import infer
from fkeras.engine.call.signature import Effects
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.values.annotations import Graph
from fkeras.engine.values.spec import Spec, as_spec

#: by layer name: the static half of a layer and the spec of each of its leaves. No arrays: a graph is
#: static data, and JAX's caches keep static data alive.
Shapes = dict[str, tuple[Skeleton, tuple[Spec | None, ...] | None]]


def shapes_of_layers(layers: Mapping[str, Any]) -> Shapes:
    """Returns the layers of a network as shapes."""
    return {name: (skeleton_of(layer), _specs(layer)) for name, layer in layers.items()}


def _specs(layer: Layer) -> tuple[Spec | None, ...] | None:
    leaves = leaves_of(layer)
    # labels and other values that jax.tree.map put in the places of arrays
    if not all(leaf is None or hasattr(leaf, "shape") for leaf in leaves):
        return None
    return tuple(None if leaf is None else as_spec(leaf) for leaf in leaves)


def effects_of(graph: Graph) -> tuple[Effects, ...]:
    """Returns the effects of each call of a graph; see `Graph.effects`.

    Raises:
        FKerasError: for a graph without layers.
    """
    if graph.shapes is None:
        raise FKerasError(
            "Losses and updates depend on the layers, and this graph has no layers. Use the graph "
            "of a network, model.graph, or bind the layers: graph.bind(layers)."
        )
    return tuple(_effects(graph, number) for number in range(len(graph.calls)))


def _effects(graph: Graph, number: int) -> Effects:
    call = graph.calls[number]
    if call.is_input:
        return Effects()
    skeleton, leaves = graph.shape_of(call.layer)
    no_weights = (None,) * len(skeleton.names)
    layer = skeleton.join(no_weights)._unbuilt() if leaves is None else skeleton.join(leaves)
    if not may_have_effects(layer):
        return Effects()
    return infer(layer, call.signature.recorded, *graph.input_specs(number))[1]


def may_have_effects(layer: Layer) -> bool:
    """Returns whether a layer may have effects; other layers need no tracing."""
    if type(layer).forward is not Layer.forward or skeleton_of(layer).children:
        return True
    if getattr(layer, "activity_regularizer", None) is not None:  # a field or a property
        return True
    fields = (f.name for f in dataclasses.fields(layer) if f.name.endswith("_regularizer"))
    return any(getattr(layer, name) is not None for name in fields)
