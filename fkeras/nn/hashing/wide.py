"""`Wide`: unsigned 64-bit arithmetic on pairs of 32-bit arrays; JAX disables uint64 by default."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

_HALF = 0xFFFF


@dataclasses.dataclass(frozen=True, eq=False)
class Wide:
    """Array of unsigned 64-bit integers, `high * 2**32 + low`, that wraps like uint64.

    The class has the operators that hash functions need, so one implementation of a hash function
    serves both NumPy arrays of uint64 and `Wide`.

    Args:
        high: the upper halves, an array of uint32.
        low: the lower halves, an array of uint32.
    """

    high: jax.Array
    low: jax.Array

    @staticmethod
    def of(number: int, like: jax.Array) -> Wide:
        """Returns an array of the shape of `like`, filled with the number."""
        return Wide(
            jnp.full_like(like, number >> 32, dtype="uint32"),
            jnp.full_like(like, number & 0xFFFFFFFF, dtype="uint32"),
        )

    @staticmethod
    def where(condition: jax.Array, one: Wide, other: Wide) -> Wide:
        """Selects from `one` where the condition holds, otherwise from `other`."""
        return Wide(
            jnp.where(condition, one.high, other.high), jnp.where(condition, one.low, other.low)
        )

    def _wide(self, other: Any) -> Wide:
        return other if isinstance(other, Wide) else Wide.of(other, self.low)

    def __add__(self, other: Any) -> Wide:
        other = self._wide(other)
        low = self.low + other.low
        # an unsigned sum is below its summands exactly where it wrapped
        carry = (low < self.low).astype("uint32")
        return Wide(self.high + other.high + carry, low)

    def __mul__(self, other: Any) -> Wide:
        other = self._wide(other)
        a1, a0 = self.low >> 16, self.low & _HALF
        b1, b0 = other.low >> 16, other.low & _HALF
        # schoolbook multiplication with 16-bit digits, so that no sum below exceeds 2**32
        middle = a1 * b0 + ((a0 * b0) >> 16)
        inner = a0 * b1 + (middle & _HALF)
        upper = a1 * b1 + (middle >> 16) + (inner >> 16)
        cross = self.high * other.low + self.low * other.high
        return Wide(upper + cross, self.low * other.low)

    def __xor__(self, other: Any) -> Wide:
        other = self._wide(other)
        return Wide(self.high ^ other.high, self.low ^ other.low)

    def __or__(self, other: Any) -> Wide:
        other = self._wide(other)
        return Wide(self.high | other.high, self.low | other.low)

    def __lshift__(self, places: int) -> Wide:
        if places >= 32:
            return Wide(self.low << (places - 32), jnp.zeros_like(self.low))
        return Wide((self.high << places) | (self.low >> (32 - places)), self.low << places)

    def __rshift__(self, places: int) -> Wide:
        if places >= 32:
            return Wide(jnp.zeros_like(self.high), self.high >> (places - 32))
        return Wide(self.high >> places, (self.low >> places) | (self.high << (32 - places)))

    def remainder(self, divisor: int) -> jax.Array:
        """Returns the remainder of division by an integer below 2**31, as int32."""
        rest = self.high % divisor
        # long division; each step takes as many bits as fit into 32 bits beside the remainder
        width = 32 - divisor.bit_length()
        for place in range(32, 0, -width):
            bits = min(width, place)
            part = (self.low >> (place - bits)) & ((1 << bits) - 1)
            rest = ((rest << bits) | part) % divisor
        return rest.astype("int32")
