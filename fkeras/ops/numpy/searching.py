"""Elements that are chosen, found, ordered or counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from fkeras.engine.call.node import is_symbolic
from fkeras.engine.symbolic.define import elementwise, op, to_array, to_floats

__all__ = (
    "argpartition",
    "argsort",
    "bincount",
    "corrcoef",
    "correlate",
    "digitize",
    "get_item",
    "histogram",
    "nonzero",
    "searchsorted",
    "select",
    "sort",
    "take",
    "take_along_axis",
    "unique",
    "unravel_index",
    "where",
)


@elementwise
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """x1 where the condition holds, x2 elsewhere; without them the indices where it holds.

    Args:
        condition: Booleans, or numbers, which hold where they are not zero.
        x1: an array that broadcasts with the condition.
        x2: another.

    Raises:
        ValueError: where one of x1 and x2 is given alone.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.where([True, False], [1, 2], 0))
        [1 0]
    """
    if x1 is None and x2 is None:
        return jnp.where(to_array(condition))
    if x1 is None or x2 is None:
        raise ValueError(
            "where: expected both x1 and x2, or neither, received one of them. Write "
            "fk.ops.where(condition, x1, x2)."
        )
    return jnp.where(to_array(condition), to_array(x1), to_array(x2))


@op
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """The element of the first choice whose condition holds, else the default.

    Args:
        condlist: arrays of Booleans; the first that holds counts.
        choicelist: an array for each condition.
        default: what stands where none holds.

    Raises:
        ValueError: where conditions and choices are not as many, or none.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.arange(4)
        >>> fk.ops.select([x < 1, x > 2], [x - 10, x + 10])
        Array([-10,   0,   0,  13], dtype=int32)
    """
    if not condlist or len(condlist) != len(choicelist):
        raise ValueError(
            f"select: expected as many conditions as choices, received {len(condlist)} and "
            f"{len(choicelist)}. Give one choice for each condition."
        )
    conditions = [to_array(c) for c in condlist]
    return jnp.select(conditions, [to_array(c) for c in choicelist], default=default)


@op
def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """The elements of x at indices of an axis, of the flat array where it is None.

    Args:
        indices: integers of any shape; negative ones count from the end.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.take([10, 20, 30], [2, 0]))
        [30 10]
    """
    return jnp.take(to_array(x), jnp.asarray(indices), axis=axis)


@op
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Any:
    """The elements of x at indices that are given for each place along an axis.

    Args:
        indices: integers, of the rank of x.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.take_along_axis([[1, 9], [3, 2]], [[1], [0]], axis=1).tolist()
        [[9], [3]]
    """
    return jnp.take_along_axis(to_array(x), jnp.asarray(indices), axis=axis)


def get_item(x: Any, key: Any) -> Any:
    """x[key], with everything that NumPy takes between the brackets.

    Args:
        key: what stands between the brackets: a number, a slice, an array, or several.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.get_item(fk.Input((5, 3)), (slice(None), -1)).shape
        (None, 3)
    """
    return x[key] if is_symbolic(x) else jnp.asarray(x)[key]


@op
def nonzero(x: Any) -> Any:
    """The indices of the elements that are not zero, one array an axis; not under jit.

    Example:
        >>> import fkeras as fk
        >>> [a.tolist() for a in fk.ops.nonzero([0, 5, 7])]
        [[1, 2]]
    """
    return jnp.nonzero(to_array(x))


@op
def unravel_index(indices: Any, shape: Sequence[int]) -> Any:
    """Indices of the flat array as indices of each axis of `shape`.

    Args:
        indices: integers of any shape.
        shape: the shape whose flat array they point into.

    Example:
        >>> import fkeras as fk
        >>> [a.tolist() for a in fk.ops.unravel_index([1, 5], (2, 3))]
        [[0, 1], [1, 2]]
    """
    return tuple(jnp.unravel_index(jnp.asarray(indices), tuple(shape)))


@op
def sort(x: Any, axis: int = -1) -> Any:
    """The elements along an axis from the least to the largest.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.sort([3, 1, 2]))
        [1 2 3]
    """
    return jnp.sort(to_array(x), axis=axis)


@op
def argsort(x: Any, axis: int | None = -1) -> Any:
    """The indices that sort x along an axis, the flat array where it is None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.argsort([30, 10, 20]))
        [1 2 0]
    """
    x = jnp.asarray(x)
    return jnp.argsort(x, axis=None if x.ndim == 0 else axis)


@op
def argpartition(x: Any, kth: int, axis: int | None = -1) -> Any:
    """Indices that put the element `kth` in its sorted place, lesser ones before it.

    Args:
        kth: the place in the sorted order, from 0.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.argpartition([3, 1, 2], 1))
        [1 2 0]
    """
    x = to_array(x)
    if axis is None:
        return jnp.argpartition(jnp.reshape(x, (-1,)), kth, axis=0)
    return jnp.argpartition(x, kth, axis=axis)


@op
def searchsorted(sorted_sequence: Any, values: Any, side: str = "left") -> Any:
    """Where each value goes into a sorted vector: before equal elements, or "right" of them.

    Args:
        sorted_sequence: a vector in order.
        values: array of any shape.
        side: "left" or "right".

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.searchsorted([1, 3, 5], [3, 4]))
        [1 2]
    """
    return jnp.searchsorted(to_array(sorted_sequence), to_array(values), side=side)


@op
def unique(
    x: Any,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """The different elements of x, in order; each NaN counts as an element of its own.

    Args:
        sorted: whether they are sorted; they always are.
        return_index: whether to return where each is found first.
        return_inverse: whether to return which of them each element of x is.
        return_counts: whether to return how often each is there.
        axis: the axis whose slices are compared; None for single elements.
        size: how many are returned: under jit it must be known.
        fill_value: what fills up where there are fewer.

    Returns:
        An array, or a tuple of it and what was asked for.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.unique([3, 1, 3]))
        [1 3]
    """
    found = jnp.unique(
        to_array(x),
        return_index=return_index,
        return_inverse=return_inverse,
        return_counts=return_counts,
        axis=axis,
        equal_nan=False,
        size=size,
        fill_value=fill_value,
    )
    return tuple(found) if isinstance(found, tuple) else found


@op
def digitize(x: Any, bins: Any) -> Any:
    """In which interval between the sorted edges `bins` each element lies, 0 below the first.

    Args:
        bins: the edges, a vector in order.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.digitize([0.5, 2.5], [1.0, 2.0, 3.0]))
        [0 2]
    """
    return jnp.digitize(to_array(x), jnp.asarray(bins))


@op
def bincount(x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False) -> Any:
    """How often each integer from 0 stands in x, or the sum of its weights; rows apart.

    Args:
        x: integers that are not negative, (n,) or (b, n).
        weights: what each counts for; 1 where it is None.
        minlength: the least size of the result. Under jit the size must be known, so there it is
            the size, and larger integers are left out.
        sparse: not supported; results are dense.

    Raises:
        ValueError: for sparse=True, and without `minlength` under jit or in a graph.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.bincount([0, 2, 2]))
        [1 0 2]
    """
    if sparse:
        raise ValueError("bincount: expected sparse=False, received True. Results are dense.")
    x = jnp.asarray(x)
    weights = None if weights is None else jnp.asarray(weights)
    length = _bin_count(x, minlength)

    def count(row: Any, weight: Any) -> Any:
        return jnp.bincount(row, weights=weight, length=length)

    if x.ndim < 2:
        return count(x, weights)
    return jax.vmap(count, in_axes=(0, None if weights is None else 0))(x, weights)


def _bin_count(x: Any, minlength: int) -> int:
    if not isinstance(x, Tracer):
        return max(int(x.max()) + 1, minlength) if x.size else minlength
    if minlength < 1:
        raise ValueError(
            "bincount: expected minlength, the number of bins, where the numbers are not known "
            "yet (in a graph or under jit), received 0. Give minlength=largest number + 1."
        )
    return minlength


@op
def histogram(x: Any, bins: int = 10, range: tuple[float, float] | None = None) -> Any:
    """`(counts, edges)`: how many elements lie in each of equal intervals of the range.

    Args:
        x: a vector.
        bins: how many intervals.
        range: where the first starts and the last ends; the least and largest element at None.

    Raises:
        TypeError: where `bins` is not a number.

    Example:
        >>> import fkeras as fk
        >>> [a.tolist() for a in fk.ops.histogram([1, 2, 2, 4], bins=3)]
        [[1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]]
    """
    if not isinstance(bins, int) or bins < 0:
        raise TypeError(
            f"histogram: bins: expected a number of intervals, received {bins!r}. Edges of your "
            "own go to jnp.histogram."
        )
    return tuple(jnp.histogram(to_array(x), bins=bins, range=range))


@op
def correlate(x1: Any, x2: Any, mode: str = "valid") -> Any:
    """The sums of products of x1 with x2 moved along it: "valid", "same" or "full".

    Args:
        x1: a vector.
        x2: a vector, the shorter one.
        mode: "valid" where x2 lies within x1, "same" for the size of x1, "full" for all places.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.correlate([1, 2, 3], [1, 1]))
        [3. 5.]
    """
    return jnp.correlate(to_array(x1), to_array(x2), mode)


@op
def corrcoef(x: Any) -> Any:
    """The matrix of the correlations of the rows of x.

    Args:
        x: a row for each variable, (n, samples).

    Example:
        >>> import fkeras as fk
        >>> fk.ops.corrcoef([[1, 2, 3], [3, 2, 1]]).round(3).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    return jnp.corrcoef(to_floats(x))
