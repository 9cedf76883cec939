"""Arithmetic of step numbers for schedules, exact for integer steps beyond 2**24.

A step is an integer, or a float where the caller passed one. Integers are compared, divided and
subtracted as integers, and only the result becomes a float.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.values.argument_types import Number

# the maximum length of a table of periods; longer ones use a formula in float32
_MOST_WAVES = 1024
_LARGEST = np.iinfo("int32").max


def as_step(step: Number) -> jax.Array:
    """Converts a step to an integer array, or to float32 if it is a float or too large for int32."""
    if isinstance(step, int | np.integer) and not -_LARGEST <= int(step) <= _LARGEST:
        return jnp.asarray(float(step), "float32")
    step = jnp.asarray(step)
    is_signed = jnp.issubdtype(step.dtype, jnp.signedinteger) and step.dtype.itemsize >= 4
    if is_signed:
        return step
    is_integer = jnp.issubdtype(step.dtype, jnp.integer)
    return step.astype("int32" if is_integer and step.dtype.itemsize < 4 else "float32")


def _whole(step: jax.Array, number: float) -> int | None:
    """Returns the number as an integer if the step's dtype is an integer dtype that holds it."""
    exact = jnp.issubdtype(step.dtype, jnp.integer) and float(number).is_integer()
    return int(number) if exact and abs(number) <= jnp.iinfo(step.dtype).max else None


def periods(step: jax.Array, length: float) -> tuple[jax.Array, jax.Array]:
    """Returns the number of completed periods, as a float, and the completed share of the next one."""
    integer_length = _whole(step, length)
    if integer_length is None:
        # JAX takes no Python integer beyond int32
        part = step.astype("float32") / float(length)
        return jnp.floor(part), part - jnp.floor(part)
    # integer division and remainder are exact; the remainder is a small number in most cases
    number = step // integer_length
    return number.astype("float32"), (step - number * integer_length).astype(
        "float32"
    ) / integer_length


def remaining(step: jax.Array, length: float) -> jax.Array:
    """Returns the remaining share of `length` steps: from 1 down to 0.

    Example:
        >>> float(remaining(as_step(2**25 - 1), 2**25))
        2.9802322387695312e-08
    """
    integer_length = _whole(step, length)
    if integer_length is None:
        return 1.0 - jnp.minimum(step.astype("float32"), float(length)) / float(length)
    return (integer_length - jnp.minimum(step, integer_length)).astype("float32") / integer_length


def minus(step: jax.Array, number: float) -> jax.Array:
    """Returns the difference step - number as float32."""
    integer = _whole(step, number)
    if integer is None:
        return step.astype("float32") - float(number)
    return (step - integer).astype("float32")


def passed(step: jax.Array, boundaries: Sequence[float], reached: bool = False) -> jax.Array:
    """Returns the number of boundaries below the step, as int32.

    Args:
        reached: whether to count boundaries equal to the step.
    """
    if jnp.issubdtype(step.dtype, jnp.integer):
        limits = jnp.iinfo(step.dtype)
        rounded_boundaries = [
            _rounded(float(b), limits.min, limits.max, reached) for b in boundaries
        ]
        boundaries = [b for b in rounded_boundaries if b is not None]
    compare = jnp.greater_equal if reached else jnp.greater
    row = jnp.asarray(tuple(boundaries), step.dtype).reshape((1,) * step.ndim + (-1,))
    return jnp.sum(compare(step[..., None], row), axis=-1, dtype="int32")


def _rounded(boundary: float, least: int, most: int, reached: bool) -> int | None:
    """Returns an integer with the same comparisons as a boundary; None if no step passes it."""
    if math.isnan(boundary) or boundary > most or (boundary == most and not reached):
        return None
    if boundary < least:
        return least
    # for integer steps: step > b is step > floor(b), and step >= b is step >= ceil(b)
    return math.ceil(boundary) if reached else math.floor(boundary)


def wave_starts(first: float, factor: float) -> tuple[float, ...] | None:
    """Returns the first steps of periods, each `factor` times as long as the one before.

    The table covers all int32 steps.

    Returns:
        Ascending numbers that begin with 0, or None if the factor is at most 1 or the table would
        be too long.
    """
    if not factor > 1.0:
        return None
    starts: list[float] = []
    start, length = 0.0, float(first)
    while start <= _LARGEST:
        if len(starts) == _MOST_WAVES:
            return None
        # 10 * (1 + 1.1) is 21.000000000000004 in floating point, and the period starts at step 21
        rounded_start = float(round(start))
        starts.append(
            rounded_start if abs(start - rounded_start) <= 1e-9 * max(start, 1.0) else start
        )
        start, length = start + length, length * factor
    return tuple(starts)
