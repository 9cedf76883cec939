"""Arrays in files whose bytes are present, but not read yet."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jax.typing import DTypeLike

from fkeras.host.containers.hdf5 import Store

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


def unread(store: Store, path: str) -> Stored:
    """Returns an array of a store without reading its numbers."""
    return Stored(store.shape(path), store.dtype(path), functools.partial(store.read, path))


def loaded(array: np.ndarray) -> Stored:
    """Returns an array in memory in the form of an array in a file."""
    return Stored(array.shape, array.dtype, lambda: array)


def fits(stored: np.dtype, wanted: DTypeLike) -> bool:
    """Returns whether a stored array may be cast to the dtype of a place: the kinds must be equal.

    Integers and booleans never become float weights: these arrays are codes, counts or masks.
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
