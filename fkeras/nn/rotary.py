"""Rotary positions: channels of queries and keys, turned by angles that grow with the position."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np


def inverse_frequencies(size: int, base: float | jax.Array) -> jax.Array:
    """Returns `base ** (-2 * i / size)` for each of `size // 2` pairs of channels, in float32.

    Args:
        size: number of channels that turn; even.
        base: wavelength of the slowest pair, divided by 2 pi; an array (b, 1) for rows with their
            own.
    """
    powers = np.arange(0, size, 2, dtype="float32") / np.float32(size)
    base = jnp.asarray(base, "float32")
    return 1.0 / base ** jnp.reshape(powers, (*(1,) * max(base.ndim - 1, 0), -1))


def linear(frequencies: jax.Array, factor: float) -> jax.Array:
    """Divides all frequencies by `factor`: the positions of a longer text fit the trained range.

    Example:
        >>> import jax.numpy as jnp
        >>> linear(jnp.array([1.0, 0.5]), 2.0)
        Array([0.5 , 0.25], dtype=float32)
    """
    return frequencies / factor


def dynamic_base(
    base: float, size: int, factor: float, original: int, length: jax.Array
) -> jax.Array:
    """Returns the base for a text of `length` tokens: larger once the text exceeds `original`.

    Args:
        base: the base of texts up to `original` tokens.
        size: number of channels that turn.
        factor: growth of the base.
        original: number of positions of the training.
        length: integers of any shape.
    """
    ratio = jnp.maximum(length, original).astype("float32") / original
    return base * (factor * ratio - (factor - 1)) ** (size / (size - 2))


def llama3(
    frequencies: jax.Array, factor: float, low_factor: float, high_factor: float, original: int
) -> jax.Array:
    """Divides low frequencies by `factor`, keeps high ones, and interpolates between.

    Args:
        frequencies: those of the training.
        factor: divisor of the low frequencies.
        low_factor: wavelengths above `original / low_factor` are low frequencies.
        high_factor: wavelengths below `original / high_factor` are high frequencies.
        original: number of positions of the training.
    """
    turns = original * frequencies / (2 * math.pi)
    if high_factor == low_factor:
        return jnp.where(turns < low_factor, frequencies / factor, frequencies)
    share = jnp.clip((turns - low_factor) / (high_factor - low_factor), 0.0, 1.0)
    return (1 - share) * frequencies / factor + share * frequencies


def yarn(
    frequencies: jax.Array,
    base: float,
    factor: float,
    original: int,
    beta_fast: float,
    beta_slow: float,
    truncate: bool,
) -> jax.Array:
    """Divides by `factor` the frequencies that turn rarely within `original` positions.

    Args:
        frequencies: those of the training.
        base: the base of `frequencies`.
        factor: divisor of the low frequencies.
        original: number of positions of the training.
        beta_fast: pairs with more turns keep their frequency.
        beta_slow: pairs with fewer turns are divided.
        truncate: whether the ends of the ramp between are rounded to whole pairs.
    """
    size = 2 * frequencies.shape[-1]

    def pair_of(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_of(beta_fast), pair_of(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    high = high + 0.001 if low == high else high
    ramp = np.clip((np.arange(size // 2, dtype="float32") - low) / (high - low), 0.0, 1.0)
    return frequencies / factor * ramp + frequencies * (1 - ramp)


def rotate(
    x: jax.Array,
    positions: jax.Array,
    frequencies: jax.Array,
    scale: float = 1.0,
    interleaved: bool = False,
) -> jax.Array:
    """Turns pairs of channels by `positions * frequencies`; channels beyond the pairs stay.

    The angles, cosines and sines are float32, also for 16-bit channels: bfloat16 would round
    position 257 to 256.

    Args:
        x: array (b, t, ..., d).
        positions: integers (t,) or (b, t).
        frequencies: array (d_r / 2,); or (t, d_r / 2) or (b, t, d_r / 2), by token. d_r of the d
            channels turn.
        scale: factor of cosines and sines.
        interleaved: whether pairs are the channels (2i, 2i + 1) instead of (i, i + d_r / 2).

    Returns:
        An array of the shape and dtype of `x`.
    """
    size = 2 * frequencies.shape[-1]
    # (b or 1, t, 1, ..., pairs): the axes of heads share the angles
    between = (1,) * (x.ndim - 3)
    positions = jnp.reshape(positions, (-1, x.shape[1], *between, 1))
    tokens = frequencies.shape[-2] if frequencies.ndim > 1 else 1
    frequencies = jnp.reshape(frequencies, (-1, tokens, *between, size // 2))
    angles = positions.astype("float32") * frequencies
    cos, sin = jnp.cos(angles) * scale, jnp.sin(angles) * scale
    turning, rest = x[..., :size], x[..., size:]
    wide = turning.astype(cos.dtype)
    if interleaved:
        first, second = wide[..., ::2], wide[..., 1::2]
    else:
        first, second = wide[..., : size // 2], wide[..., size // 2 :]
    turned = [first * cos - second * sin, second * cos + first * sin]
    y = (
        jnp.reshape(jnp.stack(turned, axis=-1), turning.shape)
        if interleaved
        else jnp.concatenate(turned, axis=-1)
    )
    y = y.astype(x.dtype)
    return jnp.concatenate([y, rest], axis=-1) if rest.shape[-1] else y


def sinusoids(positions: jax.Array, size: int, base: float) -> jax.Array:
    """Returns sines and cosines of positions: sines at even channels, cosines at odd channels.

    Args:
        positions: integers of any shape (...).
        size: number of channels d.
        base: wavelength of the slowest pair, divided by 2 pi.

    Returns:
        A float32 array (..., d).
    """
    channels = np.arange(size)
    rates = (1.0 / base) ** (2.0 * (channels // 2) / size)
    lead = (1,) * positions.ndim
    rates = np.reshape(rates.astype("float32"), (*lead, size))
    angles = positions[..., None].astype("float32") * rates
    is_sine = np.reshape(channels % 2 == 0, rates.shape)
    return jnp.where(is_sine, jnp.sin(angles), jnp.cos(angles))
