"""Selecting, indexing, sorting, searching and counting elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.core import Tracer

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import elementwise, op, to_array, to_floats
from fkeras.engine.symbolic.operators import KerasTensor, index
from fkeras.engine.values.argument_types import Index, Number
from fkeras.nn.numerics.indices import check_constant_indices

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
def where(
    condition: TensorLike, x1: TensorLike | None = None, x2: TensorLike | None = None
) -> jax.Array | tuple[jax.Array, ...]:
    """Returns x1 where the condition is true, x2 elsewhere; without both, the indices of true.

    Args:
        condition: Booleans, or numbers, for which nonzero is true.
        x1: an array that broadcasts with the condition.
        x2: an array that broadcasts with the condition.

    Raises:
        ValueError: if only one of x1 and x2 is given.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.where([True, False], [1, 2], 0))
        [1 0]
    """
    if x1 is None and x2 is None:
        # the result's size depends on values, so this form does not work under jit
        return jnp.where(to_array(condition))
    if x1 is None or x2 is None:
        raise ValueError(
            "where: expected both x1 and x2, or neither, received one of them. Write "
            "fk.ops.where(condition, x1, x2)."
        )
    return jnp.where(to_array(condition), to_array(x1), to_array(x2))


@op
def select(
    condlist: Sequence[TensorLike], choicelist: Sequence[TensorLike], default: Number = 0
) -> jax.Array:
    """Selects, for each element, from the first choice whose condition is true.

    Args:
        condlist: arrays of Booleans.
        choicelist: one array per condition.
        default: value where no condition is true.

    Raises:
        ValueError: if the numbers of conditions and choices differ, or are 0.

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
    # `jnp.select` rejects nested lists
    conditions = [to_array(c) for c in condlist]
    return jnp.select(conditions, [to_array(c) for c in choicelist], default=default)


@op
def take(x: TensorLike, indices: TensorLike, axis: int | None = None) -> jax.Array:
    """Returns the elements of x at indices along an axis, or of the flattened array for None.

    Args:
        indices: integers of any shape; negative indices count from the end.

    Raises:
        IndexError: for a constant index outside of the axis; computed indices give NaN.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.take([10, 20, 30], [2, 0]))
        [30 10]
    """
    x = jnp.asarray(x)
    check_constant_indices("take", jnp.ravel(x) if axis is None else x, indices, axis or 0)
    return jnp.take(x, jnp.asarray(indices), axis=axis)


@op
def take_along_axis(x: TensorLike, indices: TensorLike, axis: int | None = None) -> jax.Array:
    """Returns the elements of x at indices along an axis, which differ for each position.

    Args:
        indices: integers, with the rank of x.

    Raises:
        IndexError: for a constant index outside of the axis; computed indices give NaN.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.take_along_axis([[1, 9], [3, 2]], [[1], [0]], axis=1).tolist()
        [[9], [3]]
    """
    x = jnp.asarray(x)
    name = "take_along_axis"
    check_constant_indices(name, jnp.ravel(x) if axis is None else x, indices, axis or 0)
    return jnp.take_along_axis(x, jnp.asarray(indices), axis=axis)


def get_item(x: TensorLike, key: Index) -> jax.Array | KerasTensor:
    """Returns x[key] with NumPy's indexing.

    Args:
        key: an integer, a slice, an array, or a tuple of these.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.get_item(fk.Input((5, 3)), (slice(None), -1)).shape
        (None, 3)
    """
    if isinstance(x, KerasTensor):
        return x[key]
    return index(jnp.asarray(x), key if isinstance(key, tuple) else (key,))


@op
def nonzero(x: TensorLike) -> tuple[jax.Array, ...]:
    """Returns the indices of the nonzero elements, one array per axis; not supported under jit.

    Example:
        >>> import fkeras as fk
        >>> [a.tolist() for a in fk.ops.nonzero([0, 5, 7])]
        [[1, 2]]
    """
    return jnp.nonzero(to_array(x))


@op
def unravel_index(indices: TensorLike, shape: Sequence[int]) -> tuple[jax.Array, ...]:
    """Converts indices of a flattened array to one index per axis.

    Args:
        indices: integers of any shape.
        shape: the shape of the array before flattening.

    Example:
        >>> import fkeras as fk
        >>> [a.tolist() for a in fk.ops.unravel_index([1, 5], (2, 3))]
        [[0, 1], [1, 2]]
    """
    flat = jax.ShapeDtypeStruct((math.prod(shape),), "bool")
    check_constant_indices("unravel_index", flat, indices, 0)
    return tuple(jnp.unravel_index(jnp.asarray(indices), tuple(shape)))


@op
def sort(x: TensorLike, axis: int = -1) -> jax.Array:
    """Returns the elements sorted along an axis in ascending order.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.sort([3, 1, 2]))
        [1 2 3]
    """
    return jnp.sort(to_array(x), axis=axis)


@op
def argsort(x: TensorLike, axis: int | None = -1) -> jax.Array:
    """Returns the indices that sort x along an axis, or the flattened array for None.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.argsort([30, 10, 20]))
        [1 2 0]
    """
    x = jnp.asarray(x)
    # a scalar has no last axis to sort
    return jnp.argsort(x, axis=None if x.ndim == 0 else axis)


@op
def argpartition(x: TensorLike, kth: int, axis: int | None = -1) -> jax.Array:
    """Returns indices that partition x: smaller elements before the `kth`, larger ones after it.

    Args:
        kth: index in the sorted order.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.argpartition([3, 1, 2], 1))
        [1 2 0]
    """
    x = to_array(x)
    # `jnp.argpartition` has no None for the flattened array
    if axis is None:
        return jnp.argpartition(jnp.reshape(x, (-1,)), kth, axis=0)
    return jnp.argpartition(x, kth, axis=axis)


