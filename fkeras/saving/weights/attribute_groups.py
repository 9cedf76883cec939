"""Groups of the layers of a subclassed model, which Keras names after the attributes.

Keras visits the attributes of an object in alphabetical order and stores each layer where the
layer is met first: `blocks/block_1`, `head/layers/dense`. A `keras.Model` has an attribute `layers`
too, a list of all of its layers in the order of assignment, so layers in attributes behind "layers"
in the alphabet are stored in the group `layers`. A `keras.layers.Layer` has no such list. A
composed model of this package may stand for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fkeras.engine import Model
from fkeras.engine.models.model import field_layers
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.tree.walk import layers_in
from fkeras.saving.weights.group_names import group_names, groups_in_field

_LIST = "layers"


def attribute_groups(
    network: Any,
    has: Callable[[str], bool] | None = None,
    noted: Callable[[str], Mapping[str | None, str]] = lambda path: {},
    group: str = "",
) -> list[tuple[str, str]] | None:
    """`(name of a layer, its group below the network's group)`; None for groups by the graph.

    Args:
        network: a network that knows its inputs.
        has: whether the file that is read has a group. None where a file is written: the outermost
            model is stored as a `keras.Model`, models inside as layers of Keras.
        noted: the groups in a group of that file, by the names of the layers in them.
        group: the group of the network.

    Example:
        >>> import jax, fkeras as fk
        >>> class Block(fk.Model):
        ...     dense: fk.Layer
        ...     out: fk.Layer
        ...     def call(self, x):
        ...         return self.out(self.dense(x))
        >>> block = Block(fk.layers.Dense(3), fk.layers.Dense(2)).build(jax.random.key(0), (None, 4))
        >>> attribute_groups(block)
        [('dense', 'dense'), ('out', 'layers/dense_1')]
    """
    fields = _fields(network)
    if not fields:
        return None
    by_field, by_list = _groups_by_field(fields), _groups_of_model(network, fields)
    chosen = by_list if not group else {**by_list, **by_field}
    if has is not None:
        start = f"{group}/" if group else ""
        if has(f"{start}{_LIST}/input_layer"):
            return None
        stored = noted(f"{start}{_LIST}")
        left = [n for n in by_list if not (n in by_field and has(f"{start}{by_field[n]}"))]
        if all(name in stored for name in left):  # layers that go by the names of the fields
            by_list.update({name: f"{_LIST}/{stored[name]}" for name in left})
        chosen = {n: by_list[n] if n in left else by_field[n] for n in by_list}
    return [(name, chosen[name]) for name in network.layers if name in chosen]


def second_groups(network: Any) -> Iterator[tuple[str, str]]:
    """`(group, other group)` of layers that Keras looks for under either, by the class it has.

    Example:
        >>> import fkeras as fk
        >>> list(second_groups(fk.Sequential([fk.Input((2,)), fk.layers.Dense(2)])))
        []
    """
    fields = _fields(network)
    if not fields:
        return
    by_field, by_list = _groups_by_field(fields), _groups_of_model(network, fields)
    for name, path in by_field.items():
        if path != by_list[name]:
            yield path, by_list[name]


def _fields(network: Any) -> dict[str, Any]:
    composed = isinstance(network, Model) and type(network) is not Model
    return field_layers(network) if composed and network.graph is not None else {}


def _groups_by_field(fields: Mapping[str, Any]) -> dict[str, str]:
    """The first group in which each layer is met, by its name."""
    found: dict[str, str] = {}
    for field in sorted(fields, key=_place):
        _visit(fields[field], field, found)
    return found


def _groups_of_model(network: Any, fields: Mapping[str, Any]) -> dict[str, str]:
    """The same for an object that has the list of all of its layers among its attributes."""
    found: dict[str, str] = {}
    order = sorted(fields, key=_place)
    for field in (field for field in order if _place(field) < _LIST):
        _visit(fields[field], field, found)
    in_fields = (layer for value in fields.values() for _, layer in layers_in(value))
    by_name = {str(layer.name): layer for layer in in_fields}
    listed = list(by_name)
    # layers that `call` makes have no attribute; Keras has no such layers
    ignored = InputLayer | Operation
    listed += [
        n for n, one in network.layers.items() if n not in listed and not isinstance(one, ignored)
    ]
    layers = [network.layers.get(name, by_name.get(name)) for name in listed]
    for name, group in zip(listed, group_names(layers), strict=True):
        found.setdefault(name, f"{_LIST}/{group}")
    return found


def _place(field: str) -> str:
    return f"~{field}" if field.startswith("_") else field


def _visit(value: Any, path: str, groups: dict[str, str]) -> None:
    """Notes the groups of the layers in the value of an attribute, unless they have a group."""
    for group, _, layer in groups_in_field(value, lambda _, layers: group_names(layers), path, ""):
        groups.setdefault(str(layer.name), group)
