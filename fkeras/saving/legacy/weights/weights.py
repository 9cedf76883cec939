"""Fills a model of shapes from a legacy file, which has one group with a list of arrays per layer.

No initializer runs: every weight comes from the file. Legacy files do not store the carry of a
stateful layer; the carry starts with zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import skeleton_of, weights_by_path
from fkeras.authoring.saving import (
    Find,
    Key,
    Origin,
    Transfer,
    old_shapes,
    origin_of,
    renewed,
    with_arrays,
    with_stored_codes,
)
from fkeras.engine import Layer, Network, sublayers
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.stored import Stored, fits, unread
from fkeras.layers import Discretization
from fkeras.saving.legacy.calls.graphs import safe_name
from fkeras.saving.legacy.weights import arrays
from fkeras.saving.legacy.weights.order import Orders, Unit, listed, ordered, state_of

#: name of the weight in which tf.keras stores the data of an adapted `Discretization`
SUMMARY = "summary"


def words(store: Store, group: str, name: str, origin: Origin) -> list[str]:
    """Reads a list of strings from a group's attributes, also if split: `name0`, `name1`..."""
    attributes = store.attributes(group)
    if name in attributes:
        parts = [attributes[name]]
    else:
        # HDF5 limits an attribute to 64 KiB: Keras splits longer lists.
        parts, number = [], 0
        while f"{name}{number}" in attributes:
            parts.append(attributes[f"{name}{number}"])
            number += 1
        if not parts:
            raise origin.at(f"/{group}").error(
                f"the attribute {name!r} is missing. The group is damaged, or the file is not a file "
                "of weights."
            )
    strings: list[str] = []
    for part in parts:
        part = (part,) if isinstance(part, str) else part
        if part is None or (isinstance(part, np.ndarray) and part.size == 0):
            continue
        if not isinstance(part, tuple | list) or not all(isinstance(w, str) for w in part):
            raise origin.at(f"/{group}").error(
                f"expected {name!r} as a list of strings, received {part!r:.80}. The file is damaged."
            )
        strings.extend(part)
    return strings


def group_of(store: Store) -> str:
    """Returns the group of the weights: "model_weights" in a file with a model, else the root."""
    return "model_weights" if "model_weights" in store.groups() else ""


def place_legacy_weights(
    store: Store, model: Network, state: Mapping[str, Any], orders: Orders | None = None
) -> tuple[Network, dict[str, Any]]:
    """Returns `(model, state)` with the weights of a legacy `.h5` file of Keras 1, 2 or 3.

    Layers match by name if file and model have the same names, otherwise by order.

    Args:
        model: the model, of arrays or of shapes (`jax.eval_shape` of its `build`).
    """
    group, orders = group_of(store), orders or {}
    origin = origin_of(store, group)
    transfer = Transfer(origin.file)
    if origin.major == 3:
        # The arrays, not the configuration, show which attention projections are quantized.
        model = with_stored_codes(model, _find_in(store))
    layer_rows = stored_layers(store, model, state, orders)
    origin = with_backend(origin, [path for *_, paths in layer_rows for path in paths])
    leaves = weights_by_path(model)
    # Keras 3.11 to 3.13 stored some codes in another form, recognizable by the shape.
    old_codes = _old_codes(model)
    for layer_name, layer_group, paths in layer_rows:
        units = listed(model.layers[layer_name], state_of(state, layer_name), (layer_name,), orders)
        specs = specs_of(units, leaves, state)
        for key, value in read_layer(
            store, layer_name, layer_group, paths, units, specs, origin
        ).items():
            layer, name, shape = old_codes.get(key[1], (None, "", None))
            if layer is not None and value.shape == shape:
                value = renewed(layer, name, value)
            _check_array(key[1], specs[key], value, origin.at(f"/{layer_group}"), layer_name)
            transfer.add(key, value, specs[key])
    device_arrays = transfer.arrays()
    leaves |= {path: array for (kind, path), array in device_arrays.items() if kind == "weight"}
    skeleton = skeleton_of(model)
    model = skeleton.join(tuple(leaves[name] for name in skeleton.names))

    def initial(leaf: Any) -> Any:
        # Legacy files hold no carry of stateful layers; zeros are the initial carry.
        is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
        return jnp.zeros(leaf.shape, leaf.dtype) if is_shape else leaf

    return model, with_arrays(state, device_arrays, initial)


