"""Arithmetic that optimizers share: dtypes, zeros, means, a square root that can be differentiated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def working_dtype(array: Any) -> Any:
    """The dtype of a weight's state: float64 for float64, otherwise float32."""
    return jnp.dtype("float64") if array.dtype == "float64" else jnp.dtype("float32")


def zeros(weight: jax.Array) -> jax.Array:
    """Zeros of a weight's shape, in the dtype of its state."""
    return jnp.zeros_like(weight, dtype=working_dtype(weight))


def moving_mean(mean: jax.Array, value: jax.Array, beta: float | jax.Array) -> jax.Array:
    """Mean + (1 - beta) * (value - mean)."""
    return mean + (value - mean) * (1.0 - beta)


def power(base: float, count: jax.Array) -> jax.Array:
    """base**count in the dtype of `count`."""
    return jnp.power(jnp.asarray(base, count.dtype), count)


@jax.custom_jvp
def root(x: jax.Array) -> jax.Array:
    """The square root, whose derivative at 0 is 0.

    Its own is infinite there, and a weight whose gradient is 0 would make the derivative of a
    training by its learning rate nan.
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
    """X / y, whose derivative does not divide by the square of y, which may be 0 in float32."""
    return x / y


@quotient.defjvp
def _quotient_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    q = quotient(*primals)
    return q, (tangents[0] - q * tangents[1]) / primals[1]
