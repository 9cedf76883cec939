"""Splitting of a dataset into two parts."""

from __future__ import annotations

import random
from typing import Any

import jax
import numpy as np

from fkeras.engine.config.converters import boolean, either, integer, real
from fkeras.engine.messages.errors import describe_value

_FRACTION = real(above=0, below=1)
_SIZE = either(_FRACTION, integer(minimum=1), optional=True)
_SEED = integer(optional=True)


def split_dataset(
    dataset: Any,
    left_size: float | None = None,
    right_size: float | None = None,
    shuffle: bool = False,
    seed: int | None = None,
) -> tuple[Any, Any]:
    """Splits samples into two parts, such as training and validation data.

    Keras assigns the same samples to each part for the same seed.

    Args:
        dataset: an array; tuples, lists or dictionaries of arrays of one length; or a
            `grain.MapDataset`, which is read only when its parts are read.
        left_size: size of the left part as a fraction below 1, such as 0.8, or as a number of
            samples; None for all samples that are not in the right part.
        right_size: size of the right part in the same form; `left_size` or `right_size` is needed.
        shuffle: whether to shuffle the samples first.
        seed: seed of the shuffling; None for another order in each call.

    Returns:
        `(left, right)`, both in the structure of `dataset`: `fit` takes a part without changes.

    Raises:
        ValueError: for sizes above the number of samples, and for a part without samples.
        TypeError: for a dataset of unknown length, such as a generator.

    Example:
        >>> left, right = split_dataset(np.arange(5), left_size=0.6)
        >>> left, right
        (array([0, 1, 2]), array([3, 4]))
    """
    shuffle = boolean.check("split_dataset: shuffle", shuffle)
    seed = _SEED.check("split_dataset: seed", seed)
    is_grain = not isinstance(dataset, dict | list | tuple) and hasattr(dataset, "to_iter_dataset")
    samples = dataset if is_grain else jax.tree.map(_as_array, dataset, is_leaf=_is_array)
    total = len(samples) if is_grain else _sample_count(samples)
    left, right = _part_sizes(left_size, right_size, total)
    order = list(range(total))
    if shuffle:
        random.Random(seed).shuffle(order)
    left_ids, right_ids = order[:left], order[total - right :]
    if is_grain:
        return (
            _grain_part(samples, left_ids, shuffle),
            _grain_part(samples, right_ids, shuffle),
        )
    left_rows: Any = np.asarray(left_ids)
    right_rows: Any = np.asarray(right_ids)
    if not shuffle:  # slices of NumPy arrays are views and take no memory
        left_rows, right_rows = slice(left), slice(total - right, None)
    return (
        jax.tree.map(lambda array: array[left_rows], samples),
        jax.tree.map(lambda array: array[right_rows], samples),
    )


def _grain_part(dataset: Any, ids: list[int], shuffle: bool) -> Any:
    if not shuffle:
        return dataset.slice(slice(ids[0], ids[-1] + 1))
    # a dataset of sample numbers: grain reads a sample only when its number is reached
    return type(dataset).source(ids).map(lambda index: dataset[index])


def _is_array(value: object) -> bool:
    # a list of numbers is one array; a list of arrays or lists is a structure of several arrays
    is_flat_list = isinstance(value, list) and not any(hasattr(item, "__len__") for item in value)
    return (is_flat_list and bool(value)) or not isinstance(value, dict | list | tuple)


def _as_array(value: object) -> Any:
    if isinstance(value, jax.Array):
        return value
    array = np.asarray(value)
    if array.ndim == 0 or isinstance(value, str | bytes):
        raise TypeError(
            "split_dataset: expected arrays, or a grain.MapDataset, received "
            f"{describe_value(value)}. Collect a stream of batches into arrays first."
        )
    return array


def _sample_count(arrays: Any) -> int:
    counts = [len(array) for array in jax.tree.leaves(arrays)]
    if not counts or len(set(counts)) > 1 or counts[0] < 2:
        raise ValueError(
            "split_dataset: expected arrays with the same number of rows, two or more, received "
            f"{counts or 'no array'}. Pass arrays with one row for each sample."
        )
    return counts[0]


def _part_sizes(left: float | None, right: float | None, total: int) -> tuple[int, int]:
    left = _SIZE.check("split_dataset: left_size", left)
    right = _SIZE.check("split_dataset: right_size", right)
    if left is None and right is None:
        raise ValueError(
            "split_dataset: expected left_size or right_size, received neither. Write "
            "left_size=0.8 for four fifths of the samples."
        )
    left_count, right_count = (
        round(size * total) if isinstance(size, float) else size for size in (left, right)
    )
    left_count = total - (right_count or 0) if left_count is None else left_count
    right_count = total - left_count if right_count is None else right_count
    # fractions whose sum is 1 may round to more than all samples
    if isinstance(left, float) and isinstance(right, float) and left + right <= 1:
        right_count = min(right_count, total - left_count)
    if left_count < 1 or right_count < 1 or left_count + right_count > total:
        raise ValueError(
            f"split_dataset: expected two parts of {total} samples, received left_size={left} and "
            f"right_size={right}, which are {left_count} and {right_count} samples. Choose sizes "
            f"of 1 or more whose sum is at most {total}."
        )
    return left_count, right_count