def _find_in(store: Store) -> Find:
    """Returns a function that finds the arrays of projections by Keras 3's names."""
    arrays = [path for _, paths in file_layers(store).values() for path in paths]

    def find(keys: tuple[str, ...], layer: Layer, field: str) -> dict[str, Stored]:
        projection_path = f"/{layer.name}/{getattr(layer, field).name}/"
        return {
            base_name(path): unread(store, path) for path in arrays if projection_path in f"/{path}"
        }

    return find


def _old_codes(model: Network) -> dict[str, tuple[Any, str, tuple[int, ...]]]:
    """Returns layer, name and shape of weights that Keras 3.11 to 3.13 store otherwise, by path."""
    return {
        f"{path}/{name}": (layer, name, shape)
        for path, layer in sublayers(model)
        for name, shape in old_shapes(layer).items()
    }


def with_backend(origin: Origin, paths: Sequence[str]) -> Origin:
    """Adds the backend, which Keras 1 does not record: TensorFlow's names end with ":0"."""
    if origin.major > 1 or origin.backend is not None or not paths:
        return origin
    backend = "tensorflow" if any(":" in path for path in paths) else "theano"
    return dataclasses.replace(origin, backend=backend)


def stored_layers(
    store: Store, model: Network, state: Mapping[str, Any], orders: Orders
) -> list[tuple[str, str, list[str]]]:
    """Returns `(layer, group, paths of arrays)` for each layer of a model with arrays."""
    stored = file_layers(store, model)
    origin = origin_of(store, group_of(store))
    model_layers = own_layers(model, state, orders)
    names = {safe_name(name): name for name in stored}
    if set(names) == set(model_layers):
        return [(name, *stored[names[name]]) for name in model_layers]
    if len(stored) != len(model_layers):
        missing = [n for n in model_layers if n not in names]
        unexpected = [n for n in names if n not in model_layers]
        raise origin.error(
            f"expected weights of {len(model_layers)} layers, received those of {len(stored)}. Not in the "
            f"file: {', '.join(missing[:8]) or 'none'}; not in the model: "
            f"{', '.join(unexpected[:8]) or 'none'}. Load it into the model that it was saved from."
        )
    # Keras itself loads by order; equal counts with other names are usual for automatic names.
    return [
        (name, *stored_layer)
        for name, stored_layer in zip(model_layers, stored.values(), strict=True)
    ]


def file_layers(store: Store, model: Network | None = None) -> dict[str, tuple[str, list[str]]]:
    """Returns `(group, paths of arrays)` of each layer of a file with arrays, by layer name.

    Args:
        model: a model whose configuration has the boundaries of adapted layers; the result omits the
            summaries of these layers.
    """
    group = group_of(store)
    origin = origin_of(store, group)
    stored: dict[str, tuple[str, list[str]]] = {}
    for name in words(store, group, "layer_names", origin):
        layer_group = f"{group}/{name}" if group else name
        # The list comes from the file: check each name before reading from its path.
        parent, _, last = layer_group.rpartition("/")
        if last not in store.groups(parent):
            raise origin.error(
                f"the list of layers contains {name!r:.80}, but the file has no group of that name. "
                "The file is damaged.",
                name,
            )
        weights = words(store, layer_group, "weight_names", origin)
        if name in stored or len(set(weights)) < len(weights):
            raise origin.error("the file lists a name twice. The file is damaged.", name)
        if model is not None:
            owner = model.layers.get(safe_name(name), model)
            weights = [w for w in weights if base_name(w) != SUMMARY or not _has_bins(owner)]
        if weights:
            stored[name] = (layer_group, [f"{layer_group}/{w}" for w in weights])
    return stored


def _has_bins(layer: Layer) -> bool:
    return any(isinstance(inner, Discretization) for _, inner in sublayers(layer))


def own_layers(model: Network, state: Mapping[str, Any], orders: Orders) -> list[str]:
    """Returns the names of a model's layers with arrays, in the file's order."""
    return [
        name
        for name in ordered(model, (), orders)
        if listed(model.layers[name], state_of(state, name), (name,), orders)
    ]


