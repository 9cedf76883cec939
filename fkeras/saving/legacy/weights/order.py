"""Order of a layer's arrays in Keras 1 and 2: trainable arrays first, then the others.

Unlike in `fkeras.engine.tree.weight_lists`, all trainable arrays of a network, also those of nested
layers, come before all other arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.authoring.engine import children, keras_form, layer_arrays
from fkeras.engine import Layer, Network, Sequential

#: names of the layers of each network in the file's order, by path
Orders = Mapping[tuple[str, ...], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Unit:
    """Adjacent arrays of one layer in a file's list.

    Attributes:
        names: paths of weights in the model, or of entries in the state.
        kinds: "weight" or "state" for each array.
    """

    layer: Layer
    names: tuple[str, ...]
    kinds: tuple[str, ...]


def listed(layer: Layer, state: Mapping[str, Any], path: tuple[str, ...], orders: Orders) -> list:
    """Returns the units of `layer` in the order of a legacy file."""
    trained, untrained = _trainable_and_rest(layer, state, path, orders)
    return _merge_adjacent([*trained, *untrained])


def trained(layer: Layer, path: tuple[str, ...], orders: Orders) -> list[str]:
    """Returns the paths of the trainable weights in `layer`, in the order of a legacy file."""
    return [name for unit in _trainable_and_rest(layer, {}, path, orders)[0] for name in unit.names]


def ordered(network: Network, path: tuple[str, ...], orders: Orders) -> list[str]:
    """Returns the names of a network's layers in the file's order, else in the network's order."""
    names = list(network.layers)
    file_positions = {name: i for i, name in enumerate(orders.get(path, ()))}
    if isinstance(network, Sequential):
        names = [str(layer.name) for layer in network]
    # Layers without a name in the file got other names: the file's order does not apply.
    if not file_positions or not set(file_positions) <= set(names):
        return names
    return sorted(names, key=lambda name: file_positions.get(name, -1))


def _trainable_and_rest(
    layer: Layer, state: Mapping[str, Any], path: tuple[str, ...], orders: Orders
) -> tuple[list[Unit], list[Unit]]:
    own_units = _own_units(layer, state, path)
    if isinstance(layer, Network):
        inner_layers = [(name, layer.layers[name]) for name in ordered(layer, path, orders)]
    else:
        inner_layers = list(children(layer))
    pairs = [
        _trainable_and_rest(child, state_of(state, name), (*path, *name.split("/")), orders)
        for name, child in inner_layers
    ]
    weights, others = own_units
    trained = [weights] if weights.names else []
    untrained = [others] if others.names else []
    if layer.trainable:
        trained += [unit for trained_units, _ in pairs for unit in trained_units]
        untrained += [unit for _, untrained_units in pairs for unit in untrained_units]
        return trained, untrained
    # Keras counts all weights of a frozen layer as non-trainable, in the order of its layers.
    units = [
        *trained,
        *untrained,
        *(
            u
            for trained_units, untrained_units in pairs
            for u in (*trained_units, *untrained_units)
        ),
    ]
    return [], _early_first(layer, units, path)


def _early_first(layer: Layer, units: list[Unit], path: tuple[str, ...]) -> list[Unit]:
    """Moves child weights that Keras lists before a frozen layer's own weights to the front."""
    early = {"/".join((*path, name)) for name in keras_form(layer).early_weights}
    if not early:
        return units
    parts = [_select(unit, early, members) for members in (True, False) for unit in units]
    return [unit for unit in parts if unit.names]


def _select(unit: Unit, names: set[str], members: bool) -> Unit:
    pairs = zip(unit.names, unit.kinds, strict=True)
    selected = [(name, kind) for name, kind in pairs if (name in names) == members]
    return Unit(unit.layer, tuple(n for n, _ in selected), tuple(k for _, k in selected))


def state_of(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    child_state = state.get(name, {})
    return child_state if isinstance(child_state, Mapping) else {}


def _own_units(layer: Layer, state: Mapping[str, Any], path: tuple[str, ...]) -> tuple[Unit, Unit]:
    arrays = layer_arrays(layer, state, path)
    weights = [array for array in arrays if array.kind == "weight"]
    untrained = [array for array in weights if array.name in layer._weight_roles.untrained]
    trained = tuple(array.path for array in weights if array not in untrained)
    # Keras stores moving statistics as non-trainable weights, but not the carry of an RNN.
    states = [a for a in arrays if a.kind == "state" and keras_form(layer).stores_state]
    untrained_paths = tuple(array.path for array in (*untrained, *states))
    kinds = ("weight",) * len(untrained) + ("state",) * len(states)
    return Unit(layer, trained, ("weight",) * len(trained)), Unit(layer, untrained_paths, kinds)


def _merge_adjacent(units: list[Unit]) -> list[Unit]:
    """Merges adjacent units of the same layer."""
    merged: list[Unit] = []
    for unit in units:
        if merged and merged[-1].layer is unit.layer:
            last = merged.pop()
            unit = Unit(unit.layer, last.names + unit.names, last.kinds + unit.kinds)
        merged.append(unit)
    return merged
