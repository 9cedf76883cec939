"""Maximum and minimum along axes, with gradients that are robust to recomputation."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp


def largest(x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Returns the maximum along the axes, with a gradient that is robust to recomputation.

    JAX's derivative searches the elements that equal the maximum. XLA may compute an operand
    twice, with different rounding for the comparison. Then no element equals the maximum, and the
    gradient is 0 / 0. This function also compares the position of the maximum. Equal elements
    share the gradient; if the maximum is NaN, so is the gradient.

    Args:
        x: array of numbers.
        axis: axis, axes, or None for all axes.
        keepdims: whether to keep the axes, with size 1.

    Example:
        >>> jax.grad(lambda x: largest(x))(jnp.array([1.0, 3.0, 3.0]))
        Array([0. , 0.5, 0.5], dtype=float32)
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.max(x, axis=axis, keepdims=keepdims)
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    return _largest(x, tuple(sorted(a % x.ndim for a in axes)), keepdims)


def smallest(x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Returns the minimum along the axes, with a gradient like that of `largest`.

    Args:
        x: array of numbers.
        axis: axis, axes, or None for all axes.
        keepdims: whether to keep the axes, with size 1.

    Example:
        >>> jax.grad(lambda x: smallest(x))(jnp.array([1.0, 1.0, 3.0]))
        Array([0.5, 0.5, 0. ], dtype=float32)
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.min(x, axis=axis, keepdims=keepdims)
    return -largest(-x, axis, keepdims)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _largest(x: jax.Array, axes: tuple[int, ...], keepdims: bool) -> jax.Array:
    return jnp.max(x, axis=axes, keepdims=keepdims)


@_largest.defjvp
def _largest_jvp(axes: tuple[int, ...], keepdims: bool, primals: tuple, tangents: tuple) -> Any:
    (x,), (tangent,) = primals, tangents
    y = jnp.max(x, axis=axes, keepdims=True)
    # the position of each element in its row, counted over all reduced axes
    count, positions = 1, jnp.zeros_like(x, dtype="int32")
    for axis in reversed(axes):
        positions = positions + count * jax.lax.broadcasted_iota("int32", x.shape, axis)
        count *= x.shape[axis]
    is_largest = x == y
    first = jnp.min(jnp.where(is_largest, positions, count), axis=axes, keepdims=True)

    def searched() -> jax.Array:
        order = [a for a in range(x.ndim) if a not in axes] + list(axes)
        rows = jnp.transpose(x, order)
        rows = rows.reshape(*rows.shape[: x.ndim - len(axes)], -1)
        return jnp.argmax(rows, axis=-1).astype("int32").reshape(first.shape)

    # the search is slow, and only rows without an equal element need it
    first = jax.lax.cond(jnp.any(first == count), searched, lambda: first)
    weights = (is_largest | (positions == first)).astype(x.dtype)
    total = jnp.sum(weights, axis=axes, keepdims=True)
    total = jnp.where(jnp.isnan(y), y, total)
    slope = jnp.sum(tangent * (weights / total), axis=axes, keepdims=keepdims)
    return jnp.max(x, axis=axes, keepdims=keepdims), slope
