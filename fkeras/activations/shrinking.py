"""Shrinkage functions, which move x towards 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.registry import named


def soft_shrink(x: jax.Array, threshold: float = 0.5) -> jax.Array:
    """Moves x towards 0 by the threshold; smaller magnitudes become 0.

    Args:
        threshold: the distance, non-negative.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.soft_shrink(jnp.array([-2.0, 0.3, 1.0]))
        Array([-1.5,  0. ,  0.5], dtype=float32)
    """
    zero = jnp.zeros_like(x)
    return jnp.where(x > threshold, x - threshold, jnp.where(x < -threshold, x + threshold, zero))


def hard_shrink(x: jax.Array, threshold: float = 0.5) -> jax.Array:
    """Returns x where |x| is above the threshold, and 0 otherwise.

    Args:
        threshold: the largest |x| that becomes 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.hard_shrink(jnp.array([-2.0, 0.3, 1.0]))
        Array([-2.,  0.,  1.], dtype=float32)
    """
    return jnp.where(jnp.abs(x) > threshold, x, jnp.zeros_like(x))


def tanh_shrink(x: jax.Array) -> jax.Array:
    """Computes x - tanh(x).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.tanh_shrink(jnp.array([0.0, 2.0])).round(3)
        Array([0.   , 1.036], dtype=float32)
    """
    return x - jnp.tanh(x)


ACTIVATIONS = (
    named(soft_shrink),
    named(hard_shrink),
    named(tanh_shrink),
)
