"""Names of the HDF5 groups of layers in lists and nested containers, in Keras's numbering."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fkeras.engine import Layer
from fkeras.engine.config.keras_form import keras_form
from fkeras.engine.tree.walk import entries
from fkeras.engine.values.naming import snake_case

# Keras derives groups from `__name__`, which differs from the public name for these classes
_INNER_NAMES = types.MappingProxyType({"GroupQueryAttention": "GroupedQueryAttention"})


def group_names(layers: Sequence[Layer]) -> list[str]:
    """Returns the class name of each layer in snake case; a repeated name gets a number."""
    counts: dict[str, int] = {}
    groups = []
    for layer in layers:
        name = keras_form(layer).class_name or type(layer).__name__
        name = snake_case(_INNER_NAMES.get(name, name))
        number = counts[name] = counts.get(name, -1) + 1
        groups.append(f"{name}_{number}" if number else name)
    return groups


def groups_in_field(
    value: Any, names: Callable[[str, Sequence[Layer]], Sequence[str]], group: str, path: str
) -> Iterator[tuple[str, str, Layer]]:
    """Yields `(group, path, layer)` for each layer in the value of a field.

    Keras stores the layers of a container before the nested containers, and numbers the containers.

    Args:
        names: `(group of a container, layers in the container) -> names of their groups`.
    """
    if isinstance(value, Layer):
        yield group, path, value
        return
    parts = [(f"{path}/{key}", part) for key, part in entries(value)]
    layers = [(at, part) for at, part in parts if isinstance(part, Layer)]
    own_names = names(group, [layer for _, layer in layers])
    for (at, layer), name in zip(layers, own_names, strict=True):
        yield f"{group}/{name}", at, layer
    # Keras's class for a list or dictionary counts as "container", then "container_1"
    containers = [(at, part) for at, part in parts if isinstance(part, Mapping | tuple)]
    for number, (at, part) in enumerate(containers):
        inner = f"{group}/container{f'_{number}' if number else ''}"
        yield from groups_in_field(part, names, inner, at)
