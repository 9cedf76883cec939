"""Columns of tables as NumPy arrays: tables and record batches of Arrow, frames of pandas and polars.

No package is imported: a table is recognized by its attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def is_table(value: object) -> bool:
    """Returns whether a value is a table with named columns: of Arrow, pandas or polars."""
    return _is_arrow(value) or (hasattr(value, "columns") and hasattr(value, "dtypes"))


def columns_of(table: Any) -> dict[str, np.ndarray]:
    """Returns the columns of a table by name.

    A column of lists of one length, or of Arrow's tensors, is an array with more axes.

    Raises:
        ValueError: for missing values, and for lists of different lengths.

    Example:
        >>> import pyarrow as pa
        >>> columns_of(pa.table({"a": [1, 2], "b": [[1.0, 2.0], [3.0, 4.0]]}))["b"].shape
        (2, 2)
    """
    if _is_arrow(table):
        return {name: _values(table.column(name), name) for name in table.schema.names}
    return {str(name): np.asarray(table[name]) for name in table.columns}


def _is_arrow(value: object) -> bool:
    return all(hasattr(value, name) for name in ("schema", "num_rows", "column"))


def _values(column: Any, name: str) -> np.ndarray:
    """Returns a column of Arrow as an array."""
    if column.null_count:
        raise ValueError(
            f"column {name!r}: expected values, received {column.null_count} missing of {len(column)}. "
            "Fill them, column.fill_null(0), or drop these rows."
        )
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    if hasattr(column, "to_numpy_ndarray"):  # an array of tensors
        return column.to_numpy_ndarray()
    if not hasattr(column, "flatten") or "list" not in str(column.type).partition("<")[0]:
        return column.to_numpy(zero_copy_only=False)
    lengths = set(column.value_lengths().to_pylist()) if len(column) else {0}
    if len(lengths) > 1:
        raise ValueError(
            f"column {name!r}: expected lists of one length, received lengths from {min(lengths)} to "
            f"{max(lengths)}. Pad them, with fk.utils.pad_sequences in a function of map."
        )
    values = _values(column.flatten(), name)
    return values.reshape(len(column), lengths.pop(), *values.shape[1:])
