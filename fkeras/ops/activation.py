"""Activation functions, as `keras.ops.nn` names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fkeras import activations
from fkeras.engine.operation import Op
from fkeras.ops._define import elementwise, op, to_array, unary

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


def _plain(name: str, function: Callable) -> Op:
    return unary(name, lambda x: function(jnp.asarray(x)), function.__doc__ or name)


relu = unary("relu", lambda x: jax.nn.relu(jnp.asarray(x)), "max(x, 0).")
relu6 = _plain("relu6", activations.relu6)
sigmoid = _plain("sigmoid", activations.sigmoid)
log_sigmoid = _plain("log_sigmoid", activations.log_sigmoid)
softplus = _plain("softplus", activations.softplus)
softsign = _plain("softsign", activations.softsign)
silu = _plain("silu", activations.silu)
swish = _plain("swish", activations.silu)
hard_sigmoid = _plain("hard_sigmoid", activations.hard_sigmoid)
hard_silu = _plain("hard_silu", activations.hard_silu)
hard_swish = _plain("hard_swish", activations.hard_silu)
hard_tanh = _plain("hard_tanh", activations.hard_tanh)
tanh_shrink = _plain("tanh_shrink", activations.tanh_shrink)
sparse_plus = _plain("sparse_plus", activations.sparse_plus)
sparse_sigmoid = _plain("sparse_sigmoid", activations.sparse_sigmoid)
selu = _plain("selu", activations.selu)


@elementwise
def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is positive, alpha * (exp(x) - 1) elsewhere."""
    return activations.elu(jnp.asarray(x), alpha)


@elementwise
def celu(x: Any, alpha: float = 1.0) -> Any:
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""
    return activations.celu(jnp.asarray(x), alpha)


@elementwise
def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """x where it is positive, negative_slope * x elsewhere."""
    return activations.leaky_relu(jnp.asarray(x), negative_slope)


@elementwise
def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the normal distribution function at x, by a tanh or exactly."""
    return activations.gelu(jnp.asarray(x), approximate)


@elementwise
def squareplus(x: Any, b: float = 4) -> Any:
    """(x + sqrt(x**2 + b)) / 2."""
    return activations.squareplus(jnp.asarray(x), b)


@elementwise
def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x moved towards 0 by the threshold, 0 within it."""
    return activations.soft_shrink(jnp.asarray(x), threshold)


@elementwise
def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """x where |x| is above the threshold, 0 elsewhere."""
    return activations.hard_shrink(jnp.asarray(x), threshold)


@elementwise
def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """x above the threshold, default_value elsewhere."""
    return activations.threshold(jnp.asarray(x), threshold, default_value)


@op
def glu(x: Any, axis: int = -1) -> Any:
    """a * sigmoid(b) for the halves a, b of x along an axis."""
    return activations.glu(to_array(x), axis)


@op
def softmax(x: Any, axis: int | tuple[int, ...] = -1) -> Any:
    """exp(x) / sum(exp(x)) along an axis, or along several together."""
    return jax.nn.softmax(to_array(x), axis=axis)


@op
def log_softmax(x: Any, axis: int | tuple[int, ...] = -1) -> Any:
    """x - log(sum(exp(x))) along an axis, or along several together."""
    return jax.nn.log_softmax(to_array(x), axis=axis)


@op
def sparsemax(x: Any, axis: int = -1) -> Any:
    """The nearest point to x on the probability simplex; see `fk.activations.sparsemax`."""
    return activations.sparsemax(to_array(x), axis)
