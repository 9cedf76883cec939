"""Activations of Keras 1 and 2 with the name, but not the values, of an activation of Keras 3."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def keras2_hard_sigmoid(x: jax.Array) -> jax.Array:
    """`0.2 * x + 0.5`, cut off at 0 and 1: the hard sigmoid of Keras 1 and 2.

    Keras 3's is `relu6(x + 3) / 6`. A file that holds this one is read with
    `custom_objects={"keras2_hard_sigmoid": keras2_hard_sigmoid}` where another program reads it.

    Args:
        x: an array.

    Returns:
        An array of the same shape, between 0 and 1.

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_hard_sigmoid(jnp.array([-3.0, 0.0, 1.0]))
        Array([0. , 0.5, 0.7], dtype=float32)
    """
    return jnp.clip(0.2 * x + 0.5, 0.0, 1.0)
