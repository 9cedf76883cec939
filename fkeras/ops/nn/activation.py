"""Activation functions, with the names of `keras.ops.nn`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fkeras import activations
from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import elementwise, op, to_array, unary
from fkeras.engine.symbolic.operation import Unary

__all__ = (
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "relu",
    "relu6",
    "selu",
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
    "tanh_shrink",
    "threshold",
)


def _plain(name: str, function: Callable, doc: str, example: str, shown: str) -> Unary:
    # activations accept lists here; the functions in `fkeras.nn` expect arrays
    return unary(name, lambda x: function(jnp.asarray(x)), doc, example, shown)


# JAX's relu: its gradient at 0 is 0, as in Keras
relu = unary(
    "relu", lambda x: jax.nn.relu(jnp.asarray(x)), "max(x, 0).", "relu([-1.0, 2.0])", "[0. 2.]"
)
relu6 = _plain(
    "relu6", activations.relu6, "min(max(x, 0), 6).", "relu6([-1.0, 2.0, 9.0])", "[0. 2. 6.]"
)
sigmoid = _plain(
    "sigmoid",
    activations.sigmoid,
    "1 / (1 + exp(-x)).",
    "sigmoid([-100.0, 0.0, 100.0])",
    "[0.  0.5 1. ]",
)
log_sigmoid = _plain(
    "log_sigmoid",
    activations.log_sigmoid,
    "log(1 / (1 + exp(-x))), finite for all finite x.",
    "log_sigmoid([0.0, 2.0]).round(2)",
    "[-0.69 -0.13]",
)
softplus = _plain(
    "softplus",
    activations.softplus,
    "log(1 + exp(x)), without overflow.",
    "softplus([-1.0, 0.0]).round(2)",
    "[0.31 0.69]",
)
softsign = _plain(
    "softsign", activations.softsign, "x / (1 + |x|).", "softsign([-1.0, 3.0])", "[-0.5   0.75]"
)
silu = _plain(
    "silu",
    activations.silu,
    "x * sigmoid(x), also called swish.",
    "silu([-2.0, 2.0]).round(2)",
    "[-0.24  1.76]",
)
swish = _plain(
    "swish",
    activations.silu,
    "x * sigmoid(x); the same as `silu`.",
    "swish([-2.0, 2.0]).round(2)",
    "[-0.24  1.76]",
)
hard_sigmoid = _plain(
    "hard_sigmoid",
    activations.hard_sigmoid,
    "min(max(x + 3, 0), 6) / 6.",
    "hard_sigmoid([-3.0, 0.0, 1.5])",
    "[0.   0.5  0.75]",
)
hard_silu = _plain(
    "hard_silu",
    activations.hard_silu,
    "x * hard_sigmoid(x), also called hard swish.",
    "hard_silu([1.5, 4.0])",
    "[1.125 4.   ]",
)
hard_swish = _plain(
    "hard_swish",
    activations.hard_silu,
    "x * hard_sigmoid(x); the same as `hard_silu`.",
    "hard_swish([1.5, 4.0])",
    "[1.125 4.   ]",
)
hard_tanh = _plain(
    "hard_tanh",
    activations.hard_tanh,
    "min(max(x, -1), 1).",
    "hard_tanh([-2.0, 0.5, 2.0])",
    "[-1.   0.5  1. ]",
)
tanh_shrink = _plain(
    "tanh_shrink",
    activations.tanh_shrink,
    "x - tanh(x).",
    "tanh_shrink([-1.0, 1.0]).round(2)",
    "[-0.24  0.24]",
)
sparse_plus = _plain(
    "sparse_plus",
    activations.sparse_plus,
    "0 below -1, x above 1, (x + 1)**2 / 4 between.",
    "sparse_plus([-2.0, 0.0, 2.0])",
    "[0.   0.25 2.  ]",
)
sparse_sigmoid = _plain(
    "sparse_sigmoid",
    activations.sparse_sigmoid,
    "0 below -1, 1 above 1, (x + 1) / 2 between.",
    "sparse_sigmoid([-2.0, 0.5, 2.0])",
    "[0.   0.75 1.  ]",
)
selu = _plain(
    "selu",
    activations.selu,
    "1.0507 * elu(x, 1.6733): keeps mean 0 and variance 1 from layer to layer.",
    "selu([-1.0, 1.0]).round(2)",
    "[-1.11  1.05]",
)


@elementwise
def elu(x: TensorLike, alpha: float = 1.0) -> jax.Array:
    """Returns x where x is positive, alpha * (exp(x) - 1) elsewhere.

    Args:
        alpha: scale of the negative part; the limit at -inf is -alpha.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.elu([-1.0, 2.0]).round(3)
        Array([-0.632,  2.   ], dtype=float32)

    References:
        Clevert et al., Fast and accurate deep network learning by exponential linear units (2015),
        arxiv.org/abs/1511.07289.
    """
    return activations.elu(jnp.asarray(x), alpha)


@elementwise
def celu(x: TensorLike, alpha: float = 1.0) -> jax.Array:
    """Returns max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).

    Args:
        alpha: scale of the negative part; the limit at -inf is -alpha.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.celu([-1.0, 2.0], alpha=0.5).round(3)
        Array([-0.432,  2.   ], dtype=float32)

    References:
        Barron, Continuously differentiable exponential linear units (2017),
        arxiv.org/abs/1704.07483.
    """
    return activations.celu(jnp.asarray(x), alpha)


@elementwise
def leaky_relu(x: TensorLike, negative_slope: float = 0.2) -> jax.Array:
    """Returns x where x is positive, negative_slope * x elsewhere.

    Args:
        negative_slope: the slope below 0.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.leaky_relu([-10.0, 2.0])
        Array([-2.,  2.], dtype=float32)
    """
    return activations.leaky_relu(jnp.asarray(x), negative_slope)


@elementwise
def gelu(x: TensorLike, approximate: bool = True) -> jax.Array:
    """Returns x times the cumulative distribution function of the standard normal at x.

    Args:
        approximate: whether to use the tanh approximation, with an error below 0.001.

    Example:
        >>> import fkeras as fk
        >>> round(float(fk.ops.gelu(1.0)), 3)
        0.841

    References:
        Hendrycks and Gimpel, Gaussian error linear units (2016), arxiv.org/abs/1606.08415.
    """
    return activations.gelu(jnp.asarray(x), approximate)


@elementwise
def squareplus(x: TensorLike, b: float = 4) -> jax.Array:
    """Returns (x + sqrt(x**2 + b)) / 2.

    Args:
        b: width of the curved region around 0; 0 gives `relu`.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.squareplus([-1.5, 0.0, 1.5])
        Array([0.5, 1. , 2. ], dtype=float32)

    References:
        Barron, Squareplus: a softplus-like algebraic rectifier (2021), arxiv.org/abs/2112.11687.
    """
    return activations.squareplus(jnp.asarray(x), b)


@elementwise
def soft_shrink(x: TensorLike, threshold: float = 0.5) -> jax.Array:
    """Returns x shifted towards 0 by the threshold, and 0 where |x| is at most the threshold.

    Args:
        threshold: the shift.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.soft_shrink([-2.0, 0.25, 2.0])
        Array([-1.5,  0. ,  1.5], dtype=float32)
    """
    return activations.soft_shrink(jnp.asarray(x), threshold)


@elementwise
def hard_shrink(x: TensorLike, threshold: float = 0.5) -> jax.Array:
    """Returns x where |x| is above the threshold, 0 elsewhere.

    Args:
        threshold: largest absolute value that becomes 0.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.hard_shrink([-2.0, 0.25, 2.0])
        Array([-2.,  0.,  2.], dtype=float32)
    """
    return activations.hard_shrink(jnp.asarray(x), threshold)


@elementwise
def threshold(x: TensorLike, threshold: float, default_value: float) -> jax.Array:
    """Returns x where x is above the threshold, `default_value` elsewhere.

    Args:
        threshold: the threshold; x equal to the threshold is replaced.
        default_value: the replacement.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.threshold([-1.0, 0.5, 2.0], 0.5, 9.0)
        Array([9., 9., 2.], dtype=float32)
    """
    return activations.threshold(jnp.asarray(x), threshold, default_value)


@op
def glu(x: TensorLike, axis: int = -1) -> jax.Array:
    """Returns a * sigmoid(b) for the halves a, b of x along an axis.

    Args:
        axis: the axis to split; its size must be even.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.glu([3.0, 8.0, 0.0, 0.0])
        Array([1.5, 4. ], dtype=float32)

    References:
        Dauphin et al., Language modeling with gated convolutional networks (2016),
        arxiv.org/abs/1612.08083.
    """
    return activations.glu(to_array(x), axis)


@op
def softmax(x: TensorLike, axis: int | tuple[int, ...] = -1) -> jax.Array:
    """Returns exp(x) / sum(exp(x)) over one or several axes.

    If all scores of a row are -inf, the result is uniform with a gradient of 0 (NaN in Keras).

    Args:
        axis: one axis or several; the result sums to 1 over them.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.softmax([[1.0, 1.0], [0.0, 1000.0]])
        Array([[0.5, 0.5],
               [0. , 1. ]], dtype=float32)
    """
    return jax.nn.softmax(_clear_masked_rows(x, axis), axis=axis)


@op
def log_softmax(x: TensorLike, axis: int | tuple[int, ...] = -1) -> jax.Array:
    """Returns x - log(sum(exp(x))) over one or several axes.

    If all scores of a row are -inf, the result is uniform with a gradient of 0 (NaN in Keras).

    Args:
        axis: one axis or several.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.log_softmax([0.0, 1000.0])
        Array([-1000.,     0.], dtype=float32)
    """
    return jax.nn.log_softmax(_clear_masked_rows(x, axis), axis=axis)


def _clear_masked_rows(x: TensorLike, axis: int | tuple[int, ...]) -> jax.Array:
    """Returns the scores with zeros in rows that hold only -inf."""
    x = jnp.asarray(to_array(x))
    # integers hold no -inf
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    # such rows arise from masks that exclude every key; -inf - -inf would be NaN
    is_empty = jnp.all(jnp.isneginf(x), axis=axis, keepdims=True)
    return jnp.where(is_empty, jnp.zeros_like(x), x)


@op
def sparsemax(x: TensorLike, axis: int = -1) -> jax.Array:
    """Returns the nearest point to x on the probability simplex; see `fk.activations.sparsemax`.

    Args:
        axis: the axis over which the result sums to 1.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.sparsemax([0.5, 0.0, -3.0])
        Array([0.75, 0.25, 0.  ], dtype=float32)

    References:
        Martins and Astudillo, From softmax to sparsemax (2016), arxiv.org/abs/1602.02068.
    """
    return activations.sparsemax(to_array(x), axis)
