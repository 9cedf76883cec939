"""The merge layers as functions: each makes a new layer and calls it on a list of tensors.

Keyword arguments go to the layer, which documents them.
"""

from __future__ import annotations

from typing import Any

from fkeras.layers.concatenate import Concatenate
from fkeras.layers.dot import Dot
from fkeras.layers.merging import Add, Average, Maximum, Minimum, Multiply, Subtract


def add(inputs: Any, **options: Any) -> Any:
    """Computes the sum of tensors, element by element, with a new `Add(**options)`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.add([fk.Input((4,)), fk.Input((4,))]).shape
        (None, 4)
    """
    return Add(**options)(inputs)


def subtract(inputs: Any, **options: Any) -> Any:
    """Computes the first minus the second of tensors, element by element, with a new `Subtract(**options)`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.subtract([fk.Input((4,)), fk.Input((4,))]).shape
        (None, 4)
    """
    return Subtract(**options)(inputs)


def multiply(inputs: Any, **options: Any) -> Any:
    """Computes the product of tensors, element by element, with a new `Multiply(**options)`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.multiply([fk.Input((4,)), fk.Input((4,))]).shape
        (None, 4)
    """
    return Multiply(**options)(inputs)


def average(inputs: Any, **options: Any) -> Any:
    """Computes the mean of tensors, element by element, with a new `Average(**options)`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.average([fk.Input((4,)), fk.Input((4,))]).shape
        (None, 4)
    """
    return Average(**options)(inputs)


def maximum(inputs: Any, **options: Any) -> Any:
    """Computes the largest of tensors, element by element, with a new `Maximum(**options)`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.maximum([fk.Input((4,)), fk.Input((4,))]).shape
        (None, 4)
    """
    return Maximum(**options)(inputs)


def minimum(inputs: Any, **options: Any) -> Any:
    """Computes the smallest of tensors, element by element, with a new `Minimum(**options)`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.minimum([fk.Input((4,)), fk.Input((4,))]).shape
        (None, 4)
    """
    return Minimum(**options)(inputs)


def concatenate(inputs: Any, axis: int = -1, **options: Any) -> Any:
    """Joins tensors along `axis`, with a new `Concatenate(axis, **options)`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.concatenate([fk.Input((4,)), fk.Input((4,))]).shape
        (None, 8)
    """
    return Concatenate(axis, **options)(inputs)


def dot(inputs: Any, axes: int | tuple[int, int] = -1, **options: Any) -> Any:
    """Computes the dot product of two tensors, with a new `Dot(axes, **options)`.

    Example:
        >>> import fkeras as fk
        >>> fk.layers.dot([fk.Input((4,)), fk.Input((4,))]).shape
        (None, 1)
    """
    return Dot(axes, **options)(inputs)
