"""Activations that make shares of a whole out of scores: softmax and its kin."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.registry import named


def softmax(x: jax.Array, axis: int = -1) -> jax.Array:
    """exp(x) / sum(exp(x)) along an axis.

    Scores of -inf count as the lowest float: their share is 0, and a row of nothing else is one
    of equal scores, with equal shares and finite gradients. Keras gives nan there.

    Args:
        x: scores, any shape.
        axis: the axis along which the shares sum to 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.softmax(jnp.zeros((1, 2)))
        Array([[0.5, 0.5]], dtype=float32)
    """
    return jax.nn.softmax(_above_lowest(x), axis=axis)


def log_softmax(x: jax.Array, axis: int = -1) -> jax.Array:
    """x - log(sum(exp(x))) along an axis; -inf counts as in `softmax`.

    Args:
        x: scores, any shape.
        axis: the axis along which the shares sum to 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.log_softmax(jnp.zeros((1, 2))).round(3)
        Array([[-0.693, -0.693]], dtype=float32)
    """
    return jax.nn.log_softmax(_above_lowest(x), axis=axis)


def sparsemax(x: jax.Array, axis: int = -1) -> jax.Array:
    """The nearest point to x on the probability simplex along an axis; many entries are 0.

    The entries sum to 1. Keras 3.15's do not where more than one entry is positive: it adds up the
    running sums in the place of the entries, so its numbers differ from these on purpose.

    Args:
        x: scores, any shape.
        axis: the axis along which the entries sum to 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.sparsemax(jnp.array([1.0, 0.5, -1.0]))
        Array([0.75, 0.25, 0.  ], dtype=float32)

    References:
        Martins and Astudillo 2016, From Softmax to Sparsemax, https://arxiv.org/abs/1602.02068
    """
    rows = jnp.moveaxis(_above_lowest(x), axis, -1)
    # a common shift changes nothing, and what lies 1 below the largest entry is 0: no sum overflows
    highest = jax.lax.stop_gradient(jnp.max(rows, axis=-1, keepdims=True))
    rows = jnp.maximum(rows - highest, -1)
    ordered = jnp.flip(jnp.sort(rows, axis=-1), axis=-1)
    sums = jnp.cumsum(ordered, axis=-1)
    ranks = jnp.arange(1, rows.shape[-1] + 1, dtype=rows.dtype)
    ranks = jnp.reshape(ranks, (1,) * (rows.ndim - 1) + (-1,))
    inside = 1 + ranks * ordered > sums
    count = jnp.sum(inside, axis=-1, keepdims=True)
    cut = jnp.take_along_axis(sums, count - 1, axis=-1) - 1
    return jnp.moveaxis(jnp.maximum(rows - cut / count.astype(rows.dtype), 0), -1, axis)


def _above_lowest(x: jax.Array) -> jax.Array:
    return jnp.maximum(x, jnp.finfo(x.dtype).min) if jnp.issubdtype(x.dtype, jnp.floating) else x


ACTIVATIONS = (
    named(softmax),
    named(log_softmax),
    named(sparsemax),
)
