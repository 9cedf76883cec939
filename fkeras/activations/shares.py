"""Activations from scores to probabilities: softmax and its variants."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.registry import named


def softmax(x: jax.Array, axis: int = -1) -> jax.Array:
    """Computes exp(x) / sum(exp(x)) along an axis.

    Scores of -inf and inf are replaced by the lowest and the highest float: -inf has the probability
    0, and scores of inf share the probability 1. A row with only such scores has equal
    probabilities and finite gradients, where Keras returns NaN.

    Args:
        x: scores, any shape.
        axis: the axis along which the probabilities sum to 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.softmax(jnp.zeros((1, 2)))
        Array([[0.5, 0.5]], dtype=float32)
    """
    return jax.nn.softmax(_finite(x), axis=axis)


def log_softmax(x: jax.Array, axis: int = -1) -> jax.Array:
    """Computes x - log(sum(exp(x))) along an axis, with infinite scores replaced as in `softmax`.

    Args:
        x: scores, any shape.
        axis: the axis along which the probabilities sum to 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.log_softmax(jnp.zeros((1, 2))).round(3)
        Array([[-0.693, -0.693]], dtype=float32)
    """
    return jax.nn.log_softmax(_finite(x), axis=axis)


def sparsemax(x: jax.Array, axis: int = -1) -> jax.Array:
    """Projects x onto the probability simplex along an axis; many entries of the result are 0.

    The entries sum to 1. This is a deliberate departure from Keras 3.15, whose entries do not sum
    to 1 if more than one entry is positive: Keras adds cumulative sums instead of entries.

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
    rows = jnp.moveaxis(_finite(x), axis, -1)
    # the result is invariant to a common shift, and entries 1 or more below the maximum are 0: with
    # the range limited to [-1, 0], the cumulative sums cannot overflow
    highest = jax.lax.stop_gradient(jnp.max(rows, axis=-1, keepdims=True))
    rows = jnp.maximum(rows - highest, -1)
    ordered = jnp.flip(jnp.sort(rows, axis=-1), axis=-1)
    sums = jnp.cumsum(ordered, axis=-1)
    ranks = jnp.arange(1, rows.shape[-1] + 1, dtype=rows.dtype)
    ranks = jnp.reshape(ranks, (1,) * (rows.ndim - 1) + (-1,))
    # the support: the sorted entries above the threshold of Martins and Astudillo
    in_support = 1 + ranks * ordered > sums
    count = jnp.sum(in_support, axis=-1, keepdims=True)
    threshold_sum = jnp.take_along_axis(sums, count - 1, axis=-1) - 1
    return jnp.moveaxis(jnp.maximum(rows - threshold_sum / count.astype(rows.dtype), 0), -1, axis)


def _finite(x: jax.Array) -> jax.Array:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    bounds = jnp.finfo(x.dtype)
    return jnp.clip(x, bounds.min, bounds.max)


ACTIVATIONS = (
    named(softmax),
    named(log_softmax),
    named(sparsemax),
)
