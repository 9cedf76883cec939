"""Problems of columns of tables, such as pandas' DataFrames and Series, found without an import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

# dtype names that convert to numbers; nullable dtypes begin with a capital letter
_NUMBERS = ("int", "uint", "float", "bool", "Int", "UInt", "Float", "double")
_NULLABLE = ("Int", "UInt", "Float", "Bool", "boolean", "category")


def column_problem(table: Any) -> str | None:
    """Returns the problem of the first column that holds no numbers, and the line to write.

    Args:
        table: an object with `columns` and `dtypes`, or a column with `name` and `dtype`.

    Returns:
        The text, or None for other objects.

    Example:
        >>> column_problem([1.0]) is None
        True
    """
    for label, column, values, kind in _columns(table):
        if kind.startswith(_NUMBERS):
            continue
        remedy = (
            f"Encode words with `ids = layers.StringLookup().adapt({column})({column})`, or the "
            "whole table with `fk.utils.FeatureSpace`."
        )
        if kind.startswith("category"):
            remedy = (
                f"Encode it: `ids = {column}.cat.codes`, or the table with `fk.utils.FeatureSpace`."
            )
        elif "date" in kind or "time" in kind:
            remedy = f"Convert it to days: `days = ({column} - {column}.min()).dt.days`."
        elif kind == "object" and not any(isinstance(value, str) for value in values):
            remedy = "Make the column numbers: `column.fillna(0).astype('float32')`."
            return f"{label}{_missing(values)}. {remedy}"
        return f"{label}. {remedy}"
    return None


def missing_problem(table: Any) -> str | None:
    """Returns the problem of the first nullable column with missing values, and the line to write.

    Such columns are integers, booleans, floats or categories of pandas, and columns of polars. NumPy
    would convert their missing values to NaN. A column of NumPy's floats holds NaN already, and has
    no problem here.

    Args:
        table: the same as for `column_problem`; also an array of pandas.

    Returns:
        The text, or None.
    """
    for label, _, values, kind in _columns(table):
        is_nullable = kind.startswith(_NULLABLE) or (
            kind.startswith(_NUMBERS) and kind.endswith("[pyarrow]")
        )
        missing = _missing(values) if is_nullable else ""
        if missing:
            fill = "fillna" if hasattr(values, "fillna") else "fill_null"  # polars
            value = "False" if kind.lower().startswith("bool") else "0"
            remedy = f"Fill them, `column.{fill}({value})`, or drop these rows."
            if kind == "category":
                remedy = (
                    "`ids = column.cat.codes + 1` numbers the categories from 1, with 0 for them."
                )
            return f"{label}{missing}. {remedy}"
    return None


def _columns(table: Any) -> Iterator[tuple[str, str, Any, str]]:
    """Yields of each column the name in messages and in code, its values, and its dtype."""
    if hasattr(table, "columns") and hasattr(table, "dtypes"):
        for name, kind in zip(table.columns, table.dtypes, strict=False):
            yield f"column {name!r} of dtype {kind}", f"x[{name!r}]", table[name], str(kind)
    elif hasattr(table, "dtype") and not isinstance(table, np.ndarray | np.generic):
        name = getattr(table, "name", None)
        label = "the column" if name is None else f"column {name!r}"
        yield f"{label} of dtype {table.dtype}", "x", table, str(table.dtype)


def _missing(values: Any) -> str:
    """Returns the number of missing values of a column as text; the empty text if none is missing."""
    find = getattr(values, "isna", None) or getattr(values, "is_null", None)
    if find is None:
        return ""
    mask = np.atleast_1d(np.asarray(find()).reshape(len(values), -1).any(axis=1))
    count = int(mask.sum())
    return f" with {count} missing of {len(mask)} values, the first in row {mask.argmax()}" * bool(
        count
    )