def specs_of(
    units: Sequence[Unit], leaves: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[Key, Any]:
    """Returns a layer's arrays (or shapes) in the model by kind and path, in the file's order."""
    return {
        (kind, path): leaves[path] if kind == "weight" else _lookup(state, path)
        for unit in units
        for path, kind in zip(unit.names, unit.kinds, strict=True)
    }


def counts_of(units: Sequence[Unit], count: int, origin: Origin) -> list[int] | None:
    """Splits a layer's `count` arrays in a file among its units; None if `count` does not fit."""
    # Keras 1's option consume_less="gpu" stored the gates together, its other values apart.
    for separate_gates in (True, False):
        counts = [arrays.stored_count(u.layer, len(u.names), origin, separate_gates) for u in units]
        if sum(counts) == count:
            return counts
    return None


def read_layer(
    store: Store,
    name: str,
    group: str,
    paths: Sequence[str],
    units: Sequence[Unit],
    specs: Mapping[Key, Any],
    origin: Origin,
) -> dict[Key, np.ndarray]:
    """Reads a layer's arrays in Keras 3's layout, by kind and path, without a check of shapes.

    Args:
        units: the layer's arrays in the model, in the file's order.
        specs: arrays or shapes in the model, see `specs_of`.
    """
    origin = origin.at(f"/{group}")
    counts = counts_of(units, len(paths), origin)
    if counts is None:
        expected_names = ", ".join(n for u in units for n in u.names[:4])
        raise origin.error(
            f"expected {len(specs)} arrays ({expected_names}), received {len(paths)}. The weights belong to "
            "another model.",
            name,
        )
    _check_names(paths, [n for u in units for n in u.names], origin, name)
    start, arrays_by_key = 0, {}
    for unit, count in zip(units, counts, strict=True):
        keys = list(zip(unit.kinds, unit.names, strict=True))
        shapes = [tuple(specs[key].shape) for key in keys]
        values = [store.read(path) for path in paths[start : start + count]]
        start += count
        arrays_by_key |= zip(
            keys, arrays.converted(unit.layer, values, shapes, origin), strict=True
        )
    return arrays_by_key


def _lookup(state: Mapping[str, Any], path: str) -> Any:
    """Returns the leaf of a nested state at a path; a key may contain "/"."""
    # the longest key first: another key may be its prefix
    for key in sorted(state, key=len, reverse=True):
        if path == key:
            return state[key]
        if path.startswith(f"{key}/"):
            return _lookup(state[key], path.removeprefix(f"{key}/"))
    raise KeyError(path)


def _check_array(
    path: str, spec: jax.Array | jax.ShapeDtypeStruct, value: np.ndarray, origin: Origin, layer: str
) -> None:
    if tuple(value.shape) != tuple(spec.shape):
        raise origin.error(
            f"expected {path!r} of shape {tuple(spec.shape)}, received {tuple(value.shape)}. The "
            "weights belong to another model, or the file is damaged.",
            layer,
        )
    # h5py reads dtypes that NumPy lacks, such as bfloat16 and float8, as kind "V".
    if value.dtype.kind not in "fiubV" or (value.dtype.kind == "V" and value.dtype.itemsize > 2):
        raise origin.error(f"expected {path!r} as real numbers, received {value.dtype}.", layer)
    if value.dtype.kind != "V" and not fits(value.dtype, spec.dtype):
        raise origin.error(
            f"expected {path!r} as {np.dtype(spec.dtype).name}, received {value.dtype}. The weights "
            "belong to another model, or the file is damaged.",
            layer,
        )


def base_name(name: str) -> str:
    return name.rsplit("/", 1)[-1].split(":")[0]


def _check_names(paths: Sequence[str], names: Sequence[str], origin: Origin, layer: str) -> None:
    """Rejects arrays whose names contradict the order; equal shapes would hide the mistake."""
    if len(paths) != len(names):
        return
    stored_names, model_names = [base_name(p) for p in paths], [base_name(n) for n in names]
    for number, (stored_name, model_name) in enumerate(zip(stored_names, model_names, strict=True)):
        # Names that only differ (an old "W" for "kernel") prove nothing; swapped names do.
        if stored_name != model_name and stored_name in model_names and model_name in stored_names:
            raise origin.error(
                f"expected {names[number]!r} as array {number}, received an array named "
                f"{stored_name!r}. The file and the layer have different orders; save the model "
                "again.",
                layer,
            )
