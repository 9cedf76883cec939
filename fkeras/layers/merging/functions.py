"""The merge layers as functions: each function calls a new layer on a list of tensors.

Keyword arguments are arguments of the layer, whose class documents them.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, cast, overload

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.merging.concatenate import Concatenate
from fkeras.layers.merging.dot import Dot
from fkeras.layers.merging.elementwise import Add, Average, Maximum, Minimum, Multiply, Subtract

Options = ParamSpec("Options")


class MergeFunction(Protocol[Options]):
    """Function that returns a symbolic tensor for symbolic tensors, and an array for arrays."""

    @overload
    def __call__(
        self, inputs: Sequence[fk.Tensor], *args: Options.args, **kwargs: Options.kwargs
    ) -> fk.Tensor: ...

    @overload
    def __call__(
        self, inputs: Sequence[Any], *args: Options.args, **kwargs: Options.kwargs
    ) -> jax.Array: ...


def typed(function: Callable[typing.Concatenate[Any, Options], Any]) -> MergeFunction[Options]:
    """Returns the function unchanged, with the static type of a `MergeFunction`."""
    # a decorator instead of overloads on each function: eight functions share two signatures
    return cast("MergeFunction[Options]", function)


@typed
def add(inputs: Sequence[Any], **options: fk.Option) -> Any:
    """Computes the sum of tensors, element by element, with a new `Add(**options)`.

    Args:
        inputs: list of tensors (b, ...), arrays or symbolic tensors; see `Merge`.
        options: `masks`, `name` and `dtype` of the layer.

    Shapes:
        list of (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.add([jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 5.0]])])
        Array([[4., 7.]], dtype=float32)
    """
    return Add(**options)(inputs)


@typed
def subtract(inputs: Sequence[Any], **options: fk.Option) -> Any:
    """Computes the first tensor minus the second with a new `Subtract(**options)`.

    Args:
        inputs: list of two tensors (b, ...), arrays or symbolic tensors; see `Merge`.
        Other arguments: those of `add`.

    Shapes:
        list of (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.subtract([jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 5.0]])])
        Array([[-2., -3.]], dtype=float32)
    """
    return Subtract(**options)(inputs)


@typed
def multiply(inputs: Sequence[Any], **options: fk.Option) -> Any:
    """Computes the product of tensors, element by element, with a new `Multiply(**options)`.

    Args:
        Arguments: those of `add`.

    Shapes:
        list of (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.multiply([jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 5.0]])])
        Array([[ 3., 10.]], dtype=float32)
    """
    return Multiply(**options)(inputs)


@typed
def average(inputs: Sequence[Any], **options: fk.Option) -> Any:
    """Computes the mean of tensors, element by element, with a new `Average(**options)`.

    Args:
        Arguments: those of `add`.

    Shapes:
        list of (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.average([jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 5.0]])])
        Array([[2. , 3.5]], dtype=float32)
    """
    return Average(**options)(inputs)


@typed
def maximum(inputs: Sequence[Any], **options: fk.Option) -> Any:
    """Computes the maximum of tensors, element by element, with a new `Maximum(**options)`.

    Args:
        Arguments: those of `add`.

    Shapes:
        list of (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.maximum([jnp.array([[1.0, 7.0]]), jnp.array([[3.0, 5.0]])])
        Array([[3., 7.]], dtype=float32)
    """
    return Maximum(**options)(inputs)


@typed
def minimum(inputs: Sequence[Any], **options: fk.Option) -> Any:
    """Computes the minimum of tensors, element by element, with a new `Minimum(**options)`.

    Args:
        Arguments: those of `add`.

    Shapes:
        list of (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.minimum([jnp.array([[1.0, 7.0]]), jnp.array([[3.0, 5.0]])])
        Array([[1., 5.]], dtype=float32)
    """
    return Minimum(**options)(inputs)


@typed
def concatenate(inputs: Sequence[Any], axis: int = -1, **options: fk.Option) -> Any:
    """Concatenates tensors along `axis` with a new `Concatenate(axis, **options)`.

    Args:
        inputs: list of tensors with equal sizes on all other axes, arrays or symbolic tensors.
        axis: axis of the concatenation.
        Other arguments: those of `add`.

    Shapes:
        list of (b, ..., c_i) -> (b, ..., sum of c_i).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.concatenate([jnp.array([[1.0, 2.0]]), jnp.array([[3.0]])])
        Array([[1., 2., 3.]], dtype=float32)
    """
    return Concatenate(axis, **options)(inputs)


@typed
def dot(inputs: Sequence[Any], axes: int | tuple[int, int] = -1, **options: fk.Option) -> Any:
    """Computes the dot product of two tensors with a new `Dot(axes, **options)`.

    Args:
        inputs: list of two tensors, arrays or symbolic tensors.
        axes: axis to sum over, or a pair with the axis of each tensor; not 0.
        options: `normalize`, `name` and `dtype` of the layer.

    Shapes:
        (b, ...) and (b, ...) -> (b, rest of the first, rest of the second), (b, 1) for vectors.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.dot([jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 5.0]])])
        Array([[13.]], dtype=float32)
    """
    return Dot(axes, **options)(inputs)
