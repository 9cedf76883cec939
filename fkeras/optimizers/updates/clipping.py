"""Clipping of gradients by their norms or by their global norm."""

from __future__ import annotations

import functools
import operator

import jax
import jax.numpy as jnp

from fkeras.nn.numerics.stable import magnitude
from fkeras.optimizers.updates.numeric import root


def clip_norm(gradient: jax.Array, limit: float) -> jax.Array:
    """Scales a gradient down to the Euclidean norm `limit` if its norm is larger."""
    unit = _unit(_largest(gradient))
    gradient = gradient / unit
    norm = root(jnp.sum(jnp.square(gradient)))
    return gradient * limit / jnp.maximum(norm, limit / unit)


def _largest(gradient: jax.Array) -> jax.Array:
    return jnp.max(jnp.abs(gradient), initial=0)


def _unit(largest: jax.Array) -> jax.Array:
    """Returns a power of 2, at least 1: numbers up to `largest`, divided by it, have finite squares."""
    return jnp.maximum(magnitude(largest), 1)


def clip_global_norm(gradients: list[jax.Array], limit: float) -> list[jax.Array]:
    """Scales all gradients by one factor if their global Euclidean norm is above `limit`."""
    if not gradients:
        return gradients
    widest = max((g.dtype for g in gradients), key=lambda dtype: dtype.itemsize)
    # one unit for all gradients; the maximum comes first, for optimizers that update stacked weights
    unit = _unit(functools.reduce(jnp.maximum, [_largest(g).astype(widest) for g in gradients]))
    scaled = [(g.astype(widest) / unit).astype(g.dtype) for g in gradients]
    squares = [jnp.sum(jnp.square(g)) for g in scaled]
    norm = root(functools.reduce(operator.add, [s.astype(widest) for s in squares]))
    # two wheres: the first keeps a norm of 0 out of the divisor
    small = norm < limit / unit
    divisor = jnp.where(small, jnp.ones_like(norm), norm)
    return [
        jnp.where(small, g, s / divisor.astype(g.dtype) * limit)
        for g, s in zip(gradients, scaled, strict=True)
    ]
