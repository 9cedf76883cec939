"""Dataset of windows over a time series."""

from __future__ import annotations

from typing import Any

import numpy as np

from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.argument_types import Numbers
from fkeras.utils.sources.dataset import Dataset
from fkeras.utils.sources.directory import check_format

_LENGTH = integer(minimum=1)
_TIME_STEP = integer(minimum=0, optional=True)
_SEED = integer(minimum=0, maximum=2**32 - 1, optional=True)


def timeseries_dataset_from_array(
    data: Numbers,
    targets: Numbers | None,
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
    """Returns a dataset of windows over a time series; windows are copied when a batch is read.

    Args:
        data: array whose axis 0 is time.
        targets: array in which `targets[i]` belongs to the window that starts at time step `i`; None
            for windows without targets.
        sequence_length: number of time steps of a window.
        sequence_stride: number of time steps between the starts of two windows.
        sampling_rate: number of time steps between two steps of a window.
        batch_size: number of windows of a batch, over all shares together; None for single windows.
        shuffle: whether to shuffle the windows, in another order in each epoch of `fit`.
        seed: seed of the order; None for 0, so that each run of a program has the same order.
        start_index: first time step of the data; None for 0.
        end_index: time step after the last step of the data; None for the length of the series.
        format: "grain"; Keras's "tf" is rejected.
        shard: `(index, count)`: this process reads block number `index` of the `count` equal blocks
            of each batch, as in `Dataset`.

    Returns:
        A `Dataset` of `(windows, targets)`, or of windows: shape (b, sequence_length, ...).

    Raises:
        ValueError: for arguments out of range, for a batch_size that the shares cannot divide, and
            for a series shorter than one window.
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
    length = _LENGTH.check(f"{where}: sequence_length", sequence_length)
    stride = _LENGTH.check(f"{where}: sequence_stride", sequence_stride)
    rate = _LENGTH.check(f"{where}: sampling_rate", sampling_rate)
    shuffle = boolean.check(f"{where}: shuffle", shuffle)
    seed = _SEED.check(f"{where}: seed", seed)
    start = _TIME_STEP.check(f"{where}: start_index", start_index) or 0
    end = _TIME_STEP.check(f"{where}: end_index", end_index)
    series = _time_array(data, f"{where}: data")
    target_rows = None if targets is None else _time_array(targets, f"{where}: targets")[start:]
    end = len(series) if end is None else end
    if not start < end <= len(series):
        raise ValueError(
            f"{where}: expected start_index below end_index, and at most the {len(series)} steps of "
            f"the data, received {start} and {end}. Leave both out for the whole series."
        )
    series = series[start:end]
    # number of possible starts of windows
    count = len(series) - (length - 1) * rate
    count = count if target_rows is None else min(count, len(target_rows))
    if count < 1:
        target_count = "" if target_rows is None else f" and {len(target_rows)} targets"
        raise ValueError(
            f"{where}: expected {(length - 1) * rate + 1} time steps or more for a window of "
            f"{length} steps, received {len(series)}{target_count}. Reduce sequence_length or "
            "sampling_rate."
        )
    starts = np.arange(0, count, stride)
    if shuffle:  # Keras's order: Keras shuffles the windows here, and again in each pass
        np.random.RandomState(seed or 0).shuffle(starts)
    steps = np.arange(length) * rate

    def read(ids: np.ndarray) -> Any:
        batch_starts = starts[ids]
        windows = series[batch_starts[:, None] + steps]
        return windows if target_rows is None else (windows, target_rows[batch_starts])

    return Dataset(len(starts), read, batch_size, shuffle, seed, shard)


def _time_array(value: Numbers, where: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.ndim == 0 or array.dtype == object:
        raise ValueError(
            f"{where}: expected an array whose axis 0 is time, received {describe_value(value)}. "
            "Write np.asarray(values)."
        )
    return array
