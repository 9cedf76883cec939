"""Initializers that draw from a distribution that does not depend on the shape."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import integer, real
from fkeras.engine.config.field_types import OptionalInteger, Real
from fkeras.engine.values.argument_types import DTypeLike
from fkeras.engine.values.random import normal, truncated_normal, uniform
from fkeras.engine.values.registry import named
from fkeras.initializers.initializer import Initializer, moved, own_key


class RandomUniform(Initializer):
    """Draws samples from a uniform distribution.

    Args:
        minval: the lower bound.
        maxval: the upper bound.
        seed: an integer to fold into the key, for different samples from the same key.

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.RandomUniform(2.0, 3.0)(jax.random.key(0), (1000,))
        >>> bool((w >= 2).all() and (w <= 3).all()), round(float(w.mean()), 1)
        (True, 2.5)
    """

    minval: Real = option(default=-0.05, convert=real())
    maxval: Real = option(default=0.05, convert=real())
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        # `uniform` draws symmetric samples
        center, half_width = (self.maxval + self.minval) / 2, (self.maxval - self.minval) / 2
        samples = uniform(own_key(key, self.seed), tuple(shape), half_width, dtype)
        return samples if center == 0 else samples + jnp.asarray(center, samples.dtype)


class RandomNormal(Initializer):
    """Draws samples from a normal distribution.

    Args:
        mean: the mean of the distribution.
        stddev: the standard deviation.
        seed: an integer to fold into the key, for different samples from the same key.

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.RandomNormal(5.0, 2.0)(jax.random.key(0), (10000,))
        >>> round(float(w.mean()), 1), round(float(w.std()), 1)
        (5.0, 2.0)
    """

    mean: Real = option(default=0.0, convert=real())
    stddev: Real = option(default=0.05, convert=real(minimum=0))
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        return moved(normal(own_key(key, self.seed), tuple(shape)), self.stddev, self.mean, dtype)


class TruncatedNormal(Initializer):
    """Draws samples from a normal distribution truncated at two standard deviations.

    Args:
        stddev: the standard deviation before the truncation.
        Other arguments: those of `RandomNormal`.

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.TruncatedNormal(5.0, 2.0)(jax.random.key(0), (10000,))
        >>> bool((abs(w - 5) <= 4).all()), round(float(w.mean()), 1)
        (True, 5.0)
    """

    mean: Real = option(default=0.0, convert=real())
    stddev: Real = option(default=0.05, convert=real(minimum=0))
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        samples = truncated_normal(own_key(key, self.seed), tuple(shape))
        return moved(samples, self.stddev, self.mean, dtype)


INITIALIZERS = (
    named(RandomUniform, "random_uniform", "uniform"),
    named(RandomNormal, "random_normal", "normal"),
    named(TruncatedNormal, "truncated_normal"),
)
