"""Types of arguments that several packages share, for type checkers.

An alias names the values that an argument accepts: numbers and arrays, shapes, axes, dtypes, data of
a training. Annotations are not evaluated at run time. Fields of layers have their own types, in
`fkeras.engine.config.field_types`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Any, Protocol, TypeAlias

import jax
import jax.typing
import numpy as np
from jax.typing import DTypeLike as DTypeLike

from fkeras.nn.numerics.array_types import ArrayLike as ArrayLike
from fkeras.nn.numerics.array_types import Nested as Nested
from fkeras.nn.numerics.array_types import Numbers as Numbers
from fkeras.nn.numerics.array_types import SupportsArray as SupportsArray


class HasShape(Protocol):
    """An array, or a description of an array such as a `Spec` or a `jax.ShapeDtypeStruct`."""

    @property
    def shape(self) -> tuple[Any, ...]: ...


#: a number: of Python, or an array of one element
Number: TypeAlias = jax.typing.ArrayLike

#: type checkers do not accept NumPy's integers as `int`
Integer: TypeAlias = int | np.integer[Any]
#: sizes of axes: one integer for a single axis
Shape: TypeAlias = Integer | Sequence[Integer]
#: one axis, several axes, or None for all axes
Axes: TypeAlias = int | Sequence[int] | None
#: an index of an array: `x[index]`
Index: TypeAlias = int | slice | EllipsisType | ArrayLike | Sequence[Any] | None

#: a path of a file or a folder
FilePath: TypeAlias = str | os.PathLike[str]

_Array: TypeAlias = jax.Array | np.ndarray | SupportsArray
#: arrays of a model with several inputs or outputs: nested lists and dictionaries of arrays
Arrays: TypeAlias = (
    _Array
    | Sequence[_Array]
    | Sequence[Sequence[_Array]]
    | Mapping[str, _Array]
    | Mapping[str, Sequence[_Array]]
    | Mapping[str, Mapping[str, _Array]]
    | Sequence[Mapping[str, _Array]]
)
# nested lists of strings are sequences of strings, too
_Column: TypeAlias = _Array | Sequence[str] | Sequence[Sequence[str]]
#: inputs of a model: arrays, and strings where the model takes strings
Inputs: TypeAlias = Arrays | _Column | Sequence[_Column] | Mapping[str, _Column]
#: one batch of a source: `x`, `(x, y)`, `(x, y, sample_weight)`, or any tree for an objective
Batch: TypeAlias = _Array | tuple[Any, ...] | list[Any] | Mapping[str, Any]


class IndexedBatches(Protocol):
    """A source with a length and batches by number, which no `__iter__` makes iterable for checkers."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Batch: ...


#: a source of batches: an iterable, a loader, or a function of the step number
Batches: TypeAlias = Iterable[Batch] | IndexedBatches | Callable[[int], Batch]
#: the data of a training: inputs, or a source of batches
Data: TypeAlias = Inputs | Batches
