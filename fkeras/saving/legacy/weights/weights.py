"""Fills a model of shapes with the arrays of a legacy file: a group per layer, a list per group.

No initializer runs: every weight comes from the file. Legacy files do not store the carry of a
stateful layer, which starts with zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import Network
from fkeras.engine.tree.array_list import weights_by_path
from fkeras.engine.tree.skeleton import skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.saving.containers.hdf5 import Store
from fkeras.saving.legacy.files.graphs import safe_name
from fkeras.saving.legacy.weights import arrays
from fkeras.saving.legacy.weights.order import Orders, Unit, listed, ordered
from fkeras.saving.quirks.origin import Origin, origin_of
from fkeras.saving.weights.finite import is_finite, warn_not_finite
from fkeras.saving.weights.quantized_codes import Find, old_shapes, renewed, with_stored_codes
from fkeras.saving.weights.weight_source import Stored, fits, unread


def words(store: Store, group: str, name: str, origin: Origin) -> list[str]:
    """Returns a list of strings from a group's attributes, possibly split: `name0`, `name1`...

    Raises:
        FileError: where it is no list of strings.
    """
    attributes = store.attributes(group)
    if name in attributes:
        parts = [attributes[name]]
    else:
        parts, number = [], 0
        while f"{name}{number}" in attributes:
            parts.append(attributes[f"{name}{number}"])
            number += 1
        if not parts:
            raise origin.at(f"/{group}").error(
                f"the attribute {name!r} is missing. The group is damaged, or of another kind of "
                "file."
            )
    found: list[str] = []
    for part in parts:
        part = (part,) if isinstance(part, str) else part
        if part is None or (isinstance(part, np.ndarray) and part.size == 0):
            continue
        if not isinstance(part, tuple | list) or not all(isinstance(w, str) for w in part):
            raise origin.at(f"/{group}").error(
                f"expected {name!r} as a list of strings, received {part!r:.80}. It is damaged."
            )
        found.extend(part)
    return found


def group_of(store: Store) -> str:
    """Returns the group with the weights: "model_weights" in the file of a model, else the root."""
    return "model_weights" if "model_weights" in store.groups() else ""


def place_legacy_weights(
    store: Store, model: Network, state: Mapping[str, Any], orders: Orders | None = None
) -> tuple[Network, dict[str, Any]]:
    """Returns `(model, state)` with the weights of a legacy file, as Keras 1, 2 and 3 write `.h5`.

    Layers are found by name where the file has the names of the model, otherwise one by one in
    the order of both.

    Args:
        store: the file.
        model: the model, of arrays or of shapes (`jax.eval_shape` of its `build`).
        state: its state likewise.
        orders: the layers of networks in the file's order, by their places.

    Raises:
        FileError: where the file has other layers or arrays of other shapes; it names the layer.
    """
    group, orders = group_of(store), orders or {}
    origin = origin_of(store, group)
    changes: dict[tuple[str, str], np.ndarray] = {}
    if origin.major == 3:
        model = with_stored_codes(model, _find_in(store))
    pairs = stored_layers(store, model, state, orders)
    origin = with_backend(origin, [path for *_, paths in pairs for path in paths])
    leaves = weights_by_path(model)
    old = _old_codes(model)
    for own, stored, paths in pairs:
        units = listed(model.layers[own], state_of(state, own), (own,), orders)
        specs = specs_of(units, leaves, state)
        for key, value in read_layer(store, own, stored, paths, units, specs, origin).items():
            layer, name, shape = old.get(key[1], (None, "", None))
            if layer is not None and value.shape == shape:
                value = renewed(layer, name, value)
            _check_array(key[1], specs[key], value, origin.at(f"/{stored}"), own)
            changes[key] = value
    unusual = [name for (_, name), value in changes.items() if not is_finite(value)]
    warn_not_finite(unusual, origin.file)
    return _placed(model, state, leaves, changes)


def _find_in(store: Store) -> Find:
    """Finds the arrays of projections by the names that Keras 3 gives them."""
    arrays = [path for _, paths in file_layers(store).values() for path in paths]

    def find(keys: tuple[str, ...], layer: Any, field: str) -> dict[str, Stored]:
        own = f"/{layer.name}/{getattr(layer, field).name}/"
        return {base_name(path): unread(store, path) for path in arrays if own in f"/{path}"}

    return find


def _old_codes(model: Network) -> dict[str, tuple[Any, str, tuple[int, ...]]]:
    """Layer, name and shape of weights that Keras 3.11 to 3.13 keep in another form, by path."""
    return {
        f"{path}/{name}": (layer, name, shape)
        for path, layer in sublayers(model)
        for name, shape in old_shapes(layer).items()
    }


def state_of(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = state.get(name, {})
    return found if isinstance(found, Mapping) else {}


def with_backend(origin: Origin, paths: Sequence[str]) -> Origin:
    """`origin` with the backend, which Keras 1 does not note: TensorFlow's names have a ":0"."""
    if origin.major > 1 or origin.backend is not None or not paths:
        return origin
    backend = "tensorflow" if any(":" in path for path in paths) else "theano"
    return dataclasses.replace(origin, backend=backend)


