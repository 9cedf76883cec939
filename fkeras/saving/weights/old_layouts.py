"""Layout of Keras 2's weight files: groups that have other names in Keras 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fkeras.layers.attention.projected import PROJECTIONS

#: group of a model's layers in Keras 2.12 and 2.13
OLD_LAYERS = "_layer_checkpoint_dependencies"


def has_old_layers(store: Any) -> bool:
    """Whether the layers of the model are in the group of Keras 2.12 and 2.13."""
    return not store.has("layers") and store.has(OLD_LAYERS)


def has_arrays(store: Any, path: str) -> bool:
    """Whether a weight file has arrays in a group or in the groups inside the group."""
    if not store.has(path):
        return False
    below = (f"{path}/{name}" for name in store.groups(path))
    return bool(store.datasets(path)) or any(has_arrays(store, group) for group in below)


def path_in(store: Any) -> Callable[[str], str]:
    """Returns a function from a path in Keras 3's layout to the path in a store.

    Keras 2.12 and 2.13 name the group of a model's layers differently, and Keras 2 stores the
    projections of MultiHeadAttention in groups such as "_query_dense".

    Args:
        store: a weight file.
    """
    old = has_old_layers(store)

    def path(path: str) -> str:
        parts = path.split("/")
        if old:
            parts = [OLD_LAYERS if part == "layers" else part for part in parts]
        if any(part in PROJECTIONS for part in parts) and not store.has("/".join(parts)):
            hidden = "/".join(f"_{part}" if part in PROJECTIONS else part for part in parts)
            if store.has(hidden):
                return hidden
        return "/".join(parts)

    return path
