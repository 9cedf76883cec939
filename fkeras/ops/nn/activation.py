"""Activation functions, with the names of `keras.ops.nn`.

The functions and their docstrings are those of `fkeras.activations`, where both have the same
arguments and results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate

import jax
import jax.numpy as jnp

from fkeras import activations
from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import elementwise, op, to_array, unary
from fkeras.engine.symbolic.operation import Op, Rest, Unary

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


def _converting(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Returns an activation function that also accepts numbers and lists, with its docstring."""

    @functools.wraps(function)
    def compute(x: TensorLike, *args: Any, **options: Any) -> jax.Array:
        return function(jnp.asarray(x), *args, **options)

    compute.__doc__ = (function.__doc__ or "").replace("fk.activations.", "fk.ops.")
    return compute


def _unary(function: Callable[[jax.Array], jax.Array], name: str = "") -> Unary:
    """Declares an activation function without arguments as an operation."""
    return Unary(name or function.__name__, _converting(function), elementwise=True)


def _operation(
    function: Callable[Concatenate[jax.Array, Rest], jax.Array], *, elementwise: bool = True
) -> Op[Concatenate[TensorLike, Rest]]:
    """Declares an activation function with arguments as an operation."""
    return Op(function.__name__, _converting(function), elementwise)


# JAX's relu: its gradient at 0 is 0, as in Keras
relu = unary(
    "relu", lambda x: jax.nn.relu(jnp.asarray(x)), "max(x, 0).", "relu([-1.0, 2.0])", "[0. 2.]"
)
relu6 = _unary(activations.relu6)
sigmoid = _unary(activations.sigmoid)
log_sigmoid = _unary(activations.log_sigmoid)
softplus = _unary(activations.softplus)
softsign = _unary(activations.softsign)
silu = _unary(activations.silu)
swish = _unary(activations.silu, "swish")
hard_sigmoid = _unary(activations.hard_sigmoid)
hard_silu = _unary(activations.hard_silu)
hard_swish = _unary(activations.hard_silu, "hard_swish")
hard_tanh = _unary(activations.hard_tanh)
tanh_shrink = _unary(activations.tanh_shrink)
sparse_plus = _unary(activations.sparse_plus)
sparse_sigmoid = _unary(activations.sparse_sigmoid)
selu = _unary(activations.selu)

elu = _operation(activations.elu)
celu = _operation(activations.celu)
leaky_relu = _operation(activations.leaky_relu)
squareplus = _operation(activations.squareplus)
soft_shrink = _operation(activations.soft_shrink)
hard_shrink = _operation(activations.hard_shrink)
threshold = _operation(activations.threshold)
glu = _operation(activations.glu, elementwise=False)
sparsemax = _operation(activations.sparsemax, elementwise=False)


# Keras's default of the operation; the activation is exact by default, as in Keras
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
