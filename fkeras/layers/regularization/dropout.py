"""Dropout, Gaussian noise and penalties on activations."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.arguments import drawn_shape, noise_shape
from fkeras.nn.noise import alpha_dropout, dropout, gaussian_dropout, gaussian_noise

proper_fraction = fk.real(
    minimum=0, below=1, hint="At 1 the noise would be unbounded: give 0.9 or less."
)


class _Noise(fk.Layer):
    """Changes its input at random in training; identity in inference.

    Args of the family:
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.

    Shapes of the family:
        (b, ...) -> (b, ...).
    """

    # subclasses declare `seed`, in Keras's order of arguments
    seed = None

    supports_masking: ClassVar[bool] = True

    @property
    def _strength(self) -> float:
        """Returns the rate or the standard deviation; 0 draws nothing, and needs no key."""
        raise NotImplementedError

    def _changed(self, key: jax.Array, x: jax.Array) -> jax.Array:
        raise NotImplementedError

    def _floating(self, x: jax.Array) -> jax.Array:
        # integers cannot hold noise
        floating = jnp.issubdtype(x.dtype, jnp.floating)
        return x if floating else x.astype(self.policy.compute_dtype)

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        if context.training and self._strength > 0:
            x = self._changed(context.seeded_key(self.seed), x)
        return fk.Output(x, mask=context.mask)


class _ElementDropout(_Noise):
    """Replaces elements at random.

    Args of the family:
        noise_shape: shape of the draw: size 1 for an axis that shares one draw, None for the
            input's size.
    """

    rate: fk.Real = fk.option(convert=fk.probability)
    noise_shape: fk.OptionalShape = fk.option(default=None, convert=noise_shape)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    @property
    def _strength(self) -> float:
        return self.rate


class Dropout(_ElementDropout):
    """Zeroes each element with probability `rate` in training; identity in inference.

    The remaining elements are divided by `1 - rate`, which preserves expected sums. Training draws
    from the key of the call, and two calls of one layer in a graph draw differently.

    Args:
        rate: probability of dropping an element, from 0 to 1.

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

    def _changed(self, key: jax.Array, x: jax.Array) -> jax.Array:
        return dropout(key, x, self.rate, drawn_shape(self._where, self.noise_shape, x.shape))


class GaussianNoise(_Noise):
    """Adds normal noise with mean 0 in training; identity in inference.

    Training draws from the key of the call.

    Args:
        stddev: standard deviation of the noise, from 0 to 1.

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

    @property
    def _strength(self) -> float:
        return self.stddev

    def _changed(self, key: jax.Array, x: jax.Array) -> jax.Array:
        return gaussian_noise(key, self._floating(x), self.stddev)


class GaussianDropout(_Noise):
    """Multiplies by normal noise with mean 1 in training; identity in inference.

    The standard deviation of the noise is `sqrt(rate / (1 - rate))`. Training draws from the key
    of the call.

    Args:
        rate: rate of the dropout with the same variance, from 0 and below 1. (Keras accepts 1, and
            divides by zero in the first training call.)

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

    @property
    def _strength(self) -> float:
        return self.rate

    def _changed(self, key: jax.Array, x: jax.Array) -> jax.Array:
        return gaussian_dropout(key, self._floating(x), self.rate)


class AlphaDropout(_ElementDropout):
    """Replaces elements by selu's lowest value at random in training; identity in inference.

    The layer preserves the mean and variance of its input, so a network of `selu` activations
    remains self-normalizing. Training draws from the key of the call.

    Args:
        rate: probability of dropping an element, from 0 and below 1. (Keras accepts 1, and divides
            by zero in the first training call.)

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

    rate: fk.Real = fk.option(convert=proper_fraction)

    def _changed(self, key: jax.Array, x: jax.Array) -> jax.Array:
        shape = drawn_shape(self._where, self.noise_shape, x.shape)
        # integers cannot represent selu's lowest value
        return alpha_dropout(key, self._floating(x), self.rate, shape)


class ActivityRegularization(fk.Layer):
    """Returns the input, and adds `(l1 * sum(|x|) + l2 * sum(x²)) / b` to the losses.

    Args:
        l1: weight of the sum of absolute values.
        l2: weight of the sum of squares.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        ValueError: for a negative or infinite weight.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ActivityRegularization(l1=0.5)
        >>> layer.apply(jnp.ones((2, 3))).losses
        (Array(1.5, dtype=float32),)
    """

    l1: fk.Real = fk.option(default=0.0, convert=fk.real(minimum=0))
    l2: fk.Real = fk.option(default=0.0, convert=fk.real(minimum=0))

    supports_masking: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        # report invalid weights when the layer is created, not at the first call
        fk.regularizers.L1L2(l1=self.l1, l2=self.l2)

    @property
    def activity_regularizer(self) -> fk.regularizers.L1L2:
        """Penalty that the engine computes on the output."""
        return fk.regularizers.L1L2(l1=self.l1, l2=self.l2)

    def call(self, x: jax.Array) -> jax.Array:
        return x
