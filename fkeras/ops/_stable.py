"""Functions of numbers where JAX's have no gradient, or lose the smallest."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def safe_sqrt(x: jax.Array) -> jax.Array:
    """The square root whose gradient at 0 is 0, as for the length of a vector of zeros.

    Args:
        x: floating array of numbers of 0 or more.

    Example:
        >>> import jax
        >>> jax.grad(safe_sqrt)(0.0), jax.grad(safe_sqrt)(4.0)
        (Array(0., dtype=float32, weak_type=True), Array(0.25, dtype=float32, weak_type=True))
    """
    zero = x == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, x)))


def sign_and_logdet(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The determinant's sign and the logarithm of its absolute value, however small that is.

    JAX takes the logarithm of a 2x2 determinant, which underflows long before the logarithm does.
    With a 1 more on the diagonal the matrix is of the sizes that it factorizes.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(sign_and_logdet(jnp.eye(2) * 1e-30)[1]), 3)
        -138.155
    """
    if x.ndim > 1 and x.shape[-2:] == (2, 2):
        more = [(0, 0)] * (x.ndim - 2) + [(0, 1), (0, 1)]
        x = jnp.pad(x, more).at[..., 2, 2].set(1)
    return tuple(jnp.linalg.slogdet(x))
