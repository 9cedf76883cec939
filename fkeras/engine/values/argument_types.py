"""Types of arguments that several packages share, for type checkers.

An alias names the values that an argument accepts: numbers and arrays, shapes, axes, dtypes, data of
a training. Annotations are not evaluated at run time. Fields of layers have their own types, in
`fkeras.engine.config.field_types`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Any, Protocol, TypeAlias, TypeVar

import jax
import jax.typing
import numpy as np
from jax.typing import DTypeLike

__all__ = (
    "ArrayLike",
    "Arrays",
    "Axes",
    "Batches",
    "DTypeLike",
    "Data",
    "HasShape",
    "Index",
    "Integer",
    "Nested",
    "Number",
    "Numbers",
    "Shape",
    "SupportsArray",
)

T = TypeVar("T")


class SupportsArray(Protocol):
    """An object with a conversion to a NumPy array, such as a tensor of TensorFlow or PyTorch.

    Example:
        >>> import numpy as np
        >>> class Table:
        ...     def __array__(self, dtype=None, copy=None):
        ...         return np.ones(2)
        >>> table: SupportsArray = Table()
        >>> np.asarray(table)
        array([1., 1.])
    """

    def __array__(self) -> np.ndarray: ...


class HasShape(Protocol):
    """An array, or a description of an array such as a `Spec` or a `jax.ShapeDtypeStruct`.

    Example:
        >>> import jax
        >>> described: HasShape = jax.ShapeDtypeStruct((2, 3), "float32")
        >>> described.shape
        (2, 3)
    """

    @property
    def shape(self) -> tuple[Any, ...]: ...


# A recursive alias would accept any string, whose elements are strings. Five levels are the axes of
# a batch of volumes.
#: a value, or values in nested lists or tuples
Nested: TypeAlias = (
    T
    | Sequence[T]
    | Sequence[Sequence[T]]
    | Sequence[Sequence[Sequence[T]]]
    | Sequence[Sequence[Sequence[Sequence[T]]]]
    | Sequence[Sequence[Sequence[Sequence[Sequence[T]]]]]
)

#: a number: of Python, or an array of one element
Number: TypeAlias = jax.typing.ArrayLike
#: a number or an array: of JAX, NumPy, or a library whose arrays convert to NumPy
ArrayLike: TypeAlias = jax.typing.ArrayLike | SupportsArray
#: a number, an array, or numbers in nested lists
Numbers: TypeAlias = Nested[ArrayLike]

#: type checkers do not accept NumPy's integers as `int`
Integer: TypeAlias = int | np.integer[Any]
#: sizes of axes: one integer for a single axis
Shape: TypeAlias = Integer | Sequence[Integer]
#: one axis, several axes, or None for all axes
Axes: TypeAlias = int | Sequence[int] | None
#: an index of an array: `x[index]`
Index: TypeAlias = int | slice | EllipsisType | ArrayLike | Sequence[Any] | None

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
#: one batch of a source: `x`, `(x, y)`, `(x, y, sample_weight)`, or any tree for an objective
Batch: TypeAlias = _Array | tuple[Any, ...] | list[Any] | Mapping[str, Any]
#: a source of batches: an iterable, a loader, or a function of the step number
Batches: TypeAlias = Iterable[Batch] | Callable[[int], Batch]
#: the data of a training: arrays, or a source of batches
Data: TypeAlias = Arrays | Batches
