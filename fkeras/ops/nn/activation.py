"""Activation functions, with the names of `keras.ops.nn`.

The functions and their docstrings are those of `fkeras.activations`, where both have the same
arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fkeras import activations
from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import elementwise, op, to_array, unary
from fkeras.engine.symbolic.operation import Parameters, Unary

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


def _documented(
    source: Callable[..., jax.Array],
) -> Callable[[Callable[Parameters, jax.Array]], Callable[Parameters, jax.Array]]:
    """Gives an operation the docstring of its activation function."""

    def with_docstring(
        function: Callable[Parameters, jax.Array],
    ) -> Callable[Parameters, jax.Array]:
        function.__doc__ = (source.__doc__ or "").replace("fk.activations.", "fk.ops.")
        return function

    return with_docstring


def _unary(function: Callable[[jax.Array], jax.Array], name: str = "") -> Unary:
    """Declares an activation function without options, also for numbers and lists."""

    @_documented(function)
    def compute(x: TensorLike) -> jax.Array:
        return function(jnp.asarray(x))

    return Unary(name or function.__name__, compute, elementwise=True)


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


@elementwise
@_documented(activations.elu)
def elu(x: TensorLike, alpha: float = 1.0) -> jax.Array:
    return activations.elu(jnp.asarray(x), alpha)


@elementwise
@_documented(activations.celu)
def celu(x: TensorLike, alpha: float = 1.0) -> jax.Array:
    return activations.celu(jnp.asarray(x), alpha)


@elementwise
@_documented(activations.leaky_relu)
def leaky_relu(x: TensorLike, negative_slope: float = 0.2) -> jax.Array:
    return activations.leaky_relu(jnp.asarray(x), negative_slope)


@elementwise
@_documented(activations.squareplus)
def squareplus(x: TensorLike, b: float = 4.0) -> jax.Array:
    return activations.squareplus(jnp.asarray(x), b)


@elementwise
@_documented(activations.soft_shrink)
def soft_shrink(x: TensorLike, threshold: float = 0.5) -> jax.Array:
    return activations.soft_shrink(jnp.asarray(x), threshold)


@elementwise
@_documented(activations.hard_shrink)
def hard_shrink(x: TensorLike, threshold: float = 0.5) -> jax.Array:
    return activations.hard_shrink(jnp.asarray(x), threshold)


@elementwise
@_documented(activations.threshold)
def threshold(x: TensorLike, threshold: float, default_value: float) -> jax.Array:
    return activations.threshold(jnp.asarray(x), threshold, default_value)


@op
@_documented(activations.glu)
def glu(x: TensorLike, axis: int = -1) -> jax.Array:
    return activations.glu(jnp.asarray(x), axis)


@op
@_documented(activations.sparsemax)
def sparsemax(x: TensorLike, axis: int = -1) -> jax.Array:
    return activations.sparsemax(jnp.asarray(x), axis)


# Keras's default of the operation; the activation is exact by default, as in Keras
@elementwise
@_documented(activations.gelu)
def gelu(x: TensorLike, approximate: bool = True) -> jax.Array:
    return activations.gelu(jnp.asarray(x), approximate)


@op
def softmax(x: TensorLike, axis: int | tuple[int, ...] = -1) -> jax.Array:
    """Returns exp(x) / sum(exp(x)) over one or several axes.

    If all scores of a row are -inf, the result is uniform with a gradient of 0 (NaN in Keras).
    Scores of inf share the probability 1 (NaN in Keras).

    Args:
        axis: one axis or several; the result sums to 1 over them.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.softmax([[1.0, 1.0], [0.0, 1000.0]])
        Array([[0.5, 0.5],
               [0. , 1. ]], dtype=float32)
    """
    return jax.nn.softmax(_finite_rows(x, axis), axis=axis)


@op
def log_softmax(x: TensorLike, axis: int | tuple[int, ...] = -1) -> jax.Array:
    """Returns x - log(sum(exp(x))) over one or several axes; infinity as in `softmax`.

    Args:
        axis: one axis or several.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.log_softmax([0.0, 1000.0])
        Array([-1000.,     0.], dtype=float32)
    """
    return jax.nn.log_softmax(_finite_rows(x, axis), axis=axis)


def _finite_rows(x: TensorLike, axis: int | tuple[int, ...]) -> jax.Array:
    """Returns the scores with zeros in rows of -inf; in rows with inf, 0 for inf and -inf otherwise."""
    x = jnp.asarray(to_array(x))
    # integers hold no infinity
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    # softmax subtracts the maximum: inf - inf is NaN; masks of all keys make rows of -inf
    highest = jnp.max(jax.lax.stop_gradient(x), axis=axis, keepdims=True, initial=-jnp.inf)
    x = jnp.where(highest == -jnp.inf, jnp.zeros_like(x), x)
    shared = jnp.where(x == jnp.inf, jnp.zeros_like(x), jnp.full_like(x, -jnp.inf))
    return jnp.where(highest == jnp.inf, shared, x)
