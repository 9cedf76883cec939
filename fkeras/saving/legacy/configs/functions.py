"""Functions of Keras 1 and 2 with the name, but not the values, of a function of Keras 3."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def keras2_hard_sigmoid(x: jax.Array) -> jax.Array:
    """Hard sigmoid of Keras 1 and 2: `0.2 * x + 0.5`, clipped to [0, 1].

    Keras 3's hard sigmoid is `relu6(x + 3) / 6`. To load a saved model with this function in
    another program, pass `custom_objects={"keras2_hard_sigmoid": keras2_hard_sigmoid}`.

    Returns:
        Array of the same shape, with values in [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_hard_sigmoid(jnp.array([-3.0, 0.0, 1.0]))
        Array([0. , 0.5, 0.7], dtype=float32)
    """
    # Recurrent layers of multi-backend Keras use this function by default.
    return jnp.clip(0.2 * x + 0.5, 0.0, 1.0)


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
