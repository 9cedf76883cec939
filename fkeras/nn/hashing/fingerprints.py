"""Hashes of strings: FarmHash's Fingerprint64, SipHash-2-4, and the crossing of fingerprints.

TensorFlow's string ops use these hashes, so bin numbers agree with Keras's layers. The mixing steps
accept any type with the operators of unsigned 64-bit integers: NumPy arrays of uint64 for strings
on the host, `Wide` pairs for integers on the device.

References:
    FarmHash, Google, 2014, https://github.com/google/farmhash; SipHash: a fast short-input PRF,
    Aumasson and Bernstein, 2012, https://www.131002.net/siphash/siphash.pdf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# FarmHash's constants
K0 = 0xC3A5C85C97CB3127
K1 = 0xB492B66FBE98F273
K2 = 0x9AE16A3B2F90404F
# factor of TensorFlow's FingerprintCat64
_CROSS = 0xC6A4A7935BD1E995
_MASK = 0xFFFFFFFFFFFFFFFF
# SipHash's initial state, the ASCII string "somepseudorandomlygeneratedbytes"
_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def turn(x: Any, places: int) -> Any:
    """Rotates 64-bit words to the right."""
    return (x >> places) | (x << (64 - places))


def fold(x: Any) -> Any:
    """Mixes the upper 17 bits into the lower ones."""
    return x ^ (x >> 47)


def mix(u: Any, v: Any, factor: Any) -> Any:
    """Mixes two words into one."""
    a = fold((u ^ v) * factor)
    return fold((a ^ v) * factor) * factor


# FarmHash uses a different function for each range of lengths


def farm_bytes(first: Any, middle: Any, last: Any, length: Any) -> Any:
    """Hashes a string of 1 to 3 bytes, given its first, middle and last byte."""
    return fold(((first + (middle << 8)) * K2) ^ ((length + (last << 2)) * K0)) * K2


def farm_halves(head: Any, tail: Any, length: Any) -> Any:
    """Hashes a string of 4 to 7 bytes, given its first and last 4 bytes."""
    return mix(length + (head << 3), tail, length * 2 + K2)


def farm_words(head: Any, tail: Any, length: Any) -> Any:
    """Hashes a string of 8 to 16 bytes, given its first and last 8 bytes."""
    factor = length * 2 + K2
    a = head + K2
    return mix(turn(tail, 37) * factor + a, (turn(a, 25) + tail) * factor, factor)


def _farm_17_to_32(word: Callable, n: int) -> Any:
    factor = (K2 + n * 2) & _MASK
    a, b, c, d = word(0) * K1, word(8), word(n - 8) * factor, word(n - 16) * K2
    return mix(turn(a + b, 43) + turn(c, 30) + d, a + turn(b + K2, 18) + c, factor)


def _farm_33_to_64(word: Callable, n: int) -> Any:
    factor = (K2 + n * 2) & _MASK
    a, b, c, d = word(0) * K2, word(8), word(n - 8) * factor, word(n - 16) * K2
    y = turn(a + b, 43) + turn(c, 30) + d
    z = mix(y, a + turn(b + K2, 18) + c, factor)
    e, f = word(16) * factor, word(24)
    g, h = (y + word(n - 32)) * factor, (z + word(n - 24)) * factor
    return mix(turn(e + f, 43) + turn(g, 30) + h, e + turn(f + a, 18) + g, factor)


def _weak(word: Callable, offset: int, a: Any, b: Any) -> tuple[Any, Any]:
    """Mixes 32 bytes into two words with FarmHash's fast, weak hash."""
    last = word(offset + 24)
    a = a + word(offset)
    b = turn(b + a + last, 21)
    total = a + word(offset + 8) + word(offset + 16)
    return total + last, b + turn(total, 44) + a


