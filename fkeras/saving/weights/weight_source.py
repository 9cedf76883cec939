"""Where weights come from: the arrays of a file by key, whatever kind of file it is.

A kind of file has a key for each place of a model: Keras's path in HDF5, the model's own path in
safetensors and `.npz`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fkeras.saving.weights.weight_paths import BY_CLASS, Groups, Place

# a file may give its numbers to a place of the same kind; real floats also to a complex one
_KINDS = ("b", "iu", "f", "c")


@dataclasses.dataclass(frozen=True)
class Stored:
    """An array in a file that was found to be whole, and is not read yet.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        read: reads it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Source:
    """The arrays of an open file.

    Attributes:
        file: the path of the file, for messages.
        arrays: the arrays by key.
        key: the key of a place; None where such files do not keep it.
        groups: finds the groups of layers in a list, for files with Keras's paths.
        member: the part of the file that holds them all, or None.
        label: the path that a key stands for, by the names of the file's own layers.
    """

    file: str
    arrays: Mapping[str, Stored]
    key: Callable[[Place], str | None]
    groups: Groups = BY_CLASS
    member: str | None = None
    label: Callable[[str], str] = str


def unread(store: Any, path: str) -> Stored:
    """An array of a store that is not read yet."""
    return Stored(store.shape(path), store.dtype(path), functools.partial(store.read, path))


def own_path(place: Place) -> str:
    """The key of a place in files that go by the model's own paths.

    Example:
        >>> own_path(Place("layers/dense/vars/0", "weight", "dense/kernel", None))
        'dense/kernel'
    """
    return place.name


def own_path_by_kind(place: Place) -> str:
    """The key of a place in `.npz` files: "weights/" or "state/", and the model's own path."""
    return f"{'weights' if place.kind == 'weight' else 'state'}/{place.name}"


def fits(stored: np.dtype, wanted: Any) -> bool:
    """Whether numbers of one dtype can stand for those of another, which is of the same kind.

    Integers and booleans are no weights of floats: they are codes, counts or masks.

    Example:
        >>> fits(np.dtype("float16"), "float32"), fits(np.dtype("int8"), "float32")
        (True, False)
    """

    def kind(dtype: Any) -> int:
        small = np.dtype(dtype).name.startswith(("bfloat", "float8"))
        letter = "f" if small else np.dtype(dtype).kind
        return next((rank for rank, letters in enumerate(_KINDS) if letter in letters), -1)

    if stored.kind == "V" and stored.itemsize == np.dtype(wanted).itemsize:
        return np.dtype(wanted).kind == "V"  # bfloat16 as np.savez writes it
    pair = kind(stored), kind(wanted)
    return pair == (2, 3) or (pair[0] == pair[1] and pair[0] >= 0)
