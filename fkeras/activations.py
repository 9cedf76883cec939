"""Activation functions: plain functions of arrays, with Keras's names, arguments and numbers."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config import lookup, serialize

__all__ = (
    "celu",
    "deserialize",
    "elu",
    "exponential",
    "gelu",
    "get",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "serialize",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "swish",
    "tanh",
    "tanh_shrink",
    "threshold",
)


def linear(x: jax.Array) -> jax.Array:
    """x.

    Example:
        >>> linear(3.0)
        3.0
    """
    return x


def relu(
    x: jax.Array,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> jax.Array:
    """max(x, 0); with its options min(x, max_value) above the threshold, a line below it.

    Args:
        x: any shape.
        negative_slope: the slope of `x - threshold` below the threshold.
        max_value: the largest value.
        threshold: where the two parts meet.

    Example:
        >>> import jax.numpy as jnp
        >>> relu(jnp.array([-1.0, 2.0]))
        Array([0., 2.], dtype=float32)
    """
    if threshold == 0.0 and negative_slope == 0.0:
        y = jax.nn.relu(x)
    else:
        y = jnp.where(x > threshold, x, jnp.zeros_like(x))
        if negative_slope != 0.0:  # 0 times -inf would be no number
            y = y + jnp.where(x > threshold, jnp.zeros_like(x), negative_slope * (x - threshold))
    return y if max_value is None else jnp.minimum(y, jnp.asarray(max_value, y.dtype))


def leaky_relu(x: jax.Array, negative_slope: float = 0.2) -> jax.Array:
    """x where it is positive, negative_slope * x elsewhere."""
    return jax.nn.leaky_relu(x, negative_slope)


def relu6(x: jax.Array) -> jax.Array:
    """min(max(x, 0), 6)."""
    return jax.nn.relu6(x)


def softmax(x: jax.Array, axis: int = -1) -> jax.Array:
    """exp(x) / sum(exp(x)) along an axis.

    Scores of -inf count as the lowest float: their share is 0, and a row of nothing else is one
    of equal scores, with equal shares and finite gradients. Keras gives nan there.

    Example:
        >>> import jax.numpy as jnp
        >>> softmax(jnp.zeros((1, 2)))
        Array([[0.5, 0.5]], dtype=float32)
    """
    return jax.nn.softmax(_above_lowest(x), axis=axis)


def log_softmax(x: jax.Array, axis: int = -1) -> jax.Array:
    """x - log(sum(exp(x))) along an axis; -inf counts as in `softmax`."""
    return jax.nn.log_softmax(_above_lowest(x), axis=axis)


def _above_lowest(x: jax.Array) -> jax.Array:
    return jnp.maximum(x, jnp.finfo(x.dtype).min) if jnp.issubdtype(x.dtype, jnp.floating) else x


def celu(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    return jax.nn.celu(x, alpha)


def elu(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    """x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    return jax.nn.elu(x, alpha)


def selu(x: jax.Array) -> jax.Array:
    """1.0507 * elu(x, 1.6733): keeps mean 0 and variance 1 from layer to layer.

    References:
        Klambauer et al., Self-normalizing neural networks (2017), arxiv.org/abs/1706.02515.
    """
    return jax.nn.selu(x)


def softplus(x: jax.Array) -> jax.Array:
    """log(1 + exp(x))."""
    return jax.nn.softplus(x)


def softsign(x: jax.Array) -> jax.Array:
    """x / (1 + |x|)."""
    return jax.nn.soft_sign(x)


def squareplus(x: jax.Array, b: float = 4.0) -> jax.Array:
    """(x + sqrt(x**2 + b)) / 2."""
    return jax.nn.squareplus(x, b)


def soft_shrink(x: jax.Array, threshold: float = 0.5) -> jax.Array:
    """x moved towards 0 by the threshold, 0 within it."""
    zero = jnp.zeros_like(x)
    return jnp.where(x > threshold, x - threshold, jnp.where(x < -threshold, x + threshold, zero))


