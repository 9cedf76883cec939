"""Legacy files as sources of arrays by name, for `load_weights` into any model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.authoring.engine import weights_by_path
from fkeras.authoring.saving import Origin, Source, origin_of
from fkeras.engine import Network
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.stored import Stored, loaded, unread
from fkeras.saving.legacy.calls.graphs import safe_name
from fkeras.saving.legacy.weights.order import Unit, listed, state_of
from fkeras.saving.legacy.weights.weights import (
    base_name,
    counts_of,
    file_layers,
    group_of,
    own_layers,
    read_layer,
    specs_of,
    with_backend,
)

Key = tuple[str, str]


def legacy_source(
    store: Store, model: Network, state: Mapping[str, Any], skips: Callable[[str], bool]
) -> Source:
    """Returns the arrays of a legacy file by path in the model, else by path in the file.

    Layers match by name. If some names differ but model and file have the same number of layers,
    layers match by order, provided that no name matches or that all pairs have equal sizes.
    """
    group = group_of(store)
    stored = {safe_name(name): layer for name, layer in file_layers(store, model).items()}
    paths = {name: layer[1] for name, layer in stored.items()}
    origin = with_backend(
        origin_of(store, group), [p for layer_paths in paths.values() for p in layer_paths]
    )
    leaves = weights_by_path(model)
    units = {
        name: listed(model.layers[name], state_of(state, name), (name,), {})
        for name in own_layers(model, state, {})
    }
    specs = {name: specs_of(layer_units, leaves, state) for name, layer_units in units.items()}
    labels = {
        p: _label(name, p, stored[name][0])
        for name, layer_paths in paths.items()
        for p in layer_paths
    }
    model_names = [name for name in units if not all(skips(path) for _, path in specs[name])]
    file_names = [name for name in paths if not all(skips(labels[p]) for p in paths[name])]
    pairs = [(name, name) for name in model_names if name in file_names]
    # Keras numbers automatic names ("dense_3") by process, so equal models can differ in names.
    if len(pairs) < len(model_names) == len(file_names):
        pairs_in_order = list(zip(model_names, file_names, strict=True))
        if not pairs or all(
            _same_size(store, units[o], specs[o], paths[f]) for o, f in pairs_in_order
        ):
            pairs = pairs_in_order
    arrays: dict[str, Stored] = {}
    unmatched_labels = dict(labels)
    for model_name, name in pairs:
        arrays_by_key, used_paths = _read_layer(
            store,
            model_name,
            stored[name][0],
            paths[name],
            units[model_name],
            specs[model_name],
            origin,
        )
        for path in used_paths:
            unmatched_labels.pop(path, None)
        for key, value in arrays_by_key.items():
            arrays[_key(*key)] = loaded(value)
    # Unmatched arrays keep their paths in the file and are read only on demand.
    arrays |= {path: unread(store, path) for path in unmatched_labels}
    names = {_key(*key): key[1] for keys in specs.values() for key in keys}
    all_labels = names | unmatched_labels
    return Source(
        str(origin.file),
        arrays,
        lambda place: key if (key := _key(place.kind, place.name)) in names else None,
        member=origin.member,
        label=lambda key: all_labels[key],
    )


def _key(kind: str, path: str) -> str:
    return f"{kind}:{path}"


def _label(layer: str, path: str, group: str) -> str:
    """Returns an array's path below its layer: "dense/kernel" for "dense/dense/kernel:0"."""
    parts = path.removeprefix(f"{group}/").split(":")[0].split("/")
    parts = parts[parts.index(layer) + 1 :] if layer in parts[:-1] else parts
    return "/".join((layer, *parts))


def _same_size(
    store: Store, units: Sequence[Unit], specs: Mapping[Key, Any], paths: Sequence[str]
) -> bool:
    """Whether a layer in the file and a layer of the model have equally many elements."""
    if any(type(unit.layer).__name__ in ("LSTM", "GRU") for unit in units):
        return True  # a cuDNN layer in the file has one more bias
    element_count = sum(math.prod(spec.shape) for spec in specs.values())
    return element_count == sum(math.prod(store.shape(path)) for path in paths)


def _read_layer(
    store: Store,
    name: str,
    group: str,
    paths: Sequence[str],
    units: Sequence[Unit],
    specs: Mapping[Key, Any],
    origin: Origin,
) -> tuple[dict[Key, np.ndarray], list[str]]:
    """Returns a layer's arrays by kind and path, and the paths of these arrays in the file."""
    if counts_of(units, len(paths), origin) is not None:
        return read_layer(store, name, group, paths, units, specs, origin), list(paths)
    # Another number of arrays: match single arrays by name, if each array can be read alone.
    needs_conversion = origin.major == 1 or origin.backend == "theano" or len(units) > 1
    if needs_conversion or any(type(unit.layer).__name__ in ("LSTM", "GRU") for unit in units):
        return {}, []  # the conversion needs all arrays of the layer
    model_keys = {base_name(path): (kind, path) for kind, path in specs}
    file_paths = {base_name(path): path for path in paths}
    common_names = [array_name for array_name in model_keys if array_name in file_paths]
    return {
        model_keys[array_name]: store.read(file_paths[array_name]) for array_name in common_names
    }, [file_paths[array_name] for array_name in common_names]
