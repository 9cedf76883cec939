"""Concatenating, stacking and splitting arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import few, op, to_array
from fkeras.engine.values.argument_types import Shape

__all__ = (
    "append",
    "array_split",
    "concatenate",
    "dsplit",
    "dstack",
    "hsplit",
    "hstack",
    "split",
    "stack",
    "vsplit",
    "vstack",
)

#: arrays to join; an array counts as the list of its rows
Joined: TypeAlias = Sequence[TensorLike] | jax.Array | np.ndarray


@op
def append(x1: TensorLike, x2: TensorLike, axis: int | None = None) -> jax.Array:
    """Appends x2 to x1 along an axis; None flattens both arrays.

    Args:
        x2: an array with the shape of x1, except along the axis.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.append([1, 2], [3]))
        [1 2 3]
    """
    return jnp.append(to_array(x1), to_array(x2), axis=axis)


@op
def concatenate(xs: Joined, axis: int = 0) -> jax.Array:
    """Concatenates arrays along an axis.

    Args:
        xs: the arrays, of one shape except along the axis.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.concatenate([[1, 2], [3]]))
        [1 2 3]
    """
    # `jnp.concatenate` rejects lists of lists, which Keras accepts
    return jnp.concatenate([jnp.asarray(x) for x in xs], axis=axis)


@op
def stack(x: Joined, axis: int = 0) -> jax.Array:
    """Stacks arrays along a new axis.

    Args:
        x: the arrays, of one shape.
        axis: position of the new axis in the result.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.stack([[1, 2], [3, 4]], axis=1).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.stack([jnp.asarray(part) for part in x], axis=axis)


@op
def hstack(xs: Joined) -> jax.Array:
    """Concatenates arrays along axis 1, and vectors along axis 0.

    Args:
        xs: the arrays.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.hstack([[1, 2], [3]]))
        [1 2 3]
    """
    return jnp.hstack([jnp.asarray(x) for x in xs])


@op
def vstack(xs: Joined) -> jax.Array:
    """Concatenates arrays along axis 0; vectors become rows.

    Args:
        xs: the arrays.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.vstack([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
    """
    return jnp.vstack([jnp.asarray(x) for x in xs])


@op
def dstack(xs: Joined) -> jax.Array:
    """Concatenates arrays along axis 2.

    Args:
        xs: the arrays; vectors and matrices gain a new last axis.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.dstack([[1, 2], [3, 4]]).tolist()
        [[[1, 3], [2, 4]]]
    """
    return jnp.dstack([jnp.asarray(x) for x in xs])


def _sections(value: Shape) -> Any:
    if isinstance(value, int):
        # each part is one operation of the compiled program, so limit their number
        return few(value)
    # a NumPy array has values while a program is traced
    return tuple(value) if isinstance(value, list) else np.asarray(value)


@op
def split(x: TensorLike, indices_or_sections: Shape, axis: int = 0) -> list[jax.Array]:
    """Splits x along an axis into equal parts, or at indices; returns a list.

    Args:
        indices_or_sections: number of equal parts, or the indices at which parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.split([1, 2, 3, 4], [1, 3])]
        [[1], [2, 3], [4]]
    """
    # a list, as in Keras
    return list(jnp.split(to_array(x), _sections(indices_or_sections), axis=axis))


@op
def array_split(x: TensorLike, indices_or_sections: int, axis: int = 0) -> list[jax.Array]:
    """Splits x along an axis into parts whose sizes differ by at most 1; returns a list.

    Args:
        indices_or_sections: number of parts.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.array_split([1, 2, 3], 2)]
        [[1, 2], [3]]
    """
    return list(jnp.array_split(to_array(x), _sections(indices_or_sections), axis=axis))


@op
def hsplit(x: TensorLike, indices_or_sections: Shape) -> list[jax.Array]:
    """Splits x along axis 1, or a vector along axis 0; see `split`.

    Args:
        indices_or_sections: number of equal parts, or the indices at which parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.hsplit([[1, 2], [3, 4]], 2)]
        [[[1], [3]], [[2], [4]]]
    """
    return list(jnp.hsplit(to_array(x), _sections(indices_or_sections)))


@op
def vsplit(x: TensorLike, indices_or_sections: Shape) -> list[jax.Array]:
    """Splits x along axis 0; see `split`.

    Args:
        indices_or_sections: number of equal parts, or the indices at which parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.vsplit([[1, 2], [3, 4]], 2)]
        [[[1, 2]], [[3, 4]]]
    """
    return list(jnp.vsplit(to_array(x), _sections(indices_or_sections)))


@op
def dsplit(x: TensorLike, indices_or_sections: Shape) -> list[jax.Array]:
    """Splits x along axis 2; see `split`.

    Args:
        indices_or_sections: number of equal parts, or the indices at which parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.dsplit([[[1, 2], [3, 4]]], 2)]
        [[[[1], [3]]], [[[2], [4]]]]
    """
    return list(jnp.dsplit(to_array(x), _sections(indices_or_sections)))