def stored_layers(
    store: Store, model: Network, state: Mapping[str, Any], orders: Orders
) -> list[tuple[str, str, list[str]]]:
    """`(layer, group, paths of arrays)` for each layer of a model that has arrays.

    Raises:
        FileError: where the file has other layers than the model.
    """
    stored = file_layers(store)
    origin = origin_of(store, group_of(store))
    own = own_layers(model, state, orders)
    names = {safe_name(name): name for name in stored}
    if set(names) == set(own):
        return [(name, *stored[names[name]]) for name in own]
    if len(stored) != len(own):
        missing = [n for n in own if n not in names]
        other = [n for n in names if n not in own]
        raise origin.error(
            f"expected weights of {len(own)} layers, received those of {len(stored)}. Not in the "
            f"file: {', '.join(missing[:8]) or 'none'}; not in the model: "
            f"{', '.join(other[:8]) or 'none'}. Load it into the model that it was saved from."
        )
    return [(name, *found) for name, found in zip(own, stored.values(), strict=True)]


def file_layers(store: Store) -> dict[str, tuple[str, list[str]]]:
    """`(group, paths of arrays)` of each layer of a file that has arrays, by its name.

    Raises:
        FileError: where a list names what is not there, or one name twice.
    """
    group = group_of(store)
    origin = origin_of(store, group)
    stored: dict[str, tuple[str, list[str]]] = {}
    for name in words(store, group, "layer_names", origin):
        inside = f"{group}/{name}" if group else name
        if inside not in _known_groups(store, inside):
            raise origin.error(
                f"the list of layers names {name!r:.80}, of which there is no group. The file is "
                "damaged.",
                name,
            )
        weights = words(store, inside, "weight_names", origin)
        if name in stored or len(set(weights)) < len(weights):
            raise origin.error("a name that stands twice. The file is damaged.", name)
        if weights:
            stored[name] = (inside, [f"{inside}/{w}" for w in weights])
    return stored


def own_layers(model: Network, state: Mapping[str, Any], orders: Orders) -> list[str]:
    """The names of the layers of a model that have arrays, in the order of the file."""
    return [
        name
        for name in ordered(model, (), orders)
        if listed(model.layers[name], state_of(state, name), (name,), orders)
    ]


def _known_groups(store: Store, path: str) -> tuple[str, ...]:
    above, _, name = path.rpartition("/")
    return (path,) if name in store.groups(above) else ()


