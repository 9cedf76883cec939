"""Reading of table columns from dictionaries, pandas DataFrames, and iterables of batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fkeras.engine.messages.errors import describe_value

# Keras adapts layers in batches of 32. The bins of Discretization depend on the batch size, so equal
# bins need equal batches.
_BATCH_SIZE = 32


def as_columns(data: Any, where: str) -> dict[str, Any]:
    """Returns the columns of a table by name.

    Args:
        data: a dictionary, or an object with `keys` such as a pandas DataFrame.
    """
    if isinstance(data, Mapping) or (hasattr(data, "keys") and hasattr(data, "__getitem__")):
        return {name: data[name] for name in data.keys()}  # noqa: SIM118
    raise TypeError(
        f"{where}: expected columns by name, such as a dictionary of arrays, received "
        f"{describe_value(data)}. Write {{'age': ages}}."
    )


def read_columns(dataset: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Reads whole columns, for layers that learn from their values.

    Args:
        dataset: a table, or an iterable of tables or of `(table, targets)`.

    Returns:
        Arrays of shape (n, 1) by name.
    """
    where = "FeatureSpace.adapt"
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for table in _tables(dataset, where):
        columns = as_columns(table, where)
        for name in names:
            if name not in columns:
                raise ValueError(
                    f"{where}: expected a column {name!r}, received the columns "
                    f"{', '.join(map(str, columns)) or 'of an empty table'}. Add the column, or "
                    "remove the feature."
                )
            array = np.asarray(columns[name])
            if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1):
                raise ValueError(
                    f"{where}: column {name!r}: expected the shape (b,) or (b, 1), received "
                    f"{array.shape}. Pass one value for each row; split a wider column into several "
                    "features."
                )
            parts[name].append(array.reshape(-1, 1))
    empty_names = [name for name in names if sum(map(len, parts[name])) == 0]
    if empty_names:
        raise ValueError(
            f"{where}: expected rows, received none for {empty_names[0]!r}. Create a new iterator: "
            "an iterator that was read before is empty."
        )
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _tables(dataset: Any, where: str) -> Iterable[Any]:
    if isinstance(dataset, Mapping) or hasattr(dataset, "keys"):
        yield dataset
        return
    if isinstance(dataset, str | bytes | np.ndarray) or not hasattr(dataset, "__iter__"):
        raise TypeError(
            f"{where}: expected columns by name, or an iterable of tables, received "
            f"{describe_value(dataset)}. Write {{'age': ages}}."
        )
    for batch in dataset:
        yield batch[0] if isinstance(batch, tuple) and batch else batch


def split_batches(column: np.ndarray) -> list[np.ndarray]:
    """Splits a column into batches of the size with which Keras adapts layers."""
    return [column[begin : begin + _BATCH_SIZE] for begin in range(0, len(column), _BATCH_SIZE)]
