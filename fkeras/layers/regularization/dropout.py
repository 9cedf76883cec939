"""`Dropout`: zeroes elements at random during training."""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras.engine import Context, Layer, Output, option, subkey
from fkeras.engine.config.converters import integer, probability
from fkeras.engine.config.field_types import OptionalInteger, OptionalShape, Real
from fkeras.layers.common.arguments import drawn_shape, noise_shape
from fkeras.nn.noise import dropout


class Dropout(Layer):
    """Zeroes each element with probability `rate` in training; identity in inference.

    The remaining elements are divided by `1 - rate`, which preserves expected sums. Training draws
    from the key of the call, and two calls of one layer in a graph draw differently.

    Args:
        rate: probability of dropping an element, from 0 to 1.
        noise_shape: shape of the draw: size 1 for an axis that shares one draw, None for the
            input's size.
        seed: folded into the key of each call; None uses the key alone.

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

    rate: Real = option(convert=probability)
    noise_shape: OptionalShape = option(default=None, convert=noise_shape)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    supports_masking: ClassVar[bool] = True

    def forward(self, context: Context, x: jax.Array) -> Output:
        if not context.training or self.rate == 0:
            # inference needs no key; rate 0 would draw without effect
            return Output(x, mask=context.mask)
        shape = drawn_shape(self._where, self.noise_shape, x.shape)
        # the seed separates layers that would otherwise share a key
        key = context.key if self.seed is None else subkey(context.key, self.seed)
        return Output(dropout(key, x, self.rate, shape), mask=context.mask)
