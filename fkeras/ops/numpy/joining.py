"""Concatenating, stacking and splitting arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from fkeras.engine.symbolic.define import few, op, to_array

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


@op
def append(x1: Any, x2: Any, axis: int | None = None) -> Any:
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
def concatenate(xs: Sequence[Any], axis: int = 0) -> Any:
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
def stack(x: Sequence[Any], axis: int = 0) -> Any:
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
def hstack(xs: Sequence[Any]) -> Any:
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
def vstack(xs: Sequence[Any]) -> Any:
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
def dstack(xs: Sequence[Any]) -> Any:
    """Concatenates arrays along axis 2.

    Args:
        xs: the arrays; vectors and matrices gain a new last axis.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.dstack([[1, 2], [3, 4]]).tolist()
        [[[1, 3], [2, 4]]]
    """
    return jnp.dstack([jnp.asarray(x) for x in xs])


def _sections(value: Any) -> Any:
    if isinstance(value, int):
        # each part is one operation of the compiled program, so limit their number
        return few(value)
    return tuple(value) if isinstance(value, list) else value


@op
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
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
def array_split(x: Any, indices_or_sections: int, axis: int = 0) -> Any:
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
def hsplit(x: Any, indices_or_sections: Any) -> Any:
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
def vsplit(x: Any, indices_or_sections: Any) -> Any:
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
def dsplit(x: Any, indices_or_sections: Any) -> Any:
    """Splits x along axis 2; see `split`.

    Args:
        indices_or_sections: number of equal parts, or the indices at which parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.dsplit([[[1, 2], [3, 4]]], 2)]
        [[[[1], [3]]], [[[2], [4]]]]
    """
    return list(jnp.dsplit(to_array(x), _sections(indices_or_sections)))
