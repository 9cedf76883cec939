"""Problems of columns of tables, such as pandas' DataFrames and Series, found without an import."""

from __future__ import annotations

from typing import Any

# dtype names that convert to numbers; nullable dtypes begin with a capital letter
_NUMBERS = ("int", "uint", "float", "bool", "Int", "UInt", "Float", "double")


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
    if hasattr(table, "columns") and hasattr(table, "dtypes"):
        pairs = [(name, str(kind)) for name, kind in zip(table.columns, table.dtypes, strict=False)]
    elif hasattr(table, "dtype") and hasattr(table, "name"):
        pairs = [(table.name, str(table.dtype))]
    else:
        return None
    name, kind = next((p for p in pairs if not p[1].startswith(_NUMBERS)), (None, None))
    if kind is None:
        return None
    column = f"x[{name!r}]" if hasattr(table, "columns") else "x"
    remedy = (
        f"Encode words with `ids = layers.StringLookup().adapt({column})({column})`, or the whole table "
        "with `fk.utils.FeatureSpace`."
    )
    if kind.startswith("category"):
        remedy = (
            f"Encode it: `ids = {column}.cat.codes`, or the table with `fk.utils.FeatureSpace`."
        )
    elif "date" in kind or "time" in kind:
        remedy = f"Convert it to days: `days = ({column} - {column}.min()).dt.days`."
    where = "the column" if name is None else f"column {name!r}"
    return f"{where} of dtype {kind}. {remedy}"
