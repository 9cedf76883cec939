"""Activations with settings of their own, as layers: `ReLU`, `LeakyReLU`, `ELU`."""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras import activations
from fkeras.engine import Layer, option
from fkeras.engine.config.converters import real
from fkeras.engine.config.field_types import OptionalReal, Real


class ReLU(Layer):
    """Computes `max(x, 0)`; with its options `min(x, max_value)` above a threshold, a line below.

    Args:
        max_value: the largest value; None for no bound.
        negative_slope: the slope of `x - threshold` below the threshold.
        threshold: where the two parts meet.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a number below 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.ReLU(max_value=1.5, negative_slope=0.5)(jnp.array([[-1.0, 1.0, 2.0]]))
        Array([[-0.5,  1. ,  1.5]], dtype=float32)
    """

    max_value: OptionalReal = option(
        default=None, convert=real(minimum=0, infinite=True, optional=True)
    )
    negative_slope: Real = option(default=0.0, convert=real(minimum=0))
    threshold: Real = option(default=0.0, convert=real(minimum=0))

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return activations.relu(x, self.negative_slope, self.max_value, self.threshold)


class LeakyReLU(Layer):
    """Computes x where it is positive, `negative_slope * x` elsewhere.

    Args:
        negative_slope: the slope below 0.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a slope below 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.LeakyReLU(0.5)(jnp.array([[-1.0, 2.0]]))
        Array([[-0.5,  2. ]], dtype=float32)

    References:
        Maas et al., 2013, Rectifier nonlinearities improve neural network acoustic models,
        https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf
    """

    negative_slope: Real = option(default=0.3, convert=real(minimum=0))

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return activations.leaky_relu(x, self.negative_slope)


class ELU(Layer):
    """Computes x where it is positive, `alpha * (exp(x) - 1)` elsewhere.

    Args:
        alpha: minus the value that is approached far below 0.

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

    alpha: Real = option(default=1.0, convert=real())

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        return activations.elu(x, self.alpha)
