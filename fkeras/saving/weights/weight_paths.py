"""Paths of weights and statistics in Keras's weight files.

Keras names a group after the attribute that holds a layer (`layers`, `cell`, `forward_layer`), or
after the class for layers in a list (`dense`, `dense_1`), and numbers a layer's own arrays in a
group `vars`. The paths do not contain the names of layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fkeras.engine import Layer, Network, Sequential
from fkeras.engine.config.keras_form import keras_form
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.tree.array_list import layer_arrays, weights_by_path
from fkeras.engine.tree.skeleton import skeleton_of
from fkeras.engine.tree.walk import join_path
from fkeras.saving.weights.attribute_groups import attribute_groups, second_groups
from fkeras.saving.weights.group_names import group_names, groups_in_field


@dataclasses.dataclass(frozen=True)
class Place:
    """An array of a model, and its path in a file.

    Attributes:
        path: path in the file, such as "layers/dense/vars/0"; None for state that Keras's files
            leave out (the carry of a stateful LSTM).
        kind: "weight" for a leaf of the model, "state" for an entry of the state.
        name: path of the leaf, such as "dense/kernel", or the keys of the state joined by "/".
        value: the array, or its shape and dtype.
    """

    path: str | None
    kind: str
    name: str
    value: Any


class Groups:
    """Finds the groups of the layers in a list, and tests whether a file has a group.

    Args:
        names: `(path of the list, layers) -> groups`.
        has: returns whether the file has a group; None for writing.
        noted: returns the groups inside a group, by the layer names that the file stores.

    Example:
        >>> import fkeras as fk
        >>> Groups(by_class)("layers", [fk.layers.Dense(2)])
        ['dense']
    """

    def __init__(
        self,
        names: Callable[[str, Sequence[Layer]], Sequence[str]],
        has: Callable[[str], bool] | None = None,
        noted: Callable[[str], Mapping[str | None, str]] = lambda path: {},
    ):
        self._names = names
        self.has = has
        self.noted = noted

    def __call__(self, path: str, layers: Sequence[Layer]) -> Sequence[str]:
        return self._names(path, layers)


def by_class(path: str, layers: Sequence[Layer]) -> list[str]:
    """Returns the groups of layers in a list in Keras's numbering: "dense", "dense_1".

    Example:
        >>> import fkeras as fk
        >>> by_class("layers", [fk.layers.Dense(2), fk.layers.ReLU(), fk.layers.Dense(2)])
        ['dense', 're_lu', 'dense_1']
    """
    return group_names(layers)


BY_CLASS = Groups(by_class)


def places(layer: Layer, state: Mapping[str, Any], groups: Groups = BY_CLASS) -> list[Place]:
    """Returns every weight of `layer` and every entry of `state`, with the paths in a file.

    The result lists a weight twice if Keras stores the weight twice (the kernel wrapped by a
    SpectralNormalization).
    """
    leaves = weights_by_path(layer)
    model_places = []
    for group, keys, owner in walk_groups(layer, groups):
        model_places.extend(_own_places(owner, _lookup(state, keys), group, keys, leaves))
    return model_places


def walk_groups(
    layer: Layer, groups: Groups = BY_CLASS, group: str = "", keys: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...], Layer]]:
    """Yields `(group, keys, layer)` for `layer` and all nested layers, parents first.

    Args:
        keys: names that lead from the outermost layer to `layer`.
    """
    yield group, keys, layer
    for child_group, field, child in _children(layer, groups, group):
        yield from walk_groups(child, groups, child_group, (*keys, field))


def copied_groups(layer: Layer, groups: Groups = BY_CLASS) -> list[tuple[str, str]]:
    """Returns `(group, copy of the group)` for the layers of nested subclassed models.

    Keras looks for a layer of a nested model in one of two groups, which depends on Keras's class
    of the model. Written files therefore have both groups. The innermost groups come first.
    """
    copies = []
    for group, _, nested in walk_groups(layer, groups):
        # the outermost model is always a keras.Model: its groups have no alternative
        if group:
            copies += [(join_path(group, a), join_path(group, b)) for a, b in second_groups(nested)]
    return copies[::-1]


def with_copies(path: str, copies: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a path, and the corresponding path in each copy of an enclosing group."""
    # `paths` grows in the loop: a path inside two copied groups has four forms
    paths = [path]
    for group, copy in copies:
        paths += [copy + p[len(group) :] for p in paths if p.startswith(f"{group}/")]
    return paths


def _lookup(state: Mapping[str, Any], keys: tuple[str, ...]) -> Mapping[str, Any]:
    for key in keys:
        state = state.get(key, {})
    return state


def _own_places(
    layer: Layer, state: Mapping, group: str, keys: tuple[str, ...], leaves: Mapping
) -> Iterator[Place]:
    """Yields the arrays in the group `vars` of one layer."""
    form, name = keras_form(layer), "/".join(keys)
    arrays = layer_arrays(layer, state, keys)
    early_paths = (join_path(name, last) for last in form.early_weights)
    # a form may list alternatives, such as the kernels of several classes: keep the existing ones
    weights = [path for path in early_paths if path in leaves]
    weights += [array.path for array in arrays if array.kind == "weight"]
    vars_group = join_path(group, form.groups.get("", ""))
    for number, path in enumerate(weights):
        yield Place(join_path(vars_group, f"vars/{number}"), "weight", path, leaves[path])
    # Keras numbers state after weights, in the same group
    entries = [array for array in arrays if array.kind == "state"]
    for number, array in enumerate(entries, len(weights)):
        file_path = join_path(group, f"vars/{number}") if form.stores_state else None
        yield Place(file_path, "state", array.path, array.value)


def _children(layer: Layer, groups: Groups, group: str) -> Iterator[tuple[str, str, Layer]]:
    """Yields `(path of the group, path in the layer, child)` for each child of a layer."""
    if isinstance(layer, Network):
        pairs = attribute_groups(layer, groups.has, groups.noted, group)
        if pairs is not None:
            yield from ((join_path(group, path), name, layer.layers[name]) for name, path in pairs)
            return
        at = join_path(group, "layers")
        members = counted(layer)
        names = groups(at, [layer.layers[name] for name in members])
        for name, child_group in zip(members, names, strict=True):
            yield join_path(at, child_group), name, layer.layers[name]
        return
    for field in skeleton_of(layer).children:
        at = join_path(group, keras_form(layer).groups.get(field, field))
        yield from groups_in_field(getattr(layer, field), groups, at, field)


def counted(network: Network) -> list[str]:
    """Returns the names of the layers that Keras numbers, in Keras's order."""
    # operations are layers of the graph only: Keras gives them no group
    if isinstance(network, Sequential):
        return [str(layer.name) for layer in network]
    return [name for name, inner in network.layers.items() if not isinstance(inner, Operation)]
