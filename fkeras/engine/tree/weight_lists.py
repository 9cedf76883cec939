"""Lists of NumPy arrays in Keras's order: a layer's own weights, its state, then its children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.keras_form import keras_form
from fkeras.engine.tree.array_list import ArrayEntry, Keys, arrays_of, replace_leaves
from fkeras.engine.tree.local_arrays import check_local
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values.annotations import Layer, SomeLayer
from fkeras.engine.values.arrays import read_array


def _in_keras_order(layer: Layer, state: Mapping[str, Any]) -> list[ArrayEntry]:
    """Returns the arrays in Keras's order: trained weights of a layer, its other weights, its state."""
    layers = list(arrays_of(layer, state))
    entries: list[ArrayEntry] = []
    spans = []
    for keys, owner, arrays in layers:
        untrained = owner._weight_roles.untrained
        weights = [array for array in arrays if array.kind == "weight"]
        spans.append((keys, owner, len(entries)))
        entries += sorted(weights, key=lambda array: array.name in untrained)
        # Keras keeps the carries of recurrent layers out of its lists, as out of its files
        if keras_form(owner).stores_state:
            entries += [array for array in arrays if array.kind == "state"]
    # the innermost layers first: an outer layer may move what an inner layer has ordered
    for keys, owner, start in reversed(spans):
        early = {join_path(*keys, name) for name in keras_form(owner).early_weights}
        if early:
            layer_entries = [array for array in entries[start:] if array.keys[: len(keys)] == keys]
            layer_entries.sort(key=lambda array: array.path not in early)
            entries[start : start + len(layer_entries)] = layer_entries
    return entries


def weight_order(layer: Layer) -> list[str]:
    """Returns the paths of a built layer's weights in Keras's order, which may differ from its leaves."""
    return list(dict.fromkeys(array.path for array in _in_keras_order(layer, {})))


def get_weights(layer: Layer, state: Mapping[str, Any] | None = None) -> list[np.ndarray]:
    """Returns the layer's weights and state as NumPy arrays in Keras's order.

    Without `state` the list has only the weights. The list omits the carries of stateful recurrent
    layers, as in Keras.

    Raises:
        ValueError: for a layer that is not built, and for an array that is split over processes.
    """
    _require_built(layer, "get_weights")
    where = f"{layer._where}: get_weights"
    arrays = _in_keras_order(layer, state or {})
    return [np.asarray(check_local(array.value, where, array.path)) for array in arrays]


def set_weights(
    layer: SomeLayer, values: Sequence[Any], state: Mapping[str, Any] | None = None
) -> tuple[SomeLayer, dict[str, Any]]:
    """Returns `(layer, state)` with the arrays of `values`, in the order of `get_weights`.

    The carries of recurrent layers stay unchanged.

    Raises:
        ValueError: for a list of another length, or an array of another shape.
    """
    _require_built(layer, "set_weights")
    new_values, state = list(values), state or {}
    arrays = _in_keras_order(layer, state)
    if len(new_values) != len(arrays):
        names = [array.path for array in arrays]
        shown_names = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        hint = "" if state else " A layer with state (moving statistics) needs state=state too."
        raise ValueError(
            f"{layer._where}: set_weights expected {len(arrays)} arrays ({shown_names}), received "
            f"{len(new_values)}. Pass one array for each, in this order.{hint}"
        )
    # collected first and applied at once: each replacement creates a new layer
    leaves: dict[str, Any] = {}
    changes: dict[Keys, Any] = {}
    for value, array in zip(new_values, arrays, strict=True):
        if np.shape(value) != np.shape(array.value):
            raise ValueError(
                f"{layer._where}: set_weights expected {array.path!r} of shape "
                f"{np.shape(array.value)}, received shape {np.shape(value)}. Check the order of the "
                "list, or build the layer for the other shape."
            )
        numbers = isinstance(value, list | tuple | int | float)
        host = value if numbers else read_array(value, array.path)
        new = jnp.asarray(np.asarray(host), dtype=array.value.dtype)
        if array.kind == "weight":
            leaves[array.path] = new
        else:
            changes[(*array.keys, array.name)] = new
    return replace_leaves(layer, leaves), _replace_state(state, changes)


def _replace_state(state: Mapping[str, Any], changes: Mapping[Keys, Any], keys: Keys = ()) -> dict:
    return {
        key: _replace_state(value, changes, (*keys, key))
        if isinstance(value, Mapping)
        else changes.get((*keys, key), value)
        for key, value in state.items()
    }


def _require_built(layer: Layer, method: str) -> None:
    if not layer.built:
        raise ValueError(
            f"{layer._where}: {method} needs a built layer, and this layer has no weights. Build it: "
            "`layer.build(jax.random.key(0), (None, 8))`."
        )