def hard_shrink(x: jax.Array, threshold: float = 0.5) -> jax.Array:
    """x where |x| is above the threshold, 0 elsewhere."""
    return jnp.where(jnp.abs(x) > threshold, x, jnp.zeros_like(x))


def tanh_shrink(x: jax.Array) -> jax.Array:
    """x - tanh(x)."""
    return x - jnp.tanh(x)


def sparse_plus(x: jax.Array) -> jax.Array:
    """0 below -1, x above 1, (x + 1)**2 / 4 between."""
    return jax.nn.sparse_plus(x)


def silu(x: jax.Array) -> jax.Array:
    """x * sigmoid(x), also called swish."""
    return jax.nn.silu(x)


def gelu(x: jax.Array, approximate: bool = False) -> jax.Array:
    """x times the normal distribution function at x; with `approximate` by a tanh."""
    return jax.nn.gelu(x, approximate=approximate)


def glu(x: jax.Array, axis: int = -1) -> jax.Array:
    """a * sigmoid(b) for the halves a, b of x along an axis."""
    return jax.nn.glu(x, axis)


def tanh(x: jax.Array) -> jax.Array:
    """tanh(x)."""
    return jnp.tanh(x)


def threshold(x: jax.Array, threshold: float, default_value: float) -> jax.Array:
    """x above the threshold, default_value elsewhere."""
    return jnp.where(x > threshold, x, jnp.asarray(default_value, x.dtype))


def sigmoid(x: jax.Array) -> jax.Array:
    """1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(x)


def exponential(x: jax.Array) -> jax.Array:
    """exp(x)."""
    return jnp.exp(x)


def hard_sigmoid(x: jax.Array) -> jax.Array:
    """relu6(x + 3) / 6."""
    return jax.nn.hard_sigmoid(x)


def hard_silu(x: jax.Array) -> jax.Array:
    """x * hard_sigmoid(x), also called hard swish."""
    return jax.nn.hard_silu(x)


def hard_tanh(x: jax.Array) -> jax.Array:
    """x between -1 and 1, these bounds outside."""
    return jax.nn.hard_tanh(x)


def mish(x: jax.Array) -> jax.Array:
    """x * tanh(softplus(x))."""
    return x * jnp.tanh(jax.nn.softplus(x))


def log_sigmoid(x: jax.Array) -> jax.Array:
    """-softplus(-x)."""
    return jax.nn.log_sigmoid(x)


def sparse_sigmoid(x: jax.Array) -> jax.Array:
    """0 below -1, 1 above 1, (x + 1) / 2 between."""
    return jax.nn.sparse_sigmoid(x)


def sparsemax(x: jax.Array, axis: int = -1) -> jax.Array:
    """The nearest point to x on the probability simplex along an axis; many entries are 0.

    The entries sum to 1. Keras 3.15's do not where more than one entry is positive: it adds up the
    running sums in the place of the entries, so its numbers differ from these on purpose.

    References:
        Martins and Astudillo, From softmax to sparsemax (2016), arxiv.org/abs/1602.02068.
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


# Keras's other names of the same functions
swish = silu
hard_swish = hard_silu

_NAMES: Mapping[str, Any] = types.MappingProxyType(
    {
        **{f.__name__: f for f in (linear, relu, leaky_relu, relu6, softmax, log_softmax, celu)},
        **{f.__name__: f for f in (elu, selu, softplus, softsign, squareplus, soft_shrink, mish)},
        **{f.__name__: f for f in (hard_shrink, tanh_shrink, sparse_plus, silu, gelu, glu, tanh)},
        **{f.__name__: f for f in (threshold, sigmoid, exponential, hard_sigmoid, hard_silu)},
        **{f.__name__: f for f in (hard_tanh, log_sigmoid, sparse_sigmoid, sparsemax)},
        "swish": swish,
        "hard_swish": hard_swish,
    }
)


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Callable:
    """The function that a name, a configuration or a function means; None means `linear`.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> get("relu") is relu, get(None) is linear
        (True, True)
    """
    if identifier is None:
        return linear
    return lookup(identifier, "activation", _NAMES, custom_objects)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Callable:
    """The function that `serialize` wrote."""
    return get(config, custom_objects)
