"""Two parts of a dataset."""

from __future__ import annotations

import random
from typing import Any

import jax
import numpy as np

from fkeras.engine.config.converters import boolean, either, integer, real
from fkeras.engine.messages.errors import describe_value

_SHARE = real(above=0, below=1)
_SIZE = either(_SHARE, integer(minimum=1), optional=True)
_SEED = integer(optional=True)


def split_dataset(
    dataset: Any,
    left_size: float | None = None,
    right_size: float | None = None,
    shuffle: bool = False,
    seed: int | None = None,
) -> tuple[Any, Any]:
    """Splits samples into two parts, such as training and validation data.

    The rows of each part are those that Keras returns with the same seed.

    Args:
        dataset: an array, or arrays of one length in tuples, lists or dictionaries; or a
            `grain.MapDataset`, of which the parts are views.
        left_size: a share of the samples, such as 0.8, or a number of samples; None for the rest.
        right_size: the same for the right part; `left_size` or `right_size` is needed.
        shuffle: whether to shuffle the samples first.
        seed: seed of the shuffling; None for another order in each call.

    Returns:
        `(left, right)`: both have the structure of `dataset`, so `fit` takes them as they are.

    Raises:
        ValueError: for sizes that do not fit the dataset or leave a part empty.
        TypeError: for a dataset of unknown length.

    Example:
        >>> left, right = split_dataset(np.arange(5), left_size=0.6)
        >>> left, right
        (array([0, 1, 2]), array([3, 4]))
    """
    shuffle = boolean.check("split_dataset: shuffle", shuffle)
    seed = _SEED.check("split_dataset: seed", seed)
    grain = not isinstance(dataset, dict | list | tuple) and hasattr(dataset, "to_iter_dataset")
    rows = dataset if grain else jax.tree.map(_array, dataset, is_leaf=_is_leaf)
    total = len(rows) if grain else _count(rows)
    left, right = _sizes(left_size, right_size, total)
    order = list(range(total))
    if shuffle:
        random.Random(seed).shuffle(order)
    parts = order[:left], order[total - right :]
    if grain:
        return _chosen(rows, parts[0], shuffle), _chosen(rows, parts[1], shuffle)
    first, second = (np.asarray(part) for part in parts)
    if not shuffle:  # slices of NumPy arrays need no memory
        first, second = slice(left), slice(total - right, None)
    return jax.tree.map(lambda a: a[first], rows), jax.tree.map(lambda a: a[second], rows)


def _chosen(dataset: Any, order: list[int], shuffle: bool) -> Any:
    if not shuffle:
        return dataset.slice(slice(order[0], order[-1] + 1))
    # a dataset of indices: grain reads the samples when they are needed
    return type(dataset).source(order).map(lambda index: dataset[index])


def _is_leaf(value: Any) -> bool:
    # a list of numbers is one array, and a list of arrays is several
    numbers = isinstance(value, list) and not any(hasattr(item, "__len__") for item in value)
    return (numbers and bool(value)) or not isinstance(value, dict | list | tuple)


def _array(value: Any) -> Any:
    if isinstance(value, jax.Array):
        return value
    array = np.asarray(value)
    if array.ndim == 0 or isinstance(value, str | bytes):
        raise TypeError(
            "split_dataset: expected arrays, or a grain.MapDataset, received "
            f"{describe_value(value)}. Collect a stream of batches into arrays first."
        )
    return array


def _count(rows: Any) -> int:
    counts = [len(array) for array in jax.tree.leaves(rows)]
    if not counts or len(set(counts)) > 1 or counts[0] < 2:
        raise ValueError(
            "split_dataset: expected arrays with the same number of rows, two or more, received "
            f"{counts or 'no array'}. Every array has one row for each sample."
        )
    return counts[0]


def _sizes(left: Any, right: Any, total: int) -> tuple[int, int]:
    left = _SIZE.check("split_dataset: left_size", left)
    right = _SIZE.check("split_dataset: right_size", right)
    if left is None and right is None:
        raise ValueError(
            "split_dataset: expected left_size or right_size, received neither. Write "
            "left_size=0.8 for four fifths of the samples."
        )
    first, second = (round(n * total) if isinstance(n, float) else n for n in (left, right))
    first = total - (second or 0) if first is None else first
    second = total - first if second is None else second
    # two shares whose sum is 1 may round to more than all samples
    both = isinstance(left, float) and isinstance(right, float) and left + right <= 1
    second = min(second, total - first) if both else second
    if first < 1 or second < 1 or first + second > total:
        raise ValueError(
            f"split_dataset: expected two parts of {total} samples, received left_size={left} and "
            f"right_size={right}, which are {first} and {second} samples. Each part needs one "
            "sample or more, and no sample is in both parts."
        )
    return first, second
