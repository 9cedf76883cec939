"""The arrays of a weight file by key, a common interface of all formats.

The key of an array is Keras's path in HDF5, and the model's own path in safetensors and `.npz`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from fkeras.host.containers.stored import Stored
from fkeras.saving.weights.weight_paths import BY_CLASS, Groups, Place


@dataclasses.dataclass(frozen=True)
class Source:
    """The arrays of an open file.

    Attributes:
        key: returns the key of a place; None for an array that the format does not store.
        groups: finds the groups of layers in a list, for files with Keras's paths.
        member: part of the file that holds the arrays, or None.
        label: returns the path of a key with the names of the file's layers, for messages.
    """

    file: str
    arrays: Mapping[str, Stored]
    key: Callable[[Place], str | None]
    groups: Groups = BY_CLASS
    member: str | None = None
    label: Callable[[str], str] = str


def own_path(place: Place) -> str:
    """Returns the key of a place in formats with the model's own paths."""
    return place.name


def own_path_by_kind(place: Place) -> str:
    """Returns the key of a place in `.npz` files: "weights/" or "state/" and the model's own path."""
    return f"{'weights' if place.kind == 'weight' else 'state'}/{place.name}"
