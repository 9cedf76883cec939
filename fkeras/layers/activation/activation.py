"""`Activation`, `ReLU`, `LeakyReLU` and `ELU`."""

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
    activation: field_types.Activation = fk.option(convert=fk.activation)

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return self.activation(x)


class ReLU(fk.Layer):
    """Computes `max(x, 0)`, with an optional bound, slope and threshold.

    The result is `min(x, max_value)` from `threshold` on, and `negative_slope * (x - threshold)`
    below.

    Args:
        max_value: upper bound of the result; None for no bound.
        negative_slope: slope below the threshold.
        threshold: value of x where the two parts meet.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a negative argument.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.ReLU(max_value=1.5, negative_slope=0.5)(jnp.array([[-1.0, 1.0, 2.0]]))
        Array([[-0.5,  1. ,  1.5]], dtype=float32)
    """

    max_value: fk.OptionalReal = fk.option(
        default=None, convert=fk.real(minimum=0, infinite=True, optional=True)
    )
    negative_slope: fk.Real = fk.option(default=0.0, convert=fk.real(minimum=0))
    threshold: fk.Real = fk.option(default=0.0, convert=fk.real(minimum=0))

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return fk.activations.relu(x, self.negative_slope, self.max_value, self.threshold)


class LeakyReLU(fk.Layer):
    """Computes x where x is positive, `negative_slope * x` elsewhere.

    Args:
        negative_slope: slope for negative x.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a negative slope.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.LeakyReLU(0.5)(jnp.array([[-1.0, 2.0]]))
        Array([[-0.5,  2. ]], dtype=float32)

    References:
        Maas et al., 2013, Rectifier nonlinearities improve neural network acoustic models,
        https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf
    """

    # Keras's default of the layer; the function `activations.leaky_relu` has 0.2, as in Keras
    negative_slope: fk.Real = fk.option(default=0.3, convert=fk.real(minimum=0))

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return fk.activations.leaky_relu(x, self.negative_slope)


class ELU(fk.Layer):
    """Computes x where x is positive, `alpha * (exp(x) - 1)` elsewhere.

    Args:
        alpha: scale of the negative part: the result approaches `-alpha` for large negative x.

    Shapes:
        (b, ...) -> (b, ...).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.ELU(2.0)(jnp.array([[-100.0, 2.0]]))
        Array([[-2.,  2.]], dtype=float32)

    References:
        Clevert et al., 2015, Fast and accurate deep network learning by exponential linear units,
        https://arxiv.org/abs/1511.07289
    """

    alpha: fk.Real = fk.option(default=1.0, convert=fk.real())

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return fk.activations.elu(x, self.alpha)
