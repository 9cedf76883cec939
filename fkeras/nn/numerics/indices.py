"""Validation of class indices and ids inside compiled programs.

A compiled program cannot raise an error that depends on a value. These functions mark indices that
are out of range, negative, fractional or NaN, and callers turn their results into NaN. JAX by
default counts negative indices from the end, truncates fractions, and wraps integers at 2**32.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.nn.numerics.axes import format_shape


def valid_indices(values: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Returns `(indices, valid)`: values as int32, with 0 for values that are not valid indices.

    Args:
        count: number of indices; valid indices are 0 to count - 1.

    Returns:
        An array of int32 and an array of Booleans, both of the shape of `values`.
    """
    if jnp.issubdtype(values.dtype, jnp.floating):
        # float16 ends at 65504, and bfloat16 has 8 bits: compare in a dtype that can hold `count`
        values = values if values.dtype == jnp.float64 else values.astype("float32")
        valid = (values >= 0) & (values < count) & (values == jnp.floor(values))
    else:
        values = values if values.dtype.itemsize >= 4 else values.astype("int32")
        # the limit must fit into the dtype of the values, or the comparison would overflow
        last = min(count - 1, jnp.iinfo(values.dtype).max)
        valid = (values >= 0) & (values <= last)
    return jnp.where(valid, values, jnp.zeros_like(values)).astype("int32"), valid


def equals(values: jax.Array, number: int) -> jax.Array:
    """Compares values with a number, which may be out of the range of their dtype."""
    if jnp.issubdtype(values.dtype, jnp.integer):
        limits = jnp.iinfo(values.dtype)
        if not limits.min <= number <= limits.max:
            return jnp.zeros(values.shape, bool)
    elif values.dtype == bool:
        values = values.astype("int32")
    return values == number


def unsigned_indices(values: jax.Array, count: int) -> jax.Array:
    """Returns values as uint32, with `count` or more for values that are not valid indices.

    A gather with `mode="fill"` then fills the results of invalid indices, including negative
    ones, and the transpose of the gather drops their gradients.
    """
    if values.dtype in (jnp.int32, jnp.uint32, jnp.int16, jnp.int8, jnp.uint16, jnp.uint8):
        return values.astype("uint32")
    indices, valid = valid_indices(values, count)
    return jnp.where(valid, indices, jnp.full_like(indices, count)).astype("uint32")


def check_constant_indices(
    where: str, x: jax.Array | jax.ShapeDtypeStruct, indices: Any, axis: int, size: int = 1
) -> None:
    """Rejects constant indices outside of an axis, for which JAX reads the nearest row.

    Computed indices and axes of unknown size are not checked.

    Args:
        x: the indexed array.
        indices: an integer, an array, or nested lists of integers.
        size: number of rows that begin at each index.

    Raises:
        IndexError: for the first index outside of the axis.
    """
    if not -x.ndim <= axis < x.ndim:  # JAX rejects the axis
        return
    count = x.shape[axis]
    parts = jax.tree.leaves(indices)
    # outside of traced programs the check would wait for arrays on the device
    is_eager = not isinstance(x, Tracer)
    if any(isinstance(i, Tracer) or (is_eager and isinstance(i, jax.Array)) for i in parts):
        return
    values = np.asarray(indices)
    if not isinstance(count, int) or values.dtype.kind not in "iu":
        return
    # negative indices count from the end
    starts = np.where(values < 0, values + count, values)
    outside = (starts < 0) | (starts > count - size)
    if outside.any():
        expected = "an index" if size == 1 else f"a start of {size} rows"
        raise IndexError(
            f"{where}: expected {expected} within the {count} rows of axis {axis % x.ndim} of an array of "
            f"shape {format_shape(x.shape)}, received index {values[outside][0]}."
        )
