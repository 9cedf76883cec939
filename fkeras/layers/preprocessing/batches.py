"""The data of `adapt`: an array, or batches of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np


def is_whole(data: Any) -> bool:
    """Whether `data` are one batch: an array, a tensor, a string, and no iterable of batches."""
    one = isinstance(data, np.ndarray | jax.Array | str | bytes) or hasattr(data, "numpy")
    return one or not hasattr(data, "__iter__")


def iterate(data: Any, steps: int | None) -> Iterable[Any]:
    """The batches of `data`, at most `steps` of them; an array is one batch.

    Example:
        >>> list(iterate(iter([[1], [2], [3]]), 2))
        [[1], [2]]
    """
    return (data,) if is_whole(data) else itertools.islice(data, steps)
