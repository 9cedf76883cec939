"""`AlphaDropout`: dropout that keeps mean and variance of what `selu` returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, option, subkey
from fkeras.engine.config.converters import integer
from fkeras.layers.common.arguments import drawn_shape, noise_shape
from fkeras.layers.regularization.noise import proper_fraction

#: what selu tends to far below zero: minus its scale times its alpha
_LOWEST = -1.0507009873554805 * 1.6732632423543772


def alpha_dropout(
    key: jax.Array, x: jax.Array, rate: float, shape: Sequence[int] | None = None
) -> jax.Array:
    """Sets each element to selu's lowest value with probability `rate`, then scales and shifts.

    An input of mean 0 and variance 1 keeps both.

    Args:
        key: a PRNG key.
        x: array of any shape.
        rate: the share to drop, from 0 and below 1.
        shape: the shape of what is drawn, repeated over the axes of size 1; None for that of `x`.

    Returns:
        An array like `x`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> x = jax.random.normal(jax.random.key(0), (1000, 100))
        >>> y = alpha_dropout(jax.random.key(1), x, 0.3)
        >>> abs(round(float(y.mean()), 1)), round(float(y.std()), 1)
        (0.0, 1.0)
    """
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape if shape is None else tuple(shape))
    scale = ((1.0 - rate) * (1.0 + rate * _LOWEST**2)) ** -0.5
    shift = -scale * _LOWEST * rate
    return scale * jnp.where(keep, x, jnp.full_like(x, _LOWEST)) + shift


class AlphaDropout(Layer):
    """Drops to selu's lowest value at random in training; computes nothing in inference.

    Mean and variance of the input stay, so a network of `selu` activations keeps normalizing
    itself. Training draws from the key of the call.

    Args:
        rate: the share to drop, from 0 and below 1. (Keras takes 1 too, and divides by zero in
            the first training call.)
        noise_shape: the shape of what is drawn: size 1 where an axis shares one draw, None for
            the input's size.
        seed: folded into the key of each call; the key alone decides where it is None.

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

    rate: float = option(convert=proper_fraction)
    noise_shape: tuple[int | None, ...] | None = option(default=None, convert=noise_shape)
    seed: int | None = option(default=None, convert=integer(optional=True))

    supports_masking: ClassVar[bool] = True

    def forward(self, context: Context, x: jax.Array) -> Output:
        if not context.training or self.rate == 0:
            return Output(x, mask=context.mask)
        shape = drawn_shape(self.where, self.noise_shape, x.shape)
        key = context.key if self.seed is None else subkey(context.key, self.seed)
        if not jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(self.policy.compute_dtype)
        return Output(alpha_dropout(key, x, self.rate, shape), mask=context.mask)
