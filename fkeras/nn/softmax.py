"""Softmax over one or more axes, with masks."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fkeras.nn.numerics.dtypes import wide_dtype
from fkeras.nn.numerics.slopes import divide


def exponentials(
    x: jax.Array, mask: jax.Array | None, axes: Sequence[int]
) -> tuple[jax.Array, jax.Array]:
    """Computes `exp(x)` up to one factor for each row, and the sums that normalize the rows.

    Args:
        mask: True where an entry counts; broadcasts to `x`. None for everywhere.

    Returns:
        The exponentials, 0 where the mask is False, and their sums with axes of size 1; the sum
        is 1 for a row that is empty, masked entirely, or all -inf.

    Example:
        >>> import jax.numpy as jnp
        >>> exponentials(jnp.array([[7.0, 7.0]]), None, (1,))
        (Array([[1., 1.]], dtype=float32), Array([[2.]], dtype=float32))
    """
    axes = tuple(axes)
    lowest = float(jnp.finfo(x.dtype).min)
    # infinite entries share the row, where their differences would be NaN
    x = jnp.minimum(x, -lowest)
    if mask is not None:
        x = jnp.where(mask, x, jnp.asarray(lowest, x.dtype))
    # the maximum is at least half of the lowest number, and masked entries are the lowest number:
    # their exp is 0 even in a fully masked row, and no -inf occurs, which would have no gradient
    highest = jax.lax.stop_gradient(jnp.max(x, axes, keepdims=True, initial=lowest / 2))
    y = jnp.exp(x - highest)
    total = jnp.sum(y, axes, keepdims=True)
    return y, jnp.where(total == 0, jnp.ones_like(total), total)


def masked_softmax(
    x: jax.Array, mask: jax.Array | None = None, axis: int | Sequence[int] = -1
) -> jax.Array:
    """Computes `exp(x) / sum(exp(x))` over `axis`, with 0 where `mask` is False.

    A fully masked row gives 0, with gradient 0.

    Args:
        mask: Boolean array with as many axes that broadcasts to `x`, or None.
        axis: axis, or axes that are summed together.

    Returns:
        An array like `x`; sums are in float32 or float64.

    Example:
        >>> import jax.numpy as jnp
        >>> masked_softmax(jnp.zeros((1, 3)), jnp.array([[True, True, False]]))
        Array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.dtype("float32")
    axes = (axis,) if isinstance(axis, int) else axis
    y, total = exponentials(x.astype(wide_dtype(dtype)), mask, axes)
    return divide(y, total).astype(dtype)
