"""Hashes of the decimal form of integers, on the device.

Keras hashes an integer as the string of its digits. An int32 has at most 11 characters, which fit
into two 64-bit words. The device therefore computes the hash without creating strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.hashing.fingerprints import (
    farm_bytes,
    farm_halves,
    farm_words,
    sip_block,
    sip_end,
    sip_start,
)
from fkeras.nn.hashing.wide import Wide

# characters of -2147483648
_LONGEST = 11
_SIGN, _ZERO = 45, 48


def as_int32(x: jax.Array, where: str) -> jax.Array:
    """Casts integers to int32; floats lose their fraction.

    Raises:
        TypeError: if int32 cannot hold the values of the dtype.
    """
    if jnp.issubdtype(x.dtype, jnp.floating) or x.dtype.name in (
        "int8",
        "int16",
        "uint8",
        "uint16",
    ):
        return x.astype("int32")
    if x.dtype == jnp.int32:
        return x
    raise TypeError(
        f"{where}: expected int32 on the device, received {x.dtype}. Cast it: x.astype('int32'); "
        "for larger numbers call the layer on the host, with a NumPy array or a list."
    )


def write_decimals(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the decimal characters of int32 values from the left, from the right, and lengths.

    Args:
        x: array of int32 of shape (...).

    Returns:
        Two arrays of uint32 of shape (..., 11), padded with zeros, and one of shape (...).
    """
    negative = x < 0
    # as uint32 the negation of the lowest int32 does not overflow
    bits = x.astype("uint32")
    size = jnp.where(negative, jnp.zeros_like(bits) - bits, bits)
    powers = [10**k for k in range(_LONGEST - 1)]
    digits = 1 + sum((size >= p).astype("int32") for p in powers[1:])
    right = [
        jnp.where(digits > k, size // p % 10 + _ZERO, jnp.zeros_like(size))
        for k, p in enumerate(powers)
    ]
    right = [
        jnp.where(negative & (digits == k), jnp.full_like(c, _SIGN), c)
        for k, c in enumerate([*right, jnp.zeros_like(size)])
    ]
    length = digits + negative.astype("int32")
    from_right = jnp.stack(right, axis=-1)
    positions = jnp.stack([length - 1 - k for k in range(_LONGEST)], axis=-1)
    characters = jnp.take_along_axis(from_right, jnp.maximum(positions, 0), axis=-1)
    return jnp.where(positions >= 0, characters, jnp.zeros_like(characters)), from_right, length


def _word(characters: Sequence[jax.Array]) -> jax.Array:
    """Packs four bytes into one little-endian uint32."""
    a, b, c, d = characters
    return a | (b << 8) | (c << 16) | (d << 24)


def _number(low: jax.Array) -> Wide:
    return Wide(jnp.zeros_like(low), low)


def farm_integers(x: jax.Array) -> Wide:
    """Computes FarmHash's Fingerprint64 of the decimal form of int32 values."""
    left_array, right_array, length = write_decimals(x)
    left = [left_array[..., k] for k in range(_LONGEST)]
    right = [right_array[..., k] for k in range(_LONGEST)]
    size = _number(length.astype("uint32"))
    head, tail = _word(left[:4]), _word(right[3::-1])
    middle = jnp.where(length == 1, left[0], left[1])
    # FarmHash branches on the length; a compiled program computes all branches and selects
    under_4 = farm_bytes(_number(left[0]), _number(middle), _number(right[0]), size)
    under_8 = farm_halves(_number(head), _number(tail), size)
    from_8 = farm_words(Wide(_word(left[4:8]), head), Wide(tail, _word(right[7:3:-1])), size)
    return Wide.where(length < 4, under_4, Wide.where(length < 8, under_8, from_8))


def sip_integers(x: jax.Array, salt: Sequence[int]) -> Wide:
    """Computes SipHash-2-4 of the decimal form of int32 values."""
    left_array, _, length = write_decimals(x)
    left = [left_array[..., k] for k in range(_LONGEST)]
    zeros = jnp.zeros_like(left[0])
    start = sip_start(salt, Wide(zeros, zeros))
    first = Wide(_word(left[4:8]), _word(left[:4]))
    long = length >= 8
    # strings of 8 or more characters have a full block before the last
    hashed_first = sip_block(start, first)
    state = tuple(Wide.where(long, a, b) for a, b in zip(hashed_first, start, strict=True))
    rest = Wide.where(long, Wide(zeros, _word([*left[8:], zeros])), first)
    # the last block holds the remaining bytes, and the length in its highest byte
    end = Wide(rest.high | (length.astype("uint32") << 24), rest.low)
    return sip_end(sip_block(state, end))


def hash_integers(x: jax.Array, salt: Sequence[int] | None = None) -> Any:
    """Hashes the decimal form of int32 values: SipHash-2-4 with a salt, otherwise FarmHash."""
    return farm_integers(x) if salt is None else sip_integers(x, salt)


def widen(x: jax.Array) -> Wide:
    """Sign-extends int32 values to 64-bit words."""
    return Wide((x >> 31).astype("uint32"), x.astype("uint32"))
