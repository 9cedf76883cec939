"""Types of declared fields, for type checkers: the constructor's parameter and the attribute.

A field with a converter accepts more types than the instance holds: `kernel_size=3` is stored as
`(3, 3)`. Under `dataclass_transform` a type checker takes the constructor's parameter from the
`__set__` of a field's type and the type of the attribute from its `__get__`. `Converted` has these
two methods for type checkers only. At run time fields are plain attributes, and annotations are
never evaluated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
from jax.typing import ArrayLike, DTypeLike

if TYPE_CHECKING:
    from fkeras.engine.config.policy import DTypePolicy

Accepted = TypeVar("Accepted", contravariant=True)
Stored = TypeVar("Stored", covariant=True)


class Converted(Generic[Accepted, Stored]):
    """Field type with a constructor argument of type `Accepted` and a value of type `Stored`.

    Example:
        >>> import fkeras as fk
        >>> from fkeras.engine.config.converters import sizes
        >>> class Tile(fk.Layer):
        ...     repeats: Converted[int | tuple[int, int], tuple[int, int]] = fk.option(
        ...         default=1, convert=sizes(2)
        ...     )
        >>> Tile(3).repeats
        (3, 3)
    """

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> Stored: ...

        def __set__(self, instance: object, value: Accepted) -> None: ...


# type checkers do not accept NumPy's integers as `int`; all rules accept them
AnyInteger: TypeAlias = int | np.integer[Any]
AnyReal: TypeAlias = float | np.floating[Any] | np.integer[Any]

Integer: TypeAlias = Converted[AnyInteger, int]
OptionalInteger: TypeAlias = Converted[AnyInteger | None, int | None]
Real: TypeAlias = Converted[AnyReal, float]
OptionalReal: TypeAlias = Converted[AnyReal | None, float | None]

#: sizes of axes: one integer for all axes, or one integer for each axis
Sizes: TypeAlias = Converted[AnyInteger | Sequence[AnyInteger], tuple[int, ...]]
OptionalSizes: TypeAlias = Converted[
    AnyInteger | Sequence[AnyInteger] | None, tuple[int, ...] | None
]
Pair: TypeAlias = Converted[AnyInteger | Sequence[AnyInteger], tuple[int, int]]
Triple: TypeAlias = Converted[AnyInteger | Sequence[AnyInteger], tuple[int, int, int]]
OptionalPair: TypeAlias = Converted[
    AnyInteger | Sequence[AnyInteger] | None, tuple[int, int] | None
]
#: sizes before and after each axis: one integer, one for each axis, or a pair for each axis
Borders: TypeAlias = Converted[
    AnyInteger | Sequence[AnyInteger] | Sequence[Sequence[AnyInteger]],
    tuple[tuple[int, int], ...],
]
#: a shape, with None for unknown sizes
Shape: TypeAlias = Converted[Sequence[AnyInteger | None], tuple[int | None, ...]]
OptionalShape: TypeAlias = Converted[
    Sequence[AnyInteger | None] | None, tuple[int | None, ...] | None
]
#: axes of an array: one or several
Axes: TypeAlias = Converted[AnyInteger | Sequence[AnyInteger], int | tuple[int, ...]]
OptionalAxes: TypeAlias = Converted[
    AnyInteger | Sequence[AnyInteger] | None, int | tuple[int, ...] | None
]
#: lists of integers and of real numbers
Integers: TypeAlias = Converted[Sequence[AnyInteger] | np.ndarray, tuple[int, ...]]
OptionalIntegers: TypeAlias = Converted[
    Sequence[AnyInteger] | np.ndarray | None, tuple[int, ...] | None
]
Reals: TypeAlias = Converted[Sequence[AnyReal] | np.ndarray, tuple[float, ...]]
OptionalReals: TypeAlias = Converted[
    AnyReal | Sequence[AnyReal] | np.ndarray | None, tuple[float, ...] | None
]
RealOrReals: TypeAlias = Converted[AnyReal | Sequence[AnyReal], float | tuple[float, ...]]
#: one string, or several strings
Words: TypeAlias = Converted[str | Sequence[str] | None, tuple[str, ...]]
#: the ends of a range; each layer documents the range that a single number means
Range: TypeAlias = Converted[AnyReal | Sequence[AnyReal], tuple[float, float]]
OptionalRange: TypeAlias = Converted[AnyReal | Sequence[AnyReal] | None, tuple[float, float] | None]
#: a number, or numbers in nested lists or an array
Numbers: TypeAlias = Converted[ArrayLike | Sequence[Any], Any]
OptionalNumbers: TypeAlias = Converted[ArrayLike | Sequence[Any] | None, Any]

#: the tokens of a lookup layer, or the path of a vocabulary file
Vocabulary: TypeAlias = Converted[
    Sequence[str] | np.ndarray | os.PathLike[str] | None, tuple[str, ...] | None
]
IntegerVocabulary: TypeAlias = Converted[
    Sequence[AnyInteger] | np.ndarray | str | os.PathLike[str] | None, tuple[int, ...] | None
]

#: the name of a window function, or its values
Window: TypeAlias = Converted[str | ArrayLike | Sequence[AnyReal] | None, Any]
DataFormat: TypeAlias = Converted[str | None, str]

DTypeName: TypeAlias = Converted[DTypeLike, str]
OptionalDTypeName: TypeAlias = Converted[DTypeLike | None, str | None]
Policy: TypeAlias = "Converted[DTypeLike | DTypePolicy | Mapping[str, Any] | None, DTypePolicy]"
Path: TypeAlias = Converted[str | os.PathLike[str], str]

#: a name, a configuration, a function or a callable object
Named: TypeAlias = str | Mapping[str, Any] | Callable[..., Any]
Activation: TypeAlias = Converted[Named | None, Callable[..., Any]]
Initializer: TypeAlias = Converted[Named | None, Callable[..., Any]]
Regularizer: TypeAlias = Converted[Named | None, Callable[..., Any] | None]
Constraint: TypeAlias = Converted[Named | None, Callable[..., Any] | None]
#: a number, or a schedule: a function from the step to the rate
LearningRate: TypeAlias = Converted[
    AnyReal | Callable[..., Any] | Mapping[str, Any], float | Callable[..., Any]
]
