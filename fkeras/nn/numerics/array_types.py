"""Types of arguments that are numbers or arrays, for type checkers.

`fkeras.engine.values.argument_types` adds the types of arguments that are no arrays. Annotations are
not evaluated at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

import jax.typing
import numpy as np

__all__ = ("ArrayLike", "Nested", "Numbers", "NumbersPair", "SupportsArray")

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

#: a number or an array: of JAX, NumPy, or a library whose arrays convert to NumPy
ArrayLike: TypeAlias = jax.typing.ArrayLike | SupportsArray
#: a number, an array, or numbers in nested lists
Numbers: TypeAlias = Nested[ArrayLike]
#: real and imaginary parts
NumbersPair: TypeAlias = tuple[Numbers, Numbers] | list[Numbers]
