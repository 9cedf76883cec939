"""The walker over the layers in a field: one order of layers, one way to write their paths.

A field holds a layer alone, or layers in tuples and mappings in any nesting. `layers_in` yields the
layers with their paths; `map_layers` rebuilds the value of the field with other layers. Both also
take trees of skeletons, the static halves of layers. `fkeras.engine.tree.sublayers` applies them to
all fields of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fkeras.engine.values.annotations import Tree
from fkeras.engine.values.frozen import FrozenDict


def is_layer(value: Tree) -> bool:
    """Returns whether `value` is a layer.

    The test is by a class variable, because this package comes before the class `Layer`.
    """
    return hasattr(type(value), "_child_fields")


def join_path(*parts: str) -> str:
    """Returns the path of these parts; an empty part adds nothing.

    Example:
        >>> join_path("", "encoder", "dense")
        'encoder/dense'
    """
    return "/".join(part for part in parts if part)


def entries(value: Tree) -> Iterable[tuple[Any, Any]]:
    """Returns the `(key, part)` pairs of a tuple or mapping; none for any other value."""
    if isinstance(value, tuple):
        return enumerate(value)
    return value.items() if isinstance(value, Mapping) else ()


def layers_in(value: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields `(path, layer)` for each layer in the value of a field, but not the layers inside it.

    Args:
        value: a layer, or tuples and mappings with layers, or the same with skeletons.
    """
    # skeletons have this attribute too
    if hasattr(type(value), "_transparent_field"):
        yield path, value
        return
    for key, item in entries(value):
        yield from layers_in(item, f"{path}/{key}" if path else str(key))


def map_layers(value: Tree, change: Callable[[str, Any], Any], path: str = "") -> Tree:
    """Returns the value of a field with each layer replaced by `change(path, layer)`.

    Args:
        value: a layer, or tuples and mappings with layers, or the same with skeletons.
    """
    if hasattr(type(value), "_transparent_field"):
        return change(path, value)
    if not isinstance(value, tuple | Mapping):
        return value
    new_items = {
        key: map_layers(item, change, f"{path}/{key}" if path else str(key))
        for key, item in entries(value)
    }
    if isinstance(value, tuple):
        return tuple(new_items.values())
    # `like` keeps the class: the layers of a network stay a LayerDict with its positions
    return value.like(new_items) if isinstance(value, FrozenDict) else FrozenDict(new_items)
