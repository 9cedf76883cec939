"""Columns of a table: dictionaries, tables of pandas, and streams of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.engine.messages.errors import describe_value

# Keras's layers learn from batches of this size; the bins of Discretization depend on the batches
_BATCH = 32


def as_columns(data: Any, where: str) -> dict[str, Any]:
    """Returns the columns of a table by name.

    Args:
        data: a dictionary, or an object with `keys` such as a table of pandas.
        where: name of the caller, for messages.

    Raises:
        TypeError: for other data.

    Example:
        >>> as_columns({"a": [1]}, "adapt")
        {'a': [1]}
    """
    if isinstance(data, Mapping) or (hasattr(data, "keys") and hasattr(data, "__getitem__")):
        return {name: data[name] for name in data.keys()}  # noqa: SIM118
    raise TypeError(
        f"{where}: expected columns by name, such as a dictionary of arrays, received "
        f"{describe_value(data)}."
    )


def read_columns(dataset: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Reads the columns that layers learn from.

    Args:
        dataset: a table, or an iterable of tables or of `(table, targets)`.
        names: names of the columns.

    Returns:
        Arrays of shape (n, 1) by name.

    Raises:
        TypeError: for data that are no tables.
        ValueError: for a missing column, and for an iterable without tables.

    Example:
        >>> read_columns([{"a": [1, 2]}, {"a": [3]}], ["a"])["a"].ravel()
        array([1, 2, 3])
    """
    where = "FeatureSpace.adapt"
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for table in _tables(dataset, where):
        columns = as_columns(table, where)
        for name in names:
            if name not in columns:
                raise ValueError(
                    f"{where}: expected a column {name!r}, received the columns "
                    f"{', '.join(map(str, columns)) or 'of an empty table'}."
                )
            array = np.asarray(columns[name])
            if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1):
                raise ValueError(
                    f"{where}: column {name!r}: expected the shape (b,) or (b, 1), received "
                    f"{array.shape}. A feature is one value for each row."
                )
            parts[name].append(array.reshape(-1, 1))
    empty = [name for name in names if sum(map(len, parts[name])) == 0]
    if empty:
        raise ValueError(
            f"{where}: expected rows, received none for {empty[0]!r}. An iterator that was read "
            "before is empty."
        )
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _tables(dataset: Any, where: str) -> Iterable[Any]:
    if isinstance(dataset, Mapping) or hasattr(dataset, "keys"):
        yield dataset
        return
    if isinstance(dataset, str | bytes | np.ndarray) or not hasattr(dataset, "__iter__"):
        raise TypeError(
            f"{where}: expected columns by name, or batches of them, received "
            f"{describe_value(dataset)}. Write {{'age': ages}}."
        )
    for batch in dataset:
        yield batch[0] if isinstance(batch, tuple) and batch else batch


def batches_of(column: np.ndarray) -> list[np.ndarray]:
    """Splits a column into batches.

    Args:
        column: array of shape (n, 1).

    Example:
        >>> [len(batch) for batch in batches_of(np.zeros((40, 1)))]
        [32, 8]
    """
    return [column[begin : begin + _BATCH] for begin in range(0, len(column), _BATCH)]