def specs_of(
    units: Sequence[Unit], leaves: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[tuple[str, str], Any]:
    """The arrays of a layer in the model, or their shapes, by kind and path, in order."""
    return {
        (kind, path): leaves[path] if kind == "weight" else _lookup(state, path)
        for unit in units
        for path, kind in zip(unit.names, unit.kinds, strict=True)
    }


def counts_of(units: Sequence[Unit], count: int, origin: Origin) -> list[int] | None:
    """How many of a layer's `count` arrays in a file belong to each unit; None where they cannot."""
    for apart in (True, False):
        counts = [arrays.stored_count(u.layer, len(u.names), origin, apart) for u in units]
        if sum(counts) == count:
            return counts
    return None


def read_layer(
    store: Store,
    name: str,
    group: str,
    paths: Sequence[str],
    units: Sequence[Unit],
    specs: Mapping[tuple[str, str], Any],
    origin: Origin,
) -> dict[tuple[str, str], np.ndarray]:
    """The arrays of a layer in today's form, by kind and path; their shapes are not checked.

    Args:
        store: the file.
        name: the layer's name in the model.
        group: the layer's group.
        paths: the paths of its arrays in the file.
        units: its arrays in the model, in the file's order.
        specs: what the model holds, see `specs_of`.
        origin: who wrote the file.

    Raises:
        FileError: where there are more or fewer arrays, or their names contradict their places.
    """
    origin = origin.at(f"/{group}")
    counts = counts_of(units, len(paths), origin)
    if counts is None:
        shown = ", ".join(n for u in units for n in u.names[:4])
        raise origin.error(
            f"expected {len(specs)} arrays ({shown}), received {len(paths)}. The weights belong to "
            "another model.",
            name,
        )
    _check_names(paths, [n for u in units for n in u.names], origin, name)
    start, found = 0, {}
    for unit, count in zip(units, counts, strict=True):
        keys = list(zip(unit.kinds, unit.names, strict=True))
        shapes = [tuple(specs[key].shape) for key in keys]
        values = [store.read(path) for path in paths[start : start + count]]
        start += count
        found |= zip(keys, arrays.converted(unit.layer, values, shapes, origin), strict=True)
    return found


def _lookup(state: Mapping[str, Any], path: str) -> Any:
    for key in _keys(state, path):
        state = state[key]
    return state


def _keys(state: Mapping[str, Any], path: str) -> list[str]:
    """The keys of a path in the state: a field with several children has one key for each."""
    keys: list[str] = []
    rest = path
    while rest:
        found = next(
            (
                k
                for k in sorted(state, key=len, reverse=True)
                if rest == k or rest.startswith(f"{k}/")
            ),
            None,
        )
        if found is None:
            raise KeyError(path)
        keys.append(found)
        state, rest = state[found], rest[len(found) + 1 :]
        if not isinstance(state, Mapping):
            break
    return keys


def _check_array(path: str, spec: Any, value: np.ndarray, origin: Origin, layer: str) -> None:
    if tuple(value.shape) != tuple(spec.shape):
        raise origin.error(
            f"expected {path!r} of shape {tuple(spec.shape)}, received {tuple(value.shape)}. The "
            "weights belong to another model, or the file is damaged.",
            layer,
        )
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
    """Refuses arrays whose own names contradict their places: equal shapes would hide it."""
    if len(paths) != len(names):
        return
    stored, own = [base_name(p) for p in paths], [base_name(n) for n in names]
    for number, (one, other) in enumerate(zip(stored, own, strict=True)):
        if one != other and one in own and other in stored:
            raise origin.error(
                f"expected {names[number]!r} as array {number}, received one that is called {one!r}. "
                "The order of the file is not that of the layer; save the model again.",
                layer,
            )


def _placed(
    model: Network, state: Mapping[str, Any], leaves: dict[str, Any], changes: Mapping
) -> tuple[Network, dict[str, Any]]:
    skeleton = skeleton_of(model)
    for (kind, path), value in changes.items():
        if kind == "weight":
            leaves[path] = jnp.asarray(value, leaves[path].dtype)
    made = skeleton.join(tuple(leaves[name] for name in skeleton.names))
    states = {tuple(_keys(state, p)): v for (kind, p), v in changes.items() if kind == "state"}
    return made, _filled(state, states, ())


def _filled(state: Mapping[str, Any], values: Mapping, at: tuple[str, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in state.items():
        place = (*at, key)
        if isinstance(value, Mapping):
            made[key] = _filled(value, values, place)
        elif place in values:
            made[key] = jnp.asarray(values[place], value.dtype)
        elif isinstance(value, jax.ShapeDtypeStruct):
            made[key] = jnp.zeros(value.shape, value.dtype)
        else:
            made[key] = value
    return made
