"""Non-negative activations: the exponential, and smooth forms of max(x, 0)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.registry import named


def exponential(x: jax.Array) -> jax.Array:
    """Computes exp(x).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.exponential(jnp.array([-1.0, 0.0])).round(2)
        Array([0.37, 1.  ], dtype=float32)
    """
    return jnp.exp(x)


def softplus(x: jax.Array) -> jax.Array:
    """Computes log(1 + exp(x)).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.softplus(jnp.array([0.0, 2.0])).round(3)
        Array([0.693, 2.127], dtype=float32)
    """
    # logaddexp(x, 0): exp(x) overflows for large x
    return jax.nn.softplus(x)


def squareplus(x: jax.Array, b: float = 4.0) -> jax.Array:
    """Computes (x + sqrt(x**2 + b)) / 2.

    Args:
        b: the smoothness at 0, where the value is sqrt(b) / 2; 0 for relu(x).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.squareplus(jnp.array([-1.5, 0.0, 1.5]))
        Array([0.5, 1. , 2. ], dtype=float32)

    References:
        Barron 2021, Squareplus, https://arxiv.org/abs/2112.11687
    """
    return jax.nn.squareplus(x, b)


def sparse_plus(x: jax.Array) -> jax.Array:
    """Computes 0 below -1, x above 1, and (x + 1)**2 / 4 in between.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.sparse_plus(jnp.array([-2.0, 0.0, 2.0]))
        Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    return jax.nn.sparse_plus(x)


ACTIVATIONS = (
    named(exponential),
    named(softplus),
    named(squareplus),
    named(sparse_plus),
)
