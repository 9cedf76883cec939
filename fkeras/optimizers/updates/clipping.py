"""Clipping of gradients by their norms or by their global norm."""

from __future__ import annotations

import functools
import operator

import jax
import jax.numpy as jnp

from fkeras.optimizers.updates.numeric import root


def clip_norm(gradient: jax.Array, limit: float) -> jax.Array:
    """Scales a gradient down to the Euclidean norm `limit` if its norm is larger."""
    norm = root(jnp.sum(jnp.square(gradient)))
    return gradient * limit / jnp.maximum(norm, limit)


def clip_global_norm(gradients: list[jax.Array], limit: float) -> list[jax.Array]:
    """Scales all gradients by one factor if their global Euclidean norm is above `limit`."""
    if not gradients:
        return gradients
    squares = [jnp.sum(jnp.square(g)) for g in gradients]
    widest = max((s.dtype for s in squares), key=lambda dtype: dtype.itemsize)
    norm = root(functools.reduce(operator.add, [s.astype(widest) for s in squares]))
    # two wheres: the first keeps a norm of 0 out of the divisor
    small = norm < limit
    divisor = jnp.where(small, jnp.ones_like(norm), norm)
    return [jnp.where(small, g, g / divisor.astype(g.dtype) * limit) for g in gradients]
