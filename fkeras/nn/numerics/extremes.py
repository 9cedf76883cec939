"""Maximum and minimum along axes, with gradients that are robust to recomputation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp


def largest(x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Returns the maximum along the axes, with a gradient that is robust to recomputation.

    JAX's derivative searches the elements that equal the maximum. XLA may compute an operand twice,
    with different rounding, once to count these elements and once to select them. Then the shares
    of the gradient do not add up to 1; without an equal element the gradient is 0 / 0. This
    function counts and selects on one array in memory. Equal elements share the gradient; if the
    maximum is NaN, so is the gradient.

    Args:
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
    shares = _gradient_shares(axes)(jax.lax.stop_gradient(x))
    slope = jnp.sum(tangent * shares, axis=axes, keepdims=keepdims)
    return jnp.max(x, axis=axes, keepdims=keepdims), slope


def _gradient_shares(axes: tuple[int, ...]) -> Callable[[jax.Array], jax.Array]:
    """Returns a function from an array to each element's share of the maximum's gradient."""

    @jax.custom_batching.custom_vmap
    def shares(x: jax.Array) -> jax.Array:
        # XLA keeps the operands of a conditional in memory; on CPUs, XLA removes an
        # optimization_barrier before the fusion that computes an operand twice
        has_nan = jnp.any(jnp.isnan(jnp.max(x, axis=axes)))
        return jax.lax.cond(has_nan, with_nan, equal_shares, x)

    def equal_shares(x: jax.Array) -> jax.Array:
        equal = (x == jnp.max(x, axis=axes, keepdims=True)).astype(x.dtype)
        return equal / jnp.sum(equal, axis=axes, keepdims=True)

    def with_nan(x: jax.Array) -> jax.Array:
        largest = jnp.max(x, axis=axes, keepdims=True)
        return jnp.where(jnp.isnan(largest), largest, equal_shares(x))

    @shares.def_vmap
    def _(size: int, batched: list[bool], x: jax.Array) -> tuple[jax.Array, bool]:
        # under a batched condition, jax.vmap would replace the conditional by a selection
        return _gradient_shares(tuple(axis + 1 for axis in axes))(x), True

    return shares
