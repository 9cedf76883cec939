"""Random noise: dropout and its variants, Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp


def dropout(
    key: jax.Array, x: jax.Array, rate: float, noise_shape: Sequence[int | None] | None = None
) -> jax.Array:
    """Zeroes each element with probability `rate`, and divides the others by `1 - rate`.

    Args:
        rate: probability of dropping an element, from 0 to 1.
        noise_shape: shape of the draw, repeated over axes of size 1; None for the shape of `x`.

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
    # 1 / (1 - rate) would be infinite
    if rate == 1:
        return jnp.zeros_like(x)
    shape = x.shape
    if noise_shape is not None:
        shape = tuple(d if n is None else n for n, d in zip(noise_shape, x.shape, strict=True))
    keep = jax.random.bernoulli(key, 1.0 - rate, shape)
    return jnp.where(keep, x / (1.0 - rate), jnp.zeros_like(x))


#: limit of selu at minus infinity: minus its scale times its alpha
_LOWEST = -1.0507009873554805 * 1.6732632423543772


def alpha_dropout(
    key: jax.Array, x: jax.Array, rate: float, shape: Sequence[int] | None = None
) -> jax.Array:
    """Sets each element to selu's lowest value with probability `rate`, then scales and shifts.

    Mean 0 and variance 1 of the input are preserved.

    Args:
        rate: probability of dropping an element, from 0 and below 1.
        shape: shape of the draw, repeated over axes of size 1; None for the shape of `x`.
        Other arguments: those of `dropout`.

    Returns:
        An array like `x`.
    """
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape if shape is None else tuple(shape))
    # these constants restore mean 0 and variance 1
    scale = ((1.0 - rate) * (1.0 + rate * _LOWEST**2)) ** -0.5
    shift = -scale * _LOWEST * rate
    return scale * jnp.where(keep, x, jnp.full_like(x, _LOWEST)) + shift


def spatial_dropout(
    key: jax.Array, x: jax.Array, rate: float, data_format: str = "channels_last"
) -> jax.Array:
    """Zeroes each channel of each sample with probability `rate`, divides others by `1 - rate`.

    Args:
        x: array of shape (b, ..., c), or (b, c, ...) with "channels_first".
        rate: probability of dropping a channel, from 0 to 1.
        data_format: "channels_last" or "channels_first".
        Other arguments: those of `dropout`.

    Returns:
        An array like `x`.
    """
    channel = x.ndim - 1 if data_format == "channels_last" else 1
    # size 1 on the spatial axes: one draw is repeated over the whole channel
    shape = tuple(x.shape[a] if a in (0, channel) else 1 for a in range(x.ndim))
    return dropout(key, x, rate, shape)


def gaussian_noise(key: jax.Array, x: jax.Array, stddev: float) -> jax.Array:
    """Computes `x + stddev * n` with n drawn from the standard normal distribution.

    Args:
        Other arguments: those of `dropout`.

    Returns:
        An array like `x`.
    """
    return x + stddev * jax.random.normal(key, x.shape, x.dtype)


def gaussian_dropout(key: jax.Array, x: jax.Array, rate: float) -> jax.Array:
    """Computes `x * (1 + s * n)` with n standard normal and `s = sqrt(rate / (1 - rate))`.

    The mean is x, and the variance is that of dropout at the same rate.

    Args:
        rate: rate of the dropout with the same variance, from 0 and below 1.
        Other arguments: those of `dropout`.

    Returns:
        An array like `x`.
    """
    # the standard deviation of the factors of dropout at this rate
    stddev = math.sqrt(rate / (1.0 - rate))
    return x * (1.0 + stddev * jax.random.normal(key, x.shape, x.dtype))
