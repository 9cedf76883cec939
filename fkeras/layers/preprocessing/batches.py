"""Data of `adapt`: an array, or an iterable of batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from fkeras.layers.common import authoring as fk


def is_whole(data: fk.Tree) -> bool:
    """Returns whether `data` is one batch (array, tensor, string), not an iterable of batches."""
    # a string is iterable, but its characters are not batches
    is_array = isinstance(data, np.ndarray | jax.Array | str | bytes) or hasattr(data, "numpy")
    return is_array or not hasattr(data, "__iter__")


def iterate(data: fk.Tree, steps: int | None) -> Iterable[Any]:
    """Returns an iterator over at most `steps` batches of `data`; an array is one batch."""
    return (data,) if is_whole(data) else itertools.islice(data, steps)
