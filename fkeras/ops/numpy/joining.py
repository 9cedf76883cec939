"""Arrays joined into one, and one split into several."""

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
    """x1 and then x2 along an axis; both flat where it is None.

    Args:
        x2: an array; of the same shape but for the axis.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.append([1, 2], [3]))
        [1 2 3]
    """
    return jnp.append(to_array(x1), to_array(x2), axis=axis)


@op
def concatenate(xs: Sequence[Any], axis: int = 0) -> Any:
    """The arrays one after the other along an axis.

    Args:
        xs: the arrays, of the same shape but for the axis.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.concatenate([[1, 2], [3]]))
        [1 2 3]
    """
    return jnp.concatenate([jnp.asarray(x) for x in xs], axis=axis)


@op
def stack(x: Sequence[Any], axis: int = 0) -> Any:
    """The arrays along a new axis.

    Args:
        x: the arrays, of one shape.
        axis: where the new axis stands in the result.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.stack([[1, 2], [3, 4]], axis=1).tolist()
        [[1, 3], [2, 4]]
    """
    return jnp.stack([jnp.asarray(part) for part in x], axis=axis)


@op
def hstack(xs: Sequence[Any]) -> Any:
    """The arrays one after the other along axis 1, vectors along axis 0.

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
    """The arrays one below the other along axis 0, vectors as rows.

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
    """The arrays one behind the other along axis 2.

    Args:
        xs: the arrays; matrices get a new last axis.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.dstack([[1, 2], [3, 4]]).tolist()
        [[[1, 3], [2, 4]]]
    """
    return jnp.dstack([jnp.asarray(x) for x in xs])


def _sections(value: Any) -> Any:
    if isinstance(value, int):
        return few(value)
    return tuple(value) if isinstance(value, list) else value


@op
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """A list of equal parts of x along an axis, or of the parts between indices.

    Args:
        indices_or_sections: how many parts, or the indices at which new parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.split([1, 2, 3, 4], [1, 3])]
        [[1], [2, 3], [4]]
    """
    return list(jnp.split(to_array(x), _sections(indices_or_sections), axis=axis))


@op
def array_split(x: Any, indices_or_sections: int, axis: int = 0) -> Any:
    """A list of parts of x along an axis whose sizes differ by one at most.

    Args:
        indices_or_sections: how many parts.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.array_split([1, 2, 3], 2)]
        [[1, 2], [3]]
    """
    return list(jnp.array_split(to_array(x), _sections(indices_or_sections), axis=axis))


@op
def hsplit(x: Any, indices_or_sections: Any) -> Any:
    """A list of parts of x along axis 1, of a vector along axis 0; see `split`.

    Args:
        indices_or_sections: how many parts, or the indices at which new parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.hsplit([[1, 2], [3, 4]], 2)]
        [[[1], [3]], [[2], [4]]]
    """
    return list(jnp.hsplit(to_array(x), _sections(indices_or_sections)))


@op
def vsplit(x: Any, indices_or_sections: Any) -> Any:
    """A list of parts of x along axis 0; see `split`.

    Args:
        indices_or_sections: how many parts, or the indices at which new parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.vsplit([[1, 2], [3, 4]], 2)]
        [[[1, 2]], [[3, 4]]]
    """
    return list(jnp.vsplit(to_array(x), _sections(indices_or_sections)))


@op
def dsplit(x: Any, indices_or_sections: Any) -> Any:
    """A list of parts of x along axis 2; see `split`.

    Args:
        indices_or_sections: how many parts, or the indices at which new parts start.

    Example:
        >>> import fkeras as fk
        >>> [part.tolist() for part in fk.ops.dsplit([[[1, 2], [3, 4]]], 2)]
        [[[[1], [3]]], [[[2], [4]]]]
    """
    return list(jnp.dsplit(to_array(x), _sections(indices_or_sections)))
