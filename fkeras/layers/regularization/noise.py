"""Layers that add or multiply Gaussian noise in training."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.noise import gaussian_dropout, gaussian_noise

proper_fraction = fk.real(
    minimum=0, below=1, hint="At 1 the noise would be unbounded: give 0.9 or less."
)


def _key(context: fk.Context, seed: int | None) -> jax.Array:
    return context.key if seed is None else fk.subkey(context.key, seed)


def _floating(x: jax.Array, dtype: str) -> jax.Array:
    # integers cannot hold noise
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(dtype)


class GaussianNoise(fk.Layer):
    """Adds normal noise with mean 0 in training; identity in inference.

    Training draws from the key of the call.

    Args:
        stddev: standard deviation of the noise, from 0 to 1.
        seed: as in `Dropout`.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a standard deviation outside of [0, 1]; in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.GaussianNoise(0.1)
        >>> layer(jnp.ones((1, 2)))
        Array([[1., 1.]], dtype=float32)
        >>> y = layer(jnp.ones((100, 100)), training=True, key=jax.random.key(0))
        >>> round(float(y.std()), 2)
        0.1
    """

    stddev: fk.Real = fk.option(convert=fk.probability)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    supports_masking: ClassVar[bool] = True

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        # stddev 0 draws nothing, so the call needs no key
        if context.training and self.stddev > 0:
            x = _floating(x, self.policy.compute_dtype)
            x = gaussian_noise(_key(context, self.seed), x, self.stddev)
        return fk.Output(x, mask=context.mask)


class GaussianDropout(fk.Layer):
    """Multiplies by normal noise with mean 1 in training; identity in inference.

    The standard deviation of the noise is `sqrt(rate / (1 - rate))`. Training draws from the key
    of the call.

    Args:
        rate: rate of the dropout with the same variance, from 0 and below 1. (Keras accepts 1, and
            divides by zero in the first training call.)
        seed: as in `Dropout`.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a rate outside of [0, 1); in training without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.GaussianDropout(0.5)
        >>> layer(jnp.ones((1, 2)))
        Array([[1., 1.]], dtype=float32)
        >>> y = layer(jnp.ones((100, 100)), training=True, key=jax.random.key(0))
        >>> round(float(y.mean()), 1), round(float(y.std()), 1)
        (1.0, 1.0)

    References:
        Srivastava et al., 2014, Dropout, https://jmlr.org/papers/v15/srivastava14a.html
    """

    rate: fk.Real = fk.option(convert=proper_fraction)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    supports_masking: ClassVar[bool] = True

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        if context.training and self.rate > 0:
            x = _floating(x, self.policy.compute_dtype)
            x = gaussian_dropout(_key(context, self.seed), x, self.rate)
        return fk.Output(x, mask=context.mask)
