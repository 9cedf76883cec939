"""Windows of a time series."""

from __future__ import annotations

from typing import Any

import numpy as np

from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.messages.errors import describe_value
from fkeras.utils.sources.dataset import Dataset
from fkeras.utils.sources.directory import check_format

_COUNT = integer(minimum=1)
_PLACE = integer(minimum=0, optional=True)
_SEED = integer(minimum=0, maximum=2**32 - 1, optional=True)


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "grain",
    shard: tuple[int, int] = (0, 1),
) -> Dataset:
    """Returns a dataset of windows over a time series, without copies of the series.

    Args:
        data: array whose axis 0 is time.
        targets: array of targets, of which `targets[i]` belongs to the window that begins at `i`;
            None for windows without targets.
        sequence_length: number of time steps of a window.
        sequence_stride: time steps between the beginnings of windows.
        sampling_rate: time steps between the steps of a window.
        batch_size: number of windows of a batch; None for single windows.
        shuffle: whether to shuffle the windows, in another order in each epoch of `fit`.
        seed: seed of the order; None for 0, so that a program repeats its order.
        start_index: first time step that is used; None for 0.
        end_index: first time step that is not used; None for the end.
        format: "grain".
        shard: `(index, count)`: the share of this process among several.

    Returns:
        A `Dataset` of `(windows, targets)`, or of windows: shape (b, sequence_length, ...).

    Raises:
        ValueError: for arguments out of range, and for a series shorter than one window.
        ImportError: if grain is missing.

    Example:
        >>> data = timeseries_dataset_from_array(np.arange(5), np.arange(3, 8), 3, batch_size=2)
        >>> for windows, targets in data:
        ...     print(windows.tolist(), targets.tolist())
        [[0, 1, 2], [1, 2, 3]] [3, 4]
        [[2, 3, 4]] [5]
    """
    where = "timeseries_dataset_from_array"
    check_format(where, format)
    length = _COUNT.check(f"{where}: sequence_length", sequence_length)
    stride = _COUNT.check(f"{where}: sequence_stride", sequence_stride)
    rate = _COUNT.check(f"{where}: sampling_rate", sampling_rate)
    shuffle = boolean.check(f"{where}: shuffle", shuffle)
    seed = _SEED.check(f"{where}: seed", seed)
    start = _PLACE.check(f"{where}: start_index", start_index) or 0
    end = _PLACE.check(f"{where}: end_index", end_index)
    series = _array(data, f"{where}: data")
    answers = None if targets is None else _array(targets, f"{where}: targets")[start:]
    end = len(series) if end is None else end
    if not start < end <= len(series):
        raise ValueError(
            f"{where}: expected start_index below end_index, and at most the {len(series)} steps of "
            f"the data, received {start} and {end}."
        )
    series = series[start:end]
    count = len(series) - (length - 1) * rate
    count = count if answers is None else min(count, len(answers))
    if count < 1:
        few = "" if answers is None else f" and {len(answers)} targets"
        raise ValueError(
            f"{where}: expected {(length - 1) * rate + 1} time steps or more for a window of "
            f"{length} steps, received {len(series)}{few}. Shorten sequence_length or "
            "sampling_rate."
        )
    begins = np.arange(0, count, stride)
    if shuffle:  # Keras's order: it shuffles the beginnings, and each pass again
        np.random.RandomState(seed or 0).shuffle(begins)
    steps = np.arange(length) * rate

    def read(ids: np.ndarray) -> Any:
        places = begins[ids]
        windows = series[places[:, None] + steps]
        return windows if answers is None else (windows, answers[places])

    return Dataset(len(begins), read, batch_size, shuffle, seed, shard)


def _array(value: Any, where: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.ndim == 0 or array.dtype == object:
        raise ValueError(
            f"{where}: expected an array whose axis 0 is time, received {describe_value(value)}."
        )
    return array
