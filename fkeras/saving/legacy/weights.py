"""Arrays of a legacy file into a model of shapes: a group for each layer, a list in each group.

Nothing is initialised: every weight comes from the file. What no file of this kind holds, the
carry of a stateful layer, begins with zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import Network
from fkeras.engine.skeleton import leaves_of, skeleton_of
from fkeras.saving.hdf5 import Store
from fkeras.saving.legacy import arrays
from fkeras.saving.legacy.graphs import safe_name
from fkeras.saving.legacy.order import Orders, Unit, listed, ordered
from fkeras.saving.legacy.origin import Origin, origin_of


def words(store: Store, group: str, name: str, origin: Origin) -> list[str]:
    """A list of strings in the attributes of a group, which may be split: `name0`, `name1`...

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
    """The group with the weights: "model_weights" in a whole model's file, else the root."""
    return "model_weights" if "model_weights" in store.groups() else ""


def place_legacy_weights(
    store: Store, model: Network, state: Mapping[str, Any], orders: Orders | None = None
) -> tuple[Network, dict[str, Any]]:
    """`(model, state)` with the weights of a legacy file, as Keras 1, 2 and 3 write `.h5`.

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
    pairs = stored_layers(store, model, state, orders)
    origin = dataclasses.replace(origin, backend=_backend(origin, pairs))
    leaves = dict(zip(skeleton_of(model).names, leaves_of(model), strict=True))
    for own, stored, paths in pairs:
        units = listed(model.layers[own], _state(state, own), (own,), orders)
        _read_layer(store, own, stored, paths, units, leaves, state, origin, changes)
    return _placed(model, state, leaves, changes)


def _state(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = state.get(name, {})
    return found if isinstance(found, Mapping) else {}


def _backend(origin: Origin, pairs: Sequence[tuple[str, str, list[str]]]) -> str | None:
    """The backend, which Keras 1 does not note: TensorFlow's names of variables end with ":0"."""
    names = [path for *_, paths in pairs for path in paths]
    if origin.major > 1 or origin.backend is not None or not names:
        return origin.backend
    return "tensorflow" if any(":" in name for name in names) else "theano"


def stored_layers(
    store: Store, model: Network, state: Mapping[str, Any], orders: Orders
) -> list[tuple[str, str, list[str]]]:
    """`(layer, group, paths of arrays)` for each layer of a model that has arrays.

    Raises:
        FileError: where the file has other layers than the model.
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
    own = [
        name
        for name in ordered(model, (), orders)
        if listed(model.layers[name], _state(state, name), (name,), orders)
    ]
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


def _known_groups(store: Store, path: str) -> tuple[str, ...]:
    above, _, name = path.rpartition("/")
    return (path,) if name in store.groups(above) else ()


def _read_layer(
    store: Store,
    name: str,
    group: str,
    paths: Sequence[str],
    units: Sequence[Unit],
    leaves: Mapping[str, Any],
    state: Mapping[str, Any],
    origin: Origin,
    changes: dict[tuple[str, str], np.ndarray],
) -> None:
    origin = origin.at(f"/{group}")
    expected = sum(len(unit.names) for unit in units)
    counts: list[int] = []
    for apart in (True, False):
        counts = [arrays.stored_count(u.layer, len(u.names), origin, apart) for u in units]
        if sum(counts) == len(paths):
            break
    else:
        shown = ", ".join(n for u in units for n in u.names[:4])
        raise origin.error(
            f"expected {expected} arrays ({shown}), received {len(paths)}. The weights belong to "
            "another model.",
            name,
        )
    _check_names(paths, [n for u in units for n in u.names], origin, name)
    start = 0
    for unit, count in zip(units, counts, strict=True):
        specs = [
            leaves[path] if kind == "weight" else _lookup(state, path)
            for path, kind in zip(unit.names, unit.kinds, strict=True)
        ]
        shapes = [tuple(spec.shape) for spec in specs]
        values = [store.read(path) for path in paths[start : start + count]]
        start += count
        made = arrays.converted(unit.layer, values, shapes, origin)
        for path, kind, spec, value in zip(unit.names, unit.kinds, specs, made, strict=True):
            _check_array(path, spec, value, origin, name)
            changes[kind, path] = value


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


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1].split(":")[0]


def _check_names(paths: Sequence[str], names: Sequence[str], origin: Origin, layer: str) -> None:
    """Refuses arrays whose own names contradict their places: equal shapes would hide it."""
    if len(paths) != len(names):
        return
    stored, own = [_base(p) for p in paths], [_base(n) for n in names]
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
