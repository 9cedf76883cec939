"""Field converters for ranges of random draws."""

from __future__ import annotations

import jax
import numpy as np

from fkeras.layers.common import authoring as fk

_SEVERAL = (tuple, list, np.ndarray)


def factor_range(
    low: float, high: float, *, above: bool = False, optional: bool = False
) -> fk.Rule:
    """Returns a rule for (lower, upper): two numbers, or a single f, which means (-f, f).

    If -f is less than `low`, the single number means (low, f).

    Args:
        above: whether to reject `low` itself.
        optional: whether to accept None, which stays None.
    """
    item = fk.real(above=low, maximum=high) if above else fk.real(minimum=low, maximum=high)

    def parse(value: fk.Field) -> fk.Field:
        if item.accepts(value):
            size = abs(fk.scalar(value))
            return max(-size, low), size
        numbers = [fk.scalar(v) for v in value] if isinstance(value, _SEVERAL) else []
        return (
            tuple(sorted(numbers))
            if len(numbers) == 2 and all(map(item.accepts, numbers))
            else fk.REJECTED
        )

    words = f"{item.expected}, or a pair (lower, upper)"
    hint = "Factors are fractions, not percentages: 0.2 is one fifth."
    return fk.Rule("range", words, parse, optional=optional, limits=(item,), hint=hint)


def uniform(key: jax.Array, shape: tuple[int, ...], ends: tuple[float, float]) -> jax.Array:
    """Draws uniformly between the ends of a range, in float32.

    Example:
        >>> import jax
        >>> uniform(jax.random.key(0), (2,), (3.0, 3.0))
        Array([3., 3.], dtype=float32)
    """
    return jax.random.uniform(key, shape, "float32", *ends)


def applied(key: jax.Array, batch: int, chance: tuple[float, float]) -> jax.Array:
    """Draws which images of a batch to change; each image draws its own probability first."""
    # each image has its own probability, so the batch needs two independent draws
    chances, threshold = jax.random.split(key)
    return uniform(threshold, (batch,), (0.0, 1.0)) < uniform(chances, (batch,), chance)
