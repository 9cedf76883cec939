"""Abstract models, which hold shapes, and their filling with the arrays of a file.

The loader first builds a model of shapes and dtypes. A damaged file is then rejected before memory
is allocated, and no initializer runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.engine import Layer, Model, Network
from fkeras.engine.call.building import build_shapes
from fkeras.engine.tree.skeleton import skeleton_of
from fkeras.engine.tree.sublayers import replace_children
from fkeras.engine.values.spec import Spec
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.stored import fits
from fkeras.saving.weights.old_layouts import OLD_LAYERS, path_in
from fkeras.saving.weights.placing import Key, Transfer, with_arrays
from fkeras.saving.weights.quantized_codes import find_in, moved, with_stored_codes
from fkeras.saving.weights.vocabularies import IDF_WEIGHTS
from fkeras.saving.weights.weight_paths import (
    BY_CLASS,
    Groups,
    Place,
    by_class,
    copied_groups,
    places,
    with_copies,
)


def abstract_build(model: Layer, *specs: Spec) -> tuple[Any, dict[str, Any]]:
    """Returns `(model, state)` of shapes and dtypes; no initializer runs.

    Args:
        specs: a spec for each input of a network without known inputs.

    Example:
        >>> import fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2, name="dense")])
        >>> abstract_build(model)[0].layers["dense"].kernel
        ShapeDtypeStruct(shape=(3, 2), dtype=float32)
    """
    return build_shapes(model, *specs, state=True)


def fill(
    model: Layer,
    state: Mapping[str, Any],
    read: Callable[[Place], np.ndarray],
    groups: Groups = BY_CLASS,
    file: str | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Returns `(model, state)` with an array for each place, on its devices.

    Args:
        model: abstract model, or model of arrays; shapes with a sharding become sharded arrays.
        read: returns the array of a place; called once for each weight.
    """
    places_by_key: dict[Key, Place] = {}
    for place in places(model, state, groups):
        # Keras stores some weights twice; the later place, of the weight's own layer, is read
        places_by_key[place.kind, place.name] = place
    transfer = Transfer(file)
    for key, place in places_by_key.items():
        if place.path:
            transfer.add(key, read(place), place.value)
    device_arrays = transfer.arrays()
    skeleton = skeleton_of(model)
    # a weight that the configuration leaves out (use_bias=False) is None
    model = skeleton.join(tuple(device_arrays.get(("weight", name)) for name in skeleton.names))
    if any(place.path is None for place in places_by_key.values()):
        state = model.init_state()  # state that no file stores starts anew
    return model, with_arrays(state, device_arrays)


def plain(layer: Layer) -> Any:
    """Replaces each subclassed model in a layer by its graph, which opens without the class.

    Example:
        >>> import jax, fkeras as fk
        >>> class Block(fk.Model):
        ...     units: int
        ...     def call(self, x):
        ...         return fk.layers.Dense(self.units)(x)
        >>> type(plain(Block(3).build(jax.random.key(0), (None, 2)))).__name__
        'Model'
    """
    if isinstance(layer, Network):
        if isinstance(layer, Model) and type(layer) is not Model and layer.graph is not None:
            layer = layer.functional()
    return replace_children(layer, lambda _, child: plain(child))


def noted_groups(store: Store, path: str) -> dict[str | None, str]:
    """Returns the groups inside a group by their stored layer names; None for no name."""
    groups_by_name: dict[str | None, str] = {}
    for group in store.groups(path):
        inner = f"{path}/{group}/vars" if path else f"{group}/vars"
        # an attribute of a file may have any type: only strings are names
        name = store.attributes(inner).get("name") if store.has(inner) else None
        groups_by_name.setdefault(name if isinstance(name, str) else None, group)
    return groups_by_name


