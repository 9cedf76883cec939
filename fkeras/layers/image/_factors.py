"""Ranges to draw from, as converters of the fields of random layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def factor_range(
    argument: str, low: float, high: float, *, above: bool = False, optional: bool = False
) -> Callable[[Any], tuple[float, float] | None]:
    """A converter to (lower, upper), out of two numbers or out of one f, which is (-f, f).

    Where `low` forbids -f it is (low, f).

    Args:
        argument: its name in the message.
        low: the least that a number may be.
        high: the most that a number may be.
        above: whether `low` itself is too little.
        optional: whether None is allowed, and stays None.

    Example:
        >>> factor_range("RandomRotation: factor", -1, 1)(0.2)
        (-0.2, 0.2)
        >>> factor_range("RandomPerspective: factor", 0, 1)(0.5)
        (0, 0.5)
    """

    def convert(value: Any) -> tuple[float, float] | None:
        if value is None and optional:
            return None
        several = isinstance(value, tuple | list | np.ndarray)
        numbers = tuple(value) if several else (value,)
        numbers = tuple(v.item() if isinstance(v, np.number) else v for v in numbers)
        good = len(numbers) == (2 if several else 1) and all(map(_is_number, numbers))
        if not good or not all((low < v if above else low <= v) and v <= high for v in numbers):
            ends = f"above {low} and up to {high}" if above else f"from {low} to {high}"
            raise ValueError(
                f"{argument}: expected a number {ends}, or two of them (lower, upper), received "
                f"{value!r}. They are shares, not percentages: 0.2 is one fifth."
            )
        if several:
            return tuple(sorted(numbers))
        size = abs(numbers[0])
        return max(-size, low), size

    return convert


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def uniform(key: jax.Array, shape: tuple[int, ...], ends: tuple[float, float]) -> jax.Array:
    """Draws evenly between the ends of a range, in float32.

    Example:
        >>> import jax
        >>> uniform(jax.random.key(0), (2,), (3.0, 3.0))
        Array([3., 3.], dtype=float32)
    """
    return jax.random.uniform(key, shape, "float32", *ends)


def applied(key: jax.Array, batch: int, chance: tuple[float, float]) -> jax.Array:
    """Which images of a batch are to be changed: each draws its chance from a range first.

    Example:
        >>> import jax
        >>> applied(jax.random.key(0), 3, (1.0, 1.0))
        Array([ True,  True,  True], dtype=bool)
    """
    chances, threshold = jax.random.split(key)
    return uniform(threshold, (batch,), (0.0, 1.0)) < uniform(chances, (batch,), chance)
