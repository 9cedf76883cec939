"""The list of a model's arrays: each weight and each entry of the state, with the layer that owns it.

Three orders derive from the list. The leaves of a model are the weights in the order of the list.
Keras's order (`fkeras.engine.tree.weight_lists`) sorts the arrays of each layer. Keras's files
(`fkeras.saving.weights.weight_paths`) keep the arrays of each layer in a group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from fkeras.engine.config.keras_form import keras_form
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import children
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values.annotations import Layer, SomeLayer

Keys = tuple[str, ...]


# compares by identity: arrays have no truth value
@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ArrayEntry:
    """One array of a model.

    Attributes:
        kind: "weight" for a leaf of the model, "state" for an entry of the state.
        name: the weight's field, or the last key of the state.
        keys: the names that lead from the model to the layer that owns the array; for an entry of
            the state also the keys before the last.
        layer: the layer that owns the array.
        value: the array, or its shape and dtype.
    """

    kind: Literal["weight", "state"]
    name: str
    keys: Keys
    layer: Any
    value: Any

    @property
    def path(self) -> str:
        """The names joined by "/", such as "dense/kernel"."""
        return join_path(*self.keys, self.name)


def layer_arrays(layer: Layer, state: Mapping[str, Any], keys: Keys = ()) -> list[ArrayEntry]:
    """Returns a layer's own weights, as declared, and its own state in the order of Keras's files.

    Args:
        layer: a built layer, or one of shapes in the place of arrays.
        state: the state of the layer; the parts of child layers are left out.

    Example:
        >>> import jax, fkeras as fk
        >>> layer = fk.layers.BatchNormalization().build(jax.random.key(0), (None, 3))
        >>> [array.name for array in layer_arrays(layer, layer.init_state((None, 3)))]
        ['gamma', 'beta', 'moving_mean', 'moving_variance']
    """
    values = {name: getattr(layer, name) for name in skeleton_of(layer).weights}
    arrays = [
        ArrayEntry("weight", name, keys, layer, value)
        for name, value in values.items()
        if value is not None
    ]
    if not state:  # most layers: without state their children need no walk
        return arrays
    child_names = {name for name, _ in children(layer)}
    own_keys = [
        key for key in state if key not in child_names and not isinstance(state[key], Mapping)
    ]
    order = keras_form(layer).state_order
    own_keys.sort(key=lambda key: (order.index(key) if key in order else len(order), key))
    return arrays + [ArrayEntry("state", key, keys, layer, state[key]) for key in own_keys]


def arrays_of(
    layer: Layer, state: Mapping[str, Any], keys: Keys = ()
) -> Iterator[tuple[Keys, Any, list[ArrayEntry]]]:
    """Yields `(keys, layer, arrays)` for a layer and each layer inside it, parents first.

    Args:
        layer: a built layer, or one of shapes in the place of arrays.
    """
    yield keys, layer, layer_arrays(layer, state, keys)
    for name, child in children(layer):
        yield from arrays_of(child, state.get(name, {}), (*keys, name))


def weights_by_path(layer: Layer) -> dict[str, Any]:
    """Returns all leaves of a layer by path; None for a weight that the layer does not have.

    Example:
        >>> import fkeras as fk
        >>> weights_by_path(fk.layers.Dense(2))
        {'kernel': None, 'bias': None}
    """
    return dict(zip(skeleton_of(layer).names, leaves_of(layer), strict=True))


def replace_leaves(layer: SomeLayer, leaves: Mapping[str, Any]) -> SomeLayer:
    """Returns the layer with other leaves in some places, by path."""
    skeleton, new_leaves = skeleton_of(layer), list(leaves_of(layer))
    for path, leaf in leaves.items():
        new_leaves[skeleton.places[path]] = leaf
    return skeleton.join(tuple(new_leaves))
