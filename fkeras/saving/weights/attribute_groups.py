"""HDF5 groups of the layers of a subclassed model, which Keras names after the attributes.

Keras visits the attributes of an object in alphabetical order and stores each layer at the first
attribute that holds the layer: `blocks/block_1`, `head/layers/dense`. A `keras.Model` also has an
attribute `layers`, the list of all layers in the order of assignment. Layers of attributes after
"layers" in the alphabet are therefore stored in the group `layers`. A `keras.layers.Layer` has no
attribute `layers`. A subclass of `fk.Model` corresponds to either class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fkeras.engine import Layer, Model, Network
from fkeras.engine.models.model import field_layers
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.tree.walk import layers_in
from fkeras.saving.weights.group_names import group_names, groups_in_field

_LIST = "layers"


def attribute_groups(
    network: Network,
    has: Callable[[str], bool] | None = None,
    noted: Callable[[str], Mapping[str | None, str]] = lambda path: {},
    group: str = "",
) -> list[tuple[str, str]] | None:
    """Returns `(layer name, group relative to the network's group)` for each layer.

    The result is None where the graph, not the attributes, determines the groups. A layer that
    `call` creates has no field: its name is the attribute's name in Keras's class.

    Args:
        has: returns whether the file has a group. None for writing: the outermost model is stored
            as a `keras.Model`, nested models are stored as `keras.layers.Layer`.
    """
    fields = _fields(network)
    if not fields and (has is None or not _is_composed(network)):
        return None
    by_field, by_list = _groups_by_field(fields), _groups_of_model(network, fields)
    groups_by_name = by_list if not group else {**by_list, **by_field}
    if has is not None:
        start = f"{group}/" if group else ""
        # only a functional model lists its InputLayer: the model in the file was not subclassed
        if has(f"{start}{_LIST}/input_layer"):
            return None
        # layers that `call` creates: by the attribute's name, else by the name of Keras's layer
        names = {n: noted(group)[n] for n in by_list if n in noted(group)}
        names |= {n: n for n in by_list if n not in (_LIST, "vars") and has(f"{start}{n}")}
        by_field = {**names, **by_field}
        # layers without a group of their own attribute are in the group of the list
        stored = noted(f"{start}{_LIST}")
        ungrouped = [n for n in by_list if not (n in by_field and has(f"{start}{by_field[n]}"))]
        # if the file stores the names of all these layers, names and not numbers give the groups
        if all(name in stored for name in ungrouped):
            by_list.update({name: f"{_LIST}/{stored[name]}" for name in ungrouped})
        groups_by_name = {n: by_list[n] if n in ungrouped else by_field[n] for n in by_list}
    return [(name, groups_by_name[name]) for name in network.layers if name in groups_by_name]


def second_groups(network: Layer) -> Iterator[tuple[str, str]]:
    """Yields `(group, other group)` for layers whose group depends on Keras's class of the model."""
    fields = _fields(network)
    if not fields or not isinstance(network, Network):
        return
    by_field, by_list = _groups_by_field(fields), _groups_of_model(network, fields)
    for name, path in by_field.items():
        if path != by_list[name]:
            yield path, by_list[name]


def _fields(network: Layer) -> dict[str, Any]:
    return field_layers(network) if _is_composed(network) else {}  # type: ignore[arg-type]


def _is_composed(network: Layer) -> bool:
    """Returns whether the network is a subclass of `fk.Model` with a graph."""
    return isinstance(network, Model) and type(network) is not Model and network.graph is not None


def _groups_by_field(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the first group of each layer, by layer name, for a `keras.layers.Layer`."""
    groups_by_name: dict[str, str] = {}
    for field in sorted(fields, key=_sort_key):
        _visit(fields[field], field, groups_by_name)
    return groups_by_name


def _groups_of_model(network: Network, fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the first group of each layer, by layer name, for a `keras.Model`."""
    groups_by_name: dict[str, str] = {}
    order = sorted(fields, key=_sort_key)
    for field in (field for field in order if _sort_key(field) < _LIST):
        _visit(fields[field], field, groups_by_name)
    in_fields = (layer for value in fields.values() for _, layer in layers_in(value))
    by_name = {str(layer.name): layer for layer in in_fields}
    names = list(by_name)
    # layers that `call` makes have no attribute; Keras has no such layers
    ignored = InputLayer | Operation
    names += [
        n
        for n, child in network.layers.items()
        if n not in names and not isinstance(child, ignored)
    ]
    layers = [network.layers.get(name, by_name.get(name)) for name in names]
    for name, group in zip(names, group_names(layers), strict=True):
        groups_by_name.setdefault(name, f"{_LIST}/{group}")
    return groups_by_name


def _sort_key(field: str) -> str:
    # Keras visits private attributes last, and "~" sorts after all letters
    return f"~{field}" if field.startswith("_") else field


def _visit(value: Any, path: str, groups: dict[str, str]) -> None:
    """Adds the groups of the layers in the value of an attribute, for layers without a group."""
    for group, _, layer in groups_in_field(value, lambda _, layers: group_names(layers), path, ""):
        groups.setdefault(str(layer.name), group)
