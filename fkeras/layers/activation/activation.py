"""`Activation`: a function of arrays, by name or as it is, as a layer."""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras import activations
from fkeras.engine import Layer, option
from fkeras.engine.config import field_types


class Activation(Layer):
    """Computes `activation(x)`, element by element or as the function defines it.

    Args:
        activation: a name such as "relu", or a function of one array; None is the identity.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Activation("relu")(jnp.array([[-1.0, 2.0]]))
        Array([[0., 2.]], dtype=float32)
    """

    activation: field_types.Activation = option(convert=activations.get)

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return self.activation(x)
