"""Registration rows: the names by which `get` finds a public class or function.

A family module ends with one tuple of rows, next to the classes that they register. The `naming`
module of the package collects the tuples of its family modules.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Callable[..., Any], covariant=True)


class Row(NamedTuple, Generic[T]):
    """One class or function, its names, and for a loss its plain function of two arrays."""

    value: T
    names: tuple[str, ...]
    function: Callable[..., Any] | None


def named(value: T, *names: str, function: Callable[..., Any] | None = None) -> Row[T]:
    """The row of a class or function: found by its own name and by `names`.

    Args:
        value: the class or function.
        names: further names, such as Keras's lower-case name and abbreviations.
        function: a function that means `value` where a user passes the function itself; its own
            name is a name of `value` too.
    """
    default_names = (value.__name__,) if function is None else (function.__name__, value.__name__)
    return Row(value, (*default_names, *names), function)


def by_name(*tables: Iterable[Row[Any]]) -> Mapping[str, Any]:
    """The values of all rows by each of their names.

    Raises:
        ValueError: for a name in two rows.
    """
    values: dict[str, Any] = {}
    for row in (row for table in tables for row in table):
        for name in row.names:
            if name in values:
                raise ValueError(f"the name {name!r} is registered twice. Rename one of the two.")
            values[name] = row.value
    return types.MappingProxyType(values)


def by_function(*tables: Iterable[Row[Any]]) -> Mapping[Callable[..., Any], Any]:
    """The values of the rows that have a function, by this function."""
    rows = (row for table in tables for row in table)
    return types.MappingProxyType({r.function: r.value for r in rows if r.function is not None})
