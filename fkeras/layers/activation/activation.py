"""`Activation`: a layer that applies an activation function."""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras.engine.config import field_types
from fkeras.layers.common import authoring as fk


class Activation(fk.Layer):
    """Computes `activation(x)`.

    Args:
        activation: activation function of one array, or its name such as "relu"; None is the
            identity.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for an unknown name; the message suggests the most similar name.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Activation("relu")(jnp.array([[-1.0, 2.0]]))
        Array([[0., 2.]], dtype=float32)
    """

    # the module, not the class: the name `Activation` is this layer
    activation: field_types.Activation = fk.option(convert=fk.activations.get)

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return self.activation(x)