def stored_groups(store: Store) -> Groups:
    """Finds groups by the layer names that the file stores, or else by Keras's numbering."""
    names = functools.cache(functools.partial(noted_groups, store))

    def find(path: str, layers: Sequence[Layer]) -> Sequence[str]:
        groups_by_name = names(path)
        # the layers of a network have unique names; the layers of a list may share a name
        if len({layer.name for layer in layers}) == len(layers):
            known_groups = [groups_by_name.get(layer.name) for layer in layers]
            if all(group is not None for group in known_groups):
                return [str(group) for group in known_groups]
        return by_class(path, layers)

    return Groups(find, store.has, names)


def stored_arrays(store: Store, path: str = "") -> Iterator[str]:
    """Yields the paths of all arrays of a store."""
    for name in store.datasets(path):
        yield f"{path}/{name}" if path else name
    for name in store.groups(path):
        yield from stored_arrays(store, f"{path}/{name}" if path else name)


def _layer_of(place: Place) -> str | None:
    return place.name.rpartition("/")[0] or None


def fill_from_store(
    model: Network, state: Mapping[str, Any], store: Store, groups: Groups | None = None
) -> tuple[Any, dict]:
    """Returns `(model, state)` with the arrays of a store in Keras's layout.

    Args:
        groups: finds the groups of layers in a list; by default by the names in the store.
    """
    used: set[str] = set()

    # quantization first: codes replace kernels, which changes names and shapes of the places
    groups = groups or stored_groups(store)
    model = with_stored_codes(model, find_in(store, model, groups))

    in_file = path_in(store)
    replacements = moved(model, store, groups, in_file)

    def error(problem: str, place: Place, path: str) -> FileError:
        return FileError(problem, file=store.file, member=store.place(path), layer=_layer_of(place))

    def find(place: Place) -> str:
        path = str(place.path)
        replacement = replacements.get(path)
        return replacement if isinstance(replacement, str) else in_file(path)

    def read(place: Place) -> np.ndarray:
        path, replacement = find(place), replacements.get(str(place.path))
        if isinstance(replacement, np.ndarray):
            return replacement
        if not store.has(path):
            raise error(
                f"expected an array of shape {tuple(place.value.shape)} for {place.name!r}, "
                "received none. The weights belong to another model; rebuild that model, or load "
                "the other weights with fk.load_weights(..., skip=[...]).",
                place,
                path,
            )
        # the expected shape goes along: the store compares it with the file before it allocates
        with reading(store.file, layer=_layer_of(place)):
            array = store.read(path, tuple(place.value.shape))
        if not fits(array.dtype, place.value.dtype):
            raise error(
                f"expected {np.dtype(place.value.dtype).name} for {place.name!r}, received "
                f"{array.dtype.name}. The weights belong to another model, or the file is damaged.",
                place,
                path,
            )
        return array

    copies = copied_groups(model, groups)
    for place in places(model, state, groups):
        used.update(with_copies(find(place), copies) if place.path else ())
    # Unexpected arrays are an error only in groups of layers. Other groups hold the optimizer's
    # state, and the weights of lookup layers, which are part of the configuration here.
    unexpected = [path for path in stored_arrays(store) if path not in used]
    unexpected = [path for path in unexpected if "layers/" in path or f"{OLD_LAYERS}/" in path]
    unexpected = [path for path in unexpected if not path.startswith("optimizer/")]
    unexpected = [path for path in unexpected if not path.endswith(IDF_WEIGHTS)]
    if unexpected:
        stored_places = [p for p in places(model, state, groups) if p.path]
        absent = [p.name for p in stored_places if not store.has(find(p))]
        lacks = f", and none for {', '.join(absent[:3])}" if absent else ""
        shown = ", ".join(unexpected[:5]) + (", ..." if len(unexpected) > 5 else "")
        raise FileError(
            f"received {len(unexpected)} arrays that belong to no layer of the model: {shown}{lacks}. The "
            "weights belong to another model, or to a layer that this version does not support; "
            "rebuild that model. Layers inside of an fk.Model need the names of the attributes of "
            "Keras's class.",
            file=store.file,
            member=store.member,
        )
    return fill(model, state, read, groups, store.file)
