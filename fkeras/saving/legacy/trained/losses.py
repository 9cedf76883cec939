"""Losses of Keras before 2.3 with the name, but not the values, of a loss of Keras 3."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def keras2_hinge(targets: jax.Array, predictions: jax.Array) -> jax.Array:
    """The mean of `max(1 - targets * predictions, 0)` over the last axis.

    Since Keras 2.3 targets of 0 and 1 become -1 and 1 first; before they were taken as they are.

    Args:
        targets: an array, -1 or 1.
        predictions: an array of the same shape.

    Returns:
        An array without the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_hinge(jnp.array([[1.0, -1.0]]), jnp.array([[0.5, 0.5]]))
        Array([1.], dtype=float32)
    """
    return jnp.mean(jnp.maximum(1.0 - targets * predictions, 0.0), axis=-1)


def keras2_squared_hinge(targets: jax.Array, predictions: jax.Array) -> jax.Array:
    """The mean of `max(1 - targets * predictions, 0) ** 2` over the last axis.

    Args:
        targets: an array, -1 or 1; taken as they are.
        predictions: an array of the same shape.

    Returns:
        An array without the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_squared_hinge(jnp.array([[1.0, -1.0]]), jnp.array([[0.5, 0.5]]))
        Array([1.25], dtype=float32)
    """
    return jnp.mean(jnp.square(jnp.maximum(1.0 - targets * predictions, 0.0)), axis=-1)
