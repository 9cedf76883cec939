"""Legacy files as sources of arrays by name, for `load_weights` into any model."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.engine import Network
from fkeras.engine.tree.array_list import weights_by_path
from fkeras.saving.containers.hdf5 import Store
from fkeras.saving.legacy.files.graphs import safe_name
from fkeras.saving.legacy.weights.order import Unit, listed
from fkeras.saving.legacy.weights.weights import (
    base_name,
    counts_of,
    file_layers,
    group_of,
    own_layers,
    read_layer,
    specs_of,
    state_of,
    with_backend,
)
from fkeras.saving.quirks.origin import Origin, origin_of
from fkeras.saving.weights.weight_source import Source, Stored, unread

Key = tuple[str, str]


def legacy_source(
    store: Store, model: Network, state: Mapping[str, Any], skips: Callable[[str], bool]
) -> Source:
    """Returns the arrays of a legacy file by path in the model, else by path in the file.

    Layers match by name. If some names differ but model and file have the same number of layers,
    layers match by order, provided that no name matches or that all pairs have equal sizes.

    Args:
        store: the open HDF5 file.
        model: the model, of arrays or of shapes.
        state: state of the model, of arrays or of shapes.
        skips: whether to skip a path.

    Raises:
        FileError: if the file is damaged.
    """
    group = group_of(store)
    stored = {safe_name(name): found for name, found in file_layers(store).items()}
    paths = {name: found[1] for name, found in stored.items()}
    origin = with_backend(origin_of(store, group), [p for all_ in paths.values() for p in all_])
    leaves = weights_by_path(model)
    units = {
        name: listed(model.layers[name], state_of(state, name), (name,), {})
        for name in own_layers(model, state, {})
    }
    specs = {name: specs_of(own, leaves, state) for name, own in units.items()}
    labels = {p: _label(name, p, stored[name][0]) for name, all_ in paths.items() for p in all_}
    kept = [name for name in units if not all(skips(path) for _, path in specs[name])]
    left = [name for name in paths if not all(skips(labels[p]) for p in paths[name])]
    pairs = [(name, name) for name in kept if name in left]
    # Keras numbers automatic names ("dense_3") by process, so equal models can differ in names.
    if len(pairs) < len(kept) == len(left):
        rows = list(zip(kept, left, strict=True))
        if not pairs or all(_alike(store, units[o], specs[o], paths[f]) for o, f in rows):
            pairs = rows
    arrays: dict[str, Stored] = {}
    rest = dict(labels)
    for own, name in pairs:
        found, used = _layer(
            store, own, stored[name][0], paths[name], units[own], specs[own], origin
        )
        for path in used:
            rest.pop(path, None)
        for key, value in found.items():
            arrays[_key(*key)] = Stored(
                value.shape, value.dtype, functools.partial(np.asarray, value)
            )
    # Unmatched arrays keep their paths in the file and are read only on demand.
    arrays |= {path: unread(store, path) for path in rest}
    names = {_key(*key): key[1] for keys in specs.values() for key in keys}
    known = names | rest
    return Source(
        str(origin.file),
        arrays,
        lambda place: key if (key := _key(place.kind, place.name)) in names else None,
        member=origin.member,
        label=lambda key: known[key],
    )


def _key(kind: str, path: str) -> str:
    return f"{kind}:{path}"


def _label(layer: str, path: str, group: str) -> str:
    """Returns an array's path below its layer: "dense/kernel" for "dense/dense/kernel:0"."""
    parts = path.removeprefix(f"{group}/").split(":")[0].split("/")
    parts = parts[parts.index(layer) + 1 :] if layer in parts[:-1] else parts
    return "/".join((layer, *parts))


def _alike(
    store: Store, units: Sequence[Unit], specs: Mapping[Key, Any], paths: Sequence[str]
) -> bool:
    """Whether a layer in the file and a layer of the model have equally many elements."""
    if any(type(unit.layer).__name__ in ("LSTM", "GRU") for unit in units):
        return True  # a cuDNN layer in the file has one more bias
    wanted = sum(math.prod(spec.shape) for spec in specs.values())
    return wanted == sum(math.prod(store.shape(path)) for path in paths)


def _layer(
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
    changed = origin.major == 1 or origin.backend == "theano" or len(units) > 1
    if changed or any(type(unit.layer).__name__ in ("LSTM", "GRU") for unit in units):
        return {}, []  # the conversion needs all arrays of the layer
    own = {base_name(path): (kind, path) for kind, path in specs}
    found = {base_name(path): path for path in paths}
    both = [word for word in own if word in found]
    return {own[word]: store.read(found[word]) for word in both}, [found[word] for word in both]
