"""Layout of Keras 2's weight files: groups whose names differ from Keras 3."""

from __future__ import annotations

from collections.abc import Callable

from fkeras.host.containers.hdf5 import Store
from fkeras.layers.attention.projected import PROJECTIONS

#: group of a model's layers in Keras 2.12 and 2.13
OLD_LAYERS = "_layer_checkpoint_dependencies"


def has_old_layers(store: Store) -> bool:
    """Returns whether the file has the group of layers of Keras 2.12 and 2.13."""
    # a property of tf.keras models that precedes `layers` in Keras's walk over attributes
    return not store.has("layers") and store.has(OLD_LAYERS)


def has_arrays(store: Store, path: str) -> bool:
    """Returns whether a weight file has arrays in a group, or in a group inside the group."""
    if not store.has(path):
        return False
    subgroups = (f"{path}/{name}" for name in store.groups(path))
    return bool(store.datasets(path)) or any(has_arrays(store, group) for group in subgroups)


def path_in(store: Store) -> Callable[[str], str]:
    """Returns a function from a path in Keras 3's layout to the path in a store.

    Keras 2.12 and 2.13 name the group of a model's layers differently, and Keras 2 stores the
    projections of MultiHeadAttention in groups such as "_query_dense".
    """
    is_old = has_old_layers(store)

    def path(path: str) -> str:
        parts = path.split("/")
        if is_old:
            parts = [OLD_LAYERS if part == "layers" else part for part in parts]
        # the new name first: a layer of the user may have an attribute of a projection's name
        if any(part in PROJECTIONS for part in parts) and not store.has("/".join(parts)):
            private_path = "/".join(f"_{part}" if part in PROJECTIONS else part for part in parts)
            if store.has(private_path):
                return private_path
        return "/".join(parts)

    return path
