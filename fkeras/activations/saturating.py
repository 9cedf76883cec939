"""Bounded activations: sigmoid, tanh and their variants."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.registry import named


def sigmoid(x: jax.Array) -> jax.Array:
    """Computes 1 / (1 + exp(-x)).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.sigmoid(jnp.array([0.0, 1.0])).round(3)
        Array([0.5  , 0.731], dtype=float32)
    """
    return jax.nn.sigmoid(x)


def hard_sigmoid(x: jax.Array) -> jax.Array:
    """Computes relu6(x + 3) / 6.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.hard_sigmoid(jnp.array([-3.0, 0.0, 1.5]))
        Array([0.  , 0.5 , 0.75], dtype=float32)
    """
    return jax.nn.hard_sigmoid(x)


def log_sigmoid(x: jax.Array) -> jax.Array:
    """Computes -softplus(-x), the logarithm of sigmoid(x).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.log_sigmoid(jnp.array([0.0, 2.0])).round(3)
        Array([-0.693, -0.127], dtype=float32)
    """
    # log(sigmoid(x)) would be -inf for large negative x
    return jax.nn.log_sigmoid(x)


def sparse_sigmoid(x: jax.Array) -> jax.Array:
    """Computes 0 below -1, 1 above 1, and (x + 1) / 2 in between.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.sparse_sigmoid(jnp.array([-2.0, 0.5, 2.0]))
        Array([0.  , 0.75, 1.  ], dtype=float32)
    """
    return jax.nn.sparse_sigmoid(x)


def tanh(x: jax.Array) -> jax.Array:
    """Computes tanh(x).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.tanh(jnp.array([0.0, 1.0])).round(3)
        Array([0.   , 0.762], dtype=float32)
    """
    return jnp.tanh(x)


def hard_tanh(x: jax.Array) -> jax.Array:
    """Clips x to the range from -1 to 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.hard_tanh(jnp.array([-2.0, 0.5, 2.0]))
        Array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return jax.nn.hard_tanh(x)


def softsign(x: jax.Array) -> jax.Array:
    """Computes x / (1 + |x|).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.softsign(jnp.array([-1.0, 3.0]))
        Array([-0.5 ,  0.75], dtype=float32)
    """
    return jax.nn.soft_sign(x)


ACTIVATIONS = (
    named(sigmoid),
    named(hard_sigmoid),
    named(log_sigmoid),
    named(sparse_sigmoid),
    named(tanh),
    named(hard_tanh),
    named(softsign),
)
