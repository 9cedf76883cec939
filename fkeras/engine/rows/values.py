"""`Value`: what is known of one array in the program of a padded batch."""

from __future__ import annotations

import dataclasses
from typing import Any

from fkeras.engine.values.annotations import Leaf


@dataclasses.dataclass(frozen=True)
class Value:
    """Relation of an array in the program of a padded batch to the same array without padding.

    Attributes:
        kind: "whole" for an array that is equal in both programs; "rows" for an array whose first
            entries along `axis` are the array of the program without padding, and whose other
            entries belong to padded rows; "mixed" for any other array.
        axis: the axis of the rows, for the kind "rows".
        fill: the number that all entries of padded rows hold, for the kind "rows"; the number that
            all entries hold, for the kind "whole"; None if unknown.

    Example:
        >>> rows(0, fill=0).moved(1)
        Value(kind='rows', axis=1, fill=0)
    """

    kind: str
    axis: int = 0
    fill: Any = None

    @property
    def is_rows(self) -> bool:
        """Whether the array has rows."""
        return self.kind == "rows"

    @property
    def is_whole(self) -> bool:
        """Whether the array is equal in both programs."""
        return self.kind == "whole"

    def moved(self, axis: int, fill: Leaf = None) -> Value:
        """Returns the value of an array that has the rows along another axis."""
        return Value("rows", axis, self.fill if fill is None else fill)


WHOLE = Value("whole")
MIXED = Value("mixed")


def rows(axis: int, fill: Leaf = None) -> Value:
    """Returns the value of an array with rows along an axis."""
    return Value("rows", axis, fill)


def joined(a: Value, b: Value) -> Value:
    """Returns what holds for both values, as for the results of two branches.

    Example:
        >>> joined(rows(0, fill=0), rows(0)), joined(rows(0), rows(1)).kind
        (Value(kind='rows', axis=0, fill=None), 'mixed')
    """
    if a == b:
        return a
    if a.kind == b.kind and a.axis == b.axis and a != MIXED:
        return dataclasses.replace(a, fill=None)
    return MIXED
