"""`Dropout`: zeroes elements at random during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, option, subkey
from fkeras.engine.config.converters import integer, probability
from fkeras.layers.common.arguments import drawn_shape, noise_shape


def dropout(
    key: jax.Array, x: jax.Array, rate: float, noise_shape: Sequence[int | None] | None = None
) -> jax.Array:
    """Zeroes each element with probability `rate`, and divides the others by `1 - rate`.

    Args:
        key: a PRNG key.
        x: array of any shape.
        rate: the share to drop, from 0 to 1.
        noise_shape: the shape of what is drawn, which is repeated over the axes of size 1; None
            for the size of `x`.

    Returns:
        An array like `x`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> y = dropout(jax.random.key(0), jnp.ones((4, 4)), 0.5)
        >>> sorted(set(y.ravel().tolist()))
        [0.0, 2.0]
    """
    if rate == 0:
        return x
    if rate == 1:
        return jnp.zeros_like(x)
    shape = x.shape
    if noise_shape is not None:
        shape = tuple(d if n is None else n for n, d in zip(noise_shape, x.shape, strict=True))
    keep = jax.random.bernoulli(key, 1.0 - rate, shape)
    return jnp.where(keep, x / (1.0 - rate), jnp.zeros_like(x))


class Dropout(Layer):
    """Zeroes each element with probability `rate` in training; computes nothing in inference.

    What remains is divided by `1 - rate`, so that expected sums stay. Training draws from the key
    of the call, and two calls of one layer in a graph draw differently.

    Args:
        rate: the share to drop, from 0 to 1.
        noise_shape: the shape of what is drawn: size 1 where an axis shares one draw, None for
            the input's size.
        seed: folded into the key of each call; the key alone decides where it is None.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a rate outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dropout(0.5)
        >>> layer(jnp.ones((1, 2)))
        Array([[1., 1.]], dtype=float32)
        >>> y = layer(jnp.ones((8, 8)), training=True, key=jax.random.key(0))
        >>> sorted(set(y.ravel().tolist()))
        [0.0, 2.0]

    References:
        Srivastava et al., 2014, Dropout, https://jmlr.org/papers/v15/srivastava14a.html
    """

    rate: float = option(convert=probability)
    noise_shape: tuple[int | None, ...] | None = option(default=None, convert=noise_shape)
    seed: int | None = option(default=None, convert=integer(optional=True))

    supports_masking: ClassVar[bool] = True

    def forward(self, context: Context, x: jax.Array) -> Output:
        if not context.training or self.rate == 0:
            return Output(x, mask=context.mask)
        shape = drawn_shape(self.where, self.noise_shape, x.shape)
        key = context.key if self.seed is None else subkey(context.key, self.seed)
        return Output(dropout(key, x, self.rate, shape), mask=context.mask)