@op
def searchsorted(sorted_sequence: TensorLike, values: TensorLike, side: str = "left") -> jax.Array:
    """Returns the indices at which values are inserted to keep a vector sorted.

    Args:
        sorted_sequence: a vector in ascending order.
        values: array of any shape.
        side: "left" to insert before equal elements, "right" after them.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.searchsorted([1, 3, 5], [3, 4]))
        [1 2]
    """
    return jnp.searchsorted(to_array(sorted_sequence), to_array(values), side=side)


@op
def unique(
    x: TensorLike,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: Number | None = None,
) -> jax.Array | tuple[jax.Array, ...]:
    """Returns the sorted unique elements of x; every NaN is a separate element.

    Args:
        sorted: accepted for compatibility with Keras; the result is always sorted.
        return_index: whether to return the index of the first occurrence of each unique element.
        return_inverse: whether to return, for each element of x, the index of its unique element.
        return_counts: whether to return the number of occurrences of each unique element.
        axis: the axis along which to compare slices; None to compare single elements.
        size: number of unique elements to return; required under jit.
        fill_value: padding if x has fewer than `size` unique elements.

    Returns:
        An array, or a tuple of the array and the requested indices and counts.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.unique([3, 1, 3]))
        [1 3]
    """
    # with `equal_nan=True`, NumPy's default, all NaN would be one element
    result = jnp.unique(
        to_array(x),
        return_index=return_index,
        return_inverse=return_inverse,
        return_counts=return_counts,
        axis=axis,
        equal_nan=False,
        size=size,
        fill_value=fill_value,
    )
    # a plain tuple instead of JAX's named tuple
    return tuple(result) if isinstance(result, tuple) else result


@op
def digitize(x: TensorLike, bins: TensorLike) -> jax.Array:
    """Returns the index of the interval that contains each element; 0 below the first edge.

    Args:
        bins: the edges of the intervals, a vector in ascending order.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.digitize([0.5, 2.5], [1.0, 2.0, 3.0]))
        [0 2]
    """
    return jnp.digitize(to_array(x), jnp.asarray(bins))


@op
def bincount(
    x: TensorLike, weights: TensorLike | None = None, minlength: int = 0, sparse: bool = False
) -> jax.Array:
    """Returns the number of occurrences, or the sum of the weights, of each integer from 0 per row.

    Args:
        x: nonnegative integers, (n,) or (b, n).
        weights: weight of each integer; None for 1.
        minlength: minimum size of the result. Under jit the size must be static, so `minlength` is
            the size there, and larger integers are dropped.
        sparse: must be False; results are dense.

    Raises:
        ValueError: if `sparse` is true, or `minlength` is missing under jit or in a graph.

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

    def count(row: jax.Array, weight: jax.Array | None) -> jax.Array:
        return jnp.bincount(row, weights=weight, length=length)

    if x.ndim < 2:
        return count(x, weights)
    # rows are independent, and `jnp.bincount` accepts vectors only
    return jax.vmap(count, in_axes=(0, None if weights is None else 0))(x, weights)


def _bin_count(x: jax.Array, minlength: int) -> int:
    if not isinstance(x, Tracer):
        # concrete values: the size may depend on them, as in Keras
        return max(int(x.max()) + 1, minlength) if x.size else minlength
    if minlength < 1:
        raise ValueError(
            "bincount: expected minlength, the number of bins, where the numbers are not known "
            "yet (in a graph or under jit), received 0. Give minlength=largest number + 1."
        )
    return minlength


@op
def histogram(
    x: TensorLike, bins: int = 10, range: tuple[float, float] | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns `(counts, edges)` of a histogram with intervals of equal width.

    Args:
        x: a vector.
        bins: number of intervals.
        range: start of the first and end of the last interval; None for minimum and maximum of x.

    Raises:
        TypeError: if `bins` is not a nonnegative integer.
        ValueError: if x is not a vector, or the range ends before its start.

    Example:
        >>> import fkeras as fk
        >>> [a.tolist() for a in fk.ops.histogram([1, 2, 2, 4], bins=3)]
        [[1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]]
    """
    if not isinstance(bins, int) or bins < 0:
        raise TypeError(
            f"histogram: bins: expected a number of intervals, received {bins!r}. For custom edges "
            "use jnp.histogram."
        )
    x = to_array(x)
    if jnp.ndim(x) != 1:
        raise ValueError(
            f"histogram: expected a vector, received an array of shape {jnp.shape(x)}. Flatten the "
            "array: fk.ops.ravel(x)."
        )
    if range is not None and len(range) == 2 and range[1] < range[0]:
        raise ValueError(
            f"histogram: range: expected (start, end) with start <= end, received {range}. Swap the "
            "two numbers."
        )
    counts, edges = jnp.histogram(x, bins=bins, range=range)
    return counts, edges


@op
def correlate(x1: TensorLike, x2: TensorLike, mode: str = "valid") -> jax.Array:
    """Returns the cross-correlation of two vectors.

    Args:
        x1: a vector.
        x2: a vector, at most as long as x1.
        mode: "valid" for full overlap, "same" for the size of x1, "full" for any overlap.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.correlate([1, 2, 3], [1, 1]))
        [3. 5.]
    """
    return jnp.correlate(to_array(x1), to_array(x2), mode)


@op
def corrcoef(x: TensorLike) -> jax.Array:
    """Returns the matrix of Pearson correlations of the rows of x.

    Args:
        x: one row per variable, (n, samples).

    Example:
        >>> import fkeras as fk
        >>> fk.ops.corrcoef([[1, 2, 3], [3, 2, 1]]).round(3).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    return jnp.corrcoef(to_floats(x))
