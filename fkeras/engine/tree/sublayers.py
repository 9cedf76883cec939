"""The layers inside a layer: as pairs of path and layer, and rebuilt with other layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fkeras.engine.tree.skeleton import skeleton_of
from fkeras.engine.tree.walk import join_path, layers_in, map_layers
from fkeras.engine.values.annotations import Layer, SomeLayer


def children(layer: Layer) -> Iterator[tuple[str, Any]]:
    """Yields `(path, child)` for each layer in the fields of `layer`, in the order of its leaves.

    Example:
        >>> import fkeras as fk
        >>> list(children(fk.layers.TimeDistributed(fk.layers.Dense(2))))
        [('layer', Dense(2))]
    """
    for field in skeleton_of(layer).children:
        # the names of a network's layers are paths already
        prefix = "" if field == layer._transparent_field else field
        yield from layers_in(getattr(layer, field), prefix)


def sublayers(layer: Layer) -> Iterator[tuple[str, Any]]:
    """Yields `(path, layer)` for `layer`, whose path is "", and every layer inside, parents first.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.TimeDistributed(fk.layers.Dense(2))
        >>> [path for path, _ in sublayers(layer)]
        ['', 'layer']
    """
    # a stack instead of recursion: the depth of nested models is no limit
    pending = [("", layer)]
    while pending:
        path, parent = pending.pop()
        yield path, parent
        child_entries = [(join_path(path, name), child) for name, child in children(parent)]
        pending.extend(reversed(child_entries))


def map_children(layer: Layer, change: Callable[[str, Any], Any], path: str = "") -> dict[str, Any]:
    """Returns the fields of children with each child replaced by `change(path, child)`."""
    fields = {}
    for field in skeleton_of(layer).children:
        prefix = "" if field == layer._transparent_field else field
        fields[field] = map_layers(getattr(layer, field), change, join_path(path, prefix))
    return fields


def replace_children(
    layer: SomeLayer, change: Callable[[str, Any], Any], path: str = ""
) -> SomeLayer:
    """Returns the layer with each child replaced by `change(path, child)`.

    If `change` returns every child unchanged, the result is the layer itself.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.TimeDistributed(fk.layers.Dense(2))
        >>> replace_children(layer, lambda path, child: child) is layer
        True
    """
    changed = False

    def change_child(child_path: str, child: Any) -> Any:
        nonlocal changed
        new_child = change(child_path, child)
        changed = changed or new_child is not child
        return new_child

    fields = map_children(layer, change_child, path)
    # an unchanged layer keeps its identity and with it the cached skeleton and leaves
    return layer.replace(**fields) if changed else layer
