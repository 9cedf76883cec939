"""Losses of Keras before 2.3 with the name, but not the values, of a loss of Keras 3."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def keras2_hinge(targets: jax.Array, predictions: jax.Array) -> jax.Array:
    """Returns the mean of `max(1 - targets * predictions, 0)` over the last axis.

    Keras 2.3 and later convert targets of 0 and 1 to -1 and 1 first; this function does not.

    Args:
        targets: array of -1 and 1.

    Returns:
        An array without the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_hinge(jnp.array([[1.0, -1.0]]), jnp.array([[0.5, 0.5]]))
        Array([1.], dtype=float32)
    """
    return jnp.mean(jnp.maximum(1.0 - targets * predictions, 0.0), axis=-1)


def keras2_squared_hinge(targets: jax.Array, predictions: jax.Array) -> jax.Array:
    """Returns the mean of `max(1 - targets * predictions, 0) ** 2` over the last axis.

    Args:
        targets: array of -1 and 1; targets of 0 and 1 are not converted.

    Returns:
        An array without the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_squared_hinge(jnp.array([[1.0, -1.0]]), jnp.array([[0.5, 0.5]]))
        Array([1.25], dtype=float32)
    """
    return jnp.mean(jnp.square(jnp.maximum(1.0 - targets * predictions, 0.0)), axis=-1)
