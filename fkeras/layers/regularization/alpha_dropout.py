"""`AlphaDropout`: dropout that preserves the mean and variance of `selu` activations."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, option, subkey
from fkeras.engine.config.converters import integer
from fkeras.engine.config.field_types import OptionalInteger, OptionalShape, Real
from fkeras.layers.common.arguments import drawn_shape, noise_shape
from fkeras.layers.regularization.noise import proper_fraction
from fkeras.nn.noise import alpha_dropout


class AlphaDropout(Layer):
    """Replaces elements by selu's lowest value at random in training; identity in inference.

    The layer preserves the mean and variance of its input, so a network of `selu` activations
    remains self-normalizing. Training draws from the key of the call.

    Args:
        rate: probability of dropping an element, from 0 and below 1. (Keras accepts 1, and divides
            by zero in the first training call.)
        Other arguments: those of `Dropout`.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a rate outside of [0, 1); in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.AlphaDropout(0.5)
        >>> layer(jnp.ones((1, 2)))
        Array([[1., 1.]], dtype=float32)
        >>> y = layer(jnp.ones((8, 8)), training=True, key=jax.random.key(0))
        >>> sorted({round(v, 2) for v in y.ravel().tolist()})
        [-0.78, 1.67]

    References:
        Klambauer et al., 2017, Self-normalizing neural networks, https://arxiv.org/abs/1706.02515
    """

    rate: Real = option(convert=proper_fraction)
    noise_shape: OptionalShape = option(default=None, convert=noise_shape)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    supports_masking: ClassVar[bool] = True

    def forward(self, context: Context, x: jax.Array) -> Output:
        if not context.training or self.rate == 0:
            return Output(x, mask=context.mask)
        shape = drawn_shape(self._where, self.noise_shape, x.shape)
        key = context.key if self.seed is None else subkey(context.key, self.seed)
        # integers cannot represent selu's lowest value
        if not jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(self.policy.compute_dtype)
        return Output(alpha_dropout(key, x, self.rate, shape), mask=context.mask)
