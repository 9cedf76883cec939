"""Weights as NumPy lists in Keras's order: each layer's own weights, its state, then its children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import children
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values.arrays import read_array

Path = tuple[str, ...]


def _entries(layer: Any, state: Mapping[str, Any], path: str, at: Path) -> list[tuple]:
    """`("weight", path)` and `("state", keys)` in Keras's order."""
    found = list(_declared(layer, state, path, at))
    early = [f"{path}/{name}" if path else name for name in layer.keras_form.early_weights]
    return sorted(found, key=lambda entry: entry[1] not in early) if early else found


def _declared(layer: Any, state: Mapping[str, Any], path: str, at: Path) -> Iterator[tuple]:
    skeleton = skeleton_of(layer)
    for name in sorted(skeleton.weights, key=lambda name: name in layer.weight_roles.untrained):
        if getattr(layer, name) is not None:
            yield "weight", f"{path}/{name}" if path else name
    below = list(children(layer))
    inner = {name for name, _ in below}
    order = layer.keras_form.state_order
    for key in sorted(state, key=lambda k: (order.index(k) if k in order else len(order), k)):
        value = state[key]
        # Keras keeps the carries of recurrent layers out of its lists, as out of its files
        if layer.keras_form.stores_state and key not in inner and not isinstance(value, Mapping):
            yield "state", (*at, key)
    for name, child in below:
        yield from _entries(child, state.get(name, {}), join_path(path, name), (*at, name))


def _lookup(state: Mapping[str, Any], path: Path) -> Any:
    for key in path:
        state = state[key]
    return state


def weight_order(layer: Any) -> list[str]:
    """The paths of a built layer's weights in Keras's order, which need not be that of its leaves.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2, name="dense")])
        >>> weight_order(model.build(jax.random.key(0)))
        ['dense/kernel', 'dense/bias']
    """
    return list(dict.fromkeys(place for _, place in _entries(layer, {}, "", ())))


def get_weights(layer: Any, state: Mapping[str, Any] | None = None) -> list[np.ndarray]:
    """The layer's weights and state as NumPy arrays in Keras's order.

    Without `state` the list has only the weights. The carries of stateful recurrent layers are
    left out, as in Keras.
    """
    _require_built(layer, "get_weights")
    state = state or {}
    leaves = dict(zip(skeleton_of(layer).names, leaves_of(layer), strict=True))
    return [
        np.asarray(leaves[place] if kind == "weight" else _lookup(state, place))
        for kind, place in _entries(layer, state, "", ())
    ]


def set_weights(
    layer: Any, values: Sequence[Any], state: Mapping[str, Any] | None = None
) -> tuple[Any, dict[str, Any]]:
    """`(layer, state)` with `values` in their places; carries of recurrent layers stay as they are.

    Raises:
        ValueError: for a list of another length, or an array of another shape.
    """
    _require_built(layer, "set_weights")
    given, state = list(values), state or {}
    entries = _entries(layer, state, "", ())
    skeleton = skeleton_of(layer)
    leaves = dict(zip(skeleton.names, leaves_of(layer), strict=True))
    if len(given) != len(entries):
        names = [p if kind == "weight" else "/".join(p) for kind, p in entries]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        hint = "" if state else " A layer with state (moving statistics) needs state=state too."
        raise ValueError(
            f"{layer.where}: set_weights expected {len(entries)} arrays ({shown}), received "
            f"{len(given)}. Pass one array for each, in this order.{hint}"
        )
    changes: dict[Path, Any] = {}
    for value, (kind, place) in zip(given, entries, strict=True):
        old = leaves[place] if kind == "weight" else _lookup(state, place)
        name = place if kind == "weight" else "/".join(place)
        if np.shape(value) != np.shape(old):
            raise ValueError(
                f"{layer.where}: set_weights expected {name!r} of shape {np.shape(old)}, received "
                f"shape {np.shape(value)}. Check the order of the list, or build the layer for "
                "the other shape."
            )
        host = value if isinstance(value, list | tuple | int | float) else read_array(value, name)
        array = jnp.asarray(np.asarray(host), dtype=old.dtype)
        if kind == "weight":
            leaves[place] = array
        else:
            changes[place] = array
    new = skeleton.join(tuple(leaves[name] for name in skeleton.names))
    return new, _replaced(state, changes)


def _replaced(state: Mapping[str, Any], changes: Mapping[Path, Any], at: Path = ()) -> dict:
    return {
        key: _replaced(value, changes, (*at, key))
        if isinstance(value, Mapping)
        else changes.get((*at, key), value)
        for key, value in state.items()
    }


def _require_built(layer: Any, what: str) -> None:
    if not layer.built:
        raise ValueError(
            f"{layer.where}: {what} needs a built layer, and this one has no weights. Build it: "
            "`layer.build(jax.random.key(0), (None, 8))`."
        )