def _farm_long(word: Callable, n: int) -> Any:
    # arrays of zeros, because Python integers would not wrap at 64 bits
    zero = word(0) * 0
    x = word(0) + (81 * K2 & _MASK)
    y = zero + ((81 * K1 + 113) & _MASK)
    z = fold(y * K2 + 113) * K2
    v, w = (zero, zero), (zero, zero)

    def block(
        offset: int, factor: Any, summand_factors: tuple, x: Any, y: Any, z: Any, v: Any, w: Any
    ) -> tuple:
        x = turn(x + y + v[0] + word(offset + 8), 37) * factor ^ w[1] * summand_factors[0]
        y = (
            turn(y + v[1] + word(offset + 48), 42) * factor
            + v[0] * summand_factors[1]
            + word(offset + 40)
        )
        z = turn(z + w[0], 33) * factor
        v = _weak(word, offset, v[1] * factor, x + w[0])
        w = _weak(word, offset + 32, z + w[1], y + word(offset + 16))
        return z, y, x, v, w

    last = (n - 1) // 64 * 64
    for offset in range(0, last, 64):
        x, y, z, v, w = block(offset, K1, (1, 1), x, y, z, v, w)
    factor = (z & 0xFF) * 2 + K1
    rest = (n - 1) % 64
    w = (w[0] + rest, w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    # the last block overlaps the one before: 64 bytes up to the end of the string
    x, y, z, v, w = block(last + rest - 63, factor, (9, 9), x, y, z, v, w)
    return mix(mix(v[0], w[0], factor) + fold(y) * K0 + z, mix(v[1], w[1], factor) + x, factor)


def sip_start(key: Sequence[int], zero: Any) -> tuple:
    """Returns the four words of SipHash's state before the first block."""
    return tuple(zero ^ (start ^ (key[i % 2] & _MASK)) for i, start in enumerate(_INITIAL))


def _sip_round(state: tuple) -> tuple:
    a, b, c, d = state
    a, c = a + b, c + d
    b, d = turn(b, 51) ^ a, turn(d, 48) ^ c
    a = turn(a, 32)
    c, a = c + b, a + d
    b, d = turn(b, 47) ^ c, turn(d, 43) ^ a
    return a, b, turn(c, 32), d


def sip_block(state: tuple, word: Any) -> tuple:
    """Returns the state after one more block of 8 bytes."""
    a, b, c, d = _sip_round(_sip_round((*state[:3], state[3] ^ word)))
    return a ^ word, b, c, d


def sip_end(state: tuple) -> Any:
    """Returns the hash, given the state after the last block."""
    a, b, c, d = state
    state = (a, b, c ^ 0xFF, d)
    for _ in range(4):
        state = _sip_round(state)
    a, b, c, d = state
    return a ^ b ^ c ^ d


def _of_one_length(rows: np.ndarray, salt: Sequence[int] | None) -> np.ndarray:
    """Hashes the rows of an array of bytes, all of one length."""
    n = rows.shape[1]

    def word(offset: int, size: int = 8) -> np.ndarray:
        padded = np.zeros((len(rows), 8), np.uint8)
        part = rows[:, offset : offset + size]
        padded[:, : part.shape[1]] = part
        return padded.view("<u8")[:, 0].astype(np.uint64)

    if salt is not None:
        state = sip_start(salt, np.zeros(len(rows), np.uint64))
        for offset in range(0, n - 7, 8):
            state = sip_block(state, word(offset))
        # the last block holds the remaining bytes, and the length in its highest byte
        return sip_end(sip_block(state, word(n // 8 * 8) | np.uint64((n % 256) << 56)))
    length = np.full(len(rows), n, np.uint64)
    if n == 0:
        return np.full(len(rows), K2, np.uint64)
    if n < 4:
        return farm_bytes(word(0, 1), word(n // 2, 1), word(n - 1, 1), length)
    if n < 8:
        return farm_halves(word(0, 4), word(n - 4, 4), length)
    if n <= 16:
        return farm_words(word(0), word(n - 8), length)
    if n <= 32:
        return _farm_17_to_32(word, n)
    return _farm_33_to_64(word, n) if n <= 64 else _farm_long(word, n)


def hash_strings(texts: Sequence[bytes], salt: Sequence[int] | None = None) -> np.ndarray:
    """Computes the 64-bit hash of each string: FarmHash's Fingerprint64, or salted SipHash-2-4.

    Args:
        salt: two integers, the key of SipHash-2-4; None for FarmHash.

    Returns:
        An array of uint64 of shape (len(texts),).
    """
    hashes = np.zeros(len(texts), np.uint64)
    # strings of equal length are hashed together, in vectorized NumPy operations
    rows_by_length: dict[int, list[int]] = {}
    for row, text in enumerate(texts):
        rows_by_length.setdefault(len(text), []).append(row)
    for size, rows in rows_by_length.items():
        joined = np.frombuffer(b"".join(texts[i] for i in rows), np.uint8)
        hashes[rows] = _of_one_length(joined.reshape(len(rows), size), salt)
    return hashes


def cross(fingerprint: Any, other: Any) -> Any:
    """Combines two fingerprints, as TensorFlow's FingerprintCat64(fingerprint, other).

    Example:
        >>> import numpy as np
        >>> one, two = np.array([1], "uint64"), np.array([2], "uint64")
        >>> bool(cross(one, two) == cross(two, one))
        False
    """
    start = fingerprint ^ _CROSS
    return fold(fold((start ^ (fold(other * _CROSS) * _CROSS)) * _CROSS) * _CROSS)
