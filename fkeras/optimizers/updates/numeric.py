"""Arithmetic of optimizers: dtypes, zeros, moving means, and a root differentiable at 0.

A training can be differentiated with respect to its learning rate, so that derivatives of the
optimizers' arithmetic must stay finite.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def working_dtype(array: jax.Array) -> Any:
    """Returns the dtype of a weight's state: float64 for float64 weights, otherwise float32."""
    return jnp.dtype("float64") if array.dtype == "float64" else jnp.dtype("float32")


def zeros(weight: jax.Array) -> jax.Array:
    """Returns zeros with a weight's shape, in the dtype of the weight's state."""
    return jnp.zeros_like(weight, dtype=working_dtype(weight))


def moving_mean(mean: jax.Array, value: jax.Array, beta: float | jax.Array) -> jax.Array:
    """Returns mean + (1 - beta) * (value - mean)."""
    # Keras's order of operations, for equal rounding
    return mean + (value - mean) * (1.0 - beta)


def power(base: float, count: jax.Array) -> jax.Array:
    """Returns base**count in the dtype of `count`."""
    return jnp.power(jnp.asarray(base, count.dtype), count)


@jax.custom_jvp
def root(x: jax.Array) -> jax.Array:
    """Returns the square root, with the derivative 0 at 0.

    The true derivative at 0 is infinite. A weight with the gradient 0 would turn the derivative of
    a training with respect to its learning rate into NaN.
    """
    return jnp.sqrt(x)


@root.defjvp
def _root_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    y = root(*primals)
    positive = y > 0
    slope = jnp.where(positive, 0.5 / jnp.where(positive, y, jnp.ones_like(y)), jnp.zeros_like(y))
    return y, slope * tangents[0]


@jax.custom_jvp
def quotient(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns x / y; its derivative does not divide by y**2, which may underflow to 0."""
    return x / y


@quotient.defjvp
def _quotient_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    q = quotient(*primals)
    return q, (tangents[0] - q * tangents[1]) / primals[1]
