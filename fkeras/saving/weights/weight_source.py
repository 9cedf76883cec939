"""The arrays of a weight file by key, a common interface of all formats.

The key of an array is Keras's path in HDF5, and the model's own path in safetensors and `.npz`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
from jax.typing import DTypeLike

from fkeras.host.containers.hdf5 import Store
from fkeras.saving.weights.weight_paths import BY_CLASS, Groups, Place

# kinds of dtypes: an array is cast within its kind only; real floats also to complex numbers
_KINDS = ("b", "iu", "f", "c")


@dataclasses.dataclass(frozen=True)
class Stored:
    """An array in a file whose bytes are present, but not read yet.

    Attributes:
        release: releases the memory of a mapped file, after the array that `read` returned is copied.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]
    release: Callable[[], None] = lambda: None


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


def unread(store: Store, path: str) -> Stored:
    """Returns an array of a store without reading its numbers."""
    return Stored(store.shape(path), store.dtype(path), functools.partial(store.read, path))


def loaded(array: np.ndarray) -> Stored:
    """Returns an array in memory in the form of an array in a file."""
    return Stored(array.shape, array.dtype, lambda: array)


def own_path(place: Place) -> str:
    """Returns the key of a place in formats with the model's own paths.

    Example:
        >>> own_path(Place("layers/dense/vars/0", "weight", "dense/kernel", None))
        'dense/kernel'
    """
    return place.name


def own_path_by_kind(place: Place) -> str:
    """Returns the key of a place in `.npz` files: "weights/" or "state/" and the model's own path."""
    return f"{'weights' if place.kind == 'weight' else 'state'}/{place.name}"


def fits(stored: np.dtype, wanted: DTypeLike) -> bool:
    """Returns whether a stored array may be cast to the dtype of a place: the kinds must be equal.

    Integers and booleans never become float weights: these arrays are codes, counts or masks.

    Example:
        >>> fits(np.dtype("float16"), "float32"), fits(np.dtype("int8"), "float32")
        (True, False)
    """

    def kind(dtype: DTypeLike) -> int:
        # NumPy gives most dtypes of ml_dtypes the kind "V"
        is_small_float = np.dtype(dtype).name.startswith(("bfloat", "float8"))
        kind_letter = "f" if is_small_float else np.dtype(dtype).kind
        return next((rank for rank, letters in enumerate(_KINDS) if kind_letter in letters), -1)

    if stored.kind == "V" and stored.itemsize == np.dtype(wanted).itemsize:
        return np.dtype(wanted).kind == "V"  # np.savez writes bfloat16 as raw bytes
    pair = kind(stored), kind(wanted)
    return pair == (2, 3) or (pair[0] == pair[1] and pair[0] >= 0)
