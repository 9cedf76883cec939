"""Activations of Keras 1 and 2 with the name, but not the values, of an activation of Keras 3."""

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
