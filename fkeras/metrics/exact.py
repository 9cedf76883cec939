"""Compensated sums: two numbers per sum, exact far beyond 2**24, the limit of float32.

A state holds each sum under its name, and the part that the dtype cannot hold under a second name:

| sums | `state["name"]` | `state["name__rest"]` | exact up to |
|---|---|---|---|
| of floats | the rounded sum | sum - rounded sum | 2**48 in float32 |
| of weights, a scalar | integer part, int32 | fraction, a float | 2**31 |
| of integers | the lowest bits, 30 of int32 | number of carries, an integer | 2**60 in int32 |

All functions compute element by element, so states can be vmapped, sharded and merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

State = dict[str, jax.Array]
Pair = tuple[jax.Array, Any]

# two underscores, so that the names of users' sums do not clash
_REST = "__rest"
# up to this size a plain float32 sum of ones is exact
_PLAIN_SIZE = 1 << 20
_CHUNK_SIZE = 1 << 10


def zeros(names: Iterable[str], shape: tuple[int, ...], dtype: DTypeLike | None) -> State:
    """Returns the initial state of sums of floats or integers, as `dtype` selects.

    Example:
        >>> sorted(zeros(["total"], (), "float32"))
        ['total', 'total__rest']
    """
    state = {}
    for name in names:
        state[name] = jnp.zeros(shape, dtype)
        state[name + _REST] = jnp.zeros(shape, dtype)
    return state


def counts(names: Iterable[str], dtype: DTypeLike | None) -> State:
    """Returns the initial state of sums of weights: integer parts in int32, fractions in `dtype`."""
    state = {}
    for name in names:
        state[name], state[name + _REST] = jnp.zeros((), "int32"), jnp.zeros((), dtype)
    return state


def plain(state: State) -> State:
    """Returns an initial state without the rests of float sums, for the sums of one batch.

    Example:
        >>> sorted(plain(zeros(["total"], (), "float32") | counts(["count"], "float32")))
        ['count', 'count__rest', 'total']
    """
    pairs = [name for name in state if name + _REST in state]
    float_sums = [name for name in pairs if not _is_integer(state[name])]
    # a NumPy array is known to be 0 while the program is traced: `merge` then adds the counts alone
    rests: dict[str, Any] = {
        name + _REST: np.zeros((), state[name + _REST].dtype)
        for name in pairs
        if _is_integer(state[name]) and not _is_integer(state[name + _REST])
    }
    dropped = {name + _REST for name in float_sums}
    return {name: array for name, array in state.items() if name not in dropped} | rests


def add(state: State, parts: Mapping[str, Any]) -> State:
    """Returns the state after adding a number to each sum; a sum without a rest is a plain sum.

    Args:
        parts: numbers by the name of the sum: an integer, an array of the sum's shape, or a pair
            (rounded sum, rest).

    Example:
        >>> state = zeros(["total"], (), "float32")
        >>> for part in (2.0**24, 1.0, 1.0, 1.0):
        ...     state = add(state, {"total": jnp.float32(part)})
        >>> int(state["total"]) + int(state["total__rest"])
        16777219
    """
    new_state = dict(state)
    for name, part in parts.items():
        rest = state.get(name + _REST)
        if rest is None:
            part = jnp.asarray(part[0] if isinstance(part, tuple) else part)
            new_state[name] = state[name] + part.astype(state[name].dtype)
        else:
            new_state[name], new_state[name + _REST] = _add_pairs((state[name], rest), part)
    return new_state


def merge(a: State, b: State) -> State:
    """Adds the sums of two states."""
    # a state from `plain` has no rests: its sums are added to the pairs of the other state
    names = [name for name in a if name + _REST in a or name + _REST in b]
    rest_names = {name + _REST for name in names}
    merged = {
        name: jax.tree.map(jnp.add, a[name], b[name])
        for name in a
        if name not in names and name not in rest_names
    }
    for name in names:
        first, second = (a, b) if name + _REST in a else (b, a)
        rest = second.get(name + _REST)
        part = second[name] if rest is None else (second[name], rest)
        merged[name], merged[name + _REST] = _add_pairs((first[name], first[name + _REST]), part)
    return merged


def as_float(state: State, name: str) -> jax.Array:
    """Returns a sum rounded to one float."""
    value, rest = state[name], state.get(name + _REST)
    if not _is_integer(value):
        return value
    if rest is None:
        return value.astype("float32")
    if _is_integer(rest):
        return value.astype("float32") + rest.astype("float32") * 2.0 ** _bits(value.dtype)
    return value.astype(rest.dtype) + rest


def total(x: jax.Array) -> Pair:
    """Returns the sum of all elements as a pair (rounded sum, rest); the rest of small arrays is None.

    Example:
        >>> [float(part) for part in total(jnp.ones(2**20 + 1))]
        [1048577.0, 0.0]
        >>> total(jnp.ones(3))
        (Array(3., dtype=float32), None)
    """
    size = x.size
    # `jax.export` has symbolic batch sizes, which cannot be compared with a number: a plain sum
    if not isinstance(size, int) or size <= _PLAIN_SIZE:
        return jnp.sum(x), None
    x = jnp.ravel(x)
    # plain sums of short rows are exact for ones; the sums of rows are then added in pairs
    sums = jnp.sum(jnp.pad(x, (0, -x.size % _CHUNK_SIZE)).reshape(-1, _CHUNK_SIZE), axis=1)
    errors = jnp.zeros_like(sums)
    while sums.size > 1:
        sums, errors = (jnp.pad(y, (0, y.size % 2)).reshape(2, -1) for y in (sums, errors))
        sums, errors = _add_pairs((sums[0], errors[0]), (sums[1], errors[1]))
    return sums[0], errors[0]


def chunks(*arrays: jax.Array, max_size: int = 1 << 23) -> Iterator[tuple[jax.Array, ...]]:
    """Yields chunks of rows that are small enough for exact float32 sums of ones.

    Example:
        >>> [part.shape for part, in chunks(jnp.ones((5, 2)), max_size=4)]
        [(2, 2), (2, 2), (1, 2)]
    """
    first = arrays[0]
    if first.ndim == 0 or first.size <= max_size:
        yield arrays
        return
    rows = max(max_size // max(first.size // len(first), 1), 1)
    for start in range(0, len(first), rows):
        yield tuple(array[start : start + rows] for array in arrays)


def _split_integer(number: int | jax.Array, dtype: DTypeLike) -> Pair:
    """Splits an integer into a pair of floats (rounded integer, rest), for sums of floats.

    Example:
        >>> [float(part) for part in _split_integer(2**24 + 1, "float32")]
        [16777216.0, 1.0]
    """
    if isinstance(number, int):
        # computed on the host: the compiled program contains two constants
        rounded = np.asarray(number, dtype)
        rest = np.asarray(number - int(rounded), dtype)
        return jnp.asarray(rounded), jnp.asarray(rest)
    high = number.astype(dtype)
    return high, (number - high.astype(number.dtype)).astype(dtype)


def _bits(dtype: DTypeLike) -> int:
    # one bit for the sign, one for the carry of an addition
    return jnp.iinfo(dtype).bits - 2


def _is_integer(array: int | jax.Array | np.ndarray) -> bool:
    return isinstance(array, int) or jnp.issubdtype(array.dtype, jnp.integer)


def _add_pairs(a: Pair, b: Any) -> Pair:
    """Adds an integer, an array or a pair to a pair, as the dtypes of the pair require."""
    if _is_integer(a[0]):
        return _add_to_integer(a, b) if _is_integer(a[1]) else _add_to_fraction(a, b)
    if not isinstance(b, tuple) and _is_integer(b):
        b = _split_integer(b, a[0].dtype)
    return _add_to_float(a, b)


def _add_to_integer(a: Pair, b: Any) -> Pair:
    (low, high), (addend, carry) = a, b if isinstance(b, tuple) else (b, 0)
    bits = _bits(low.dtype)
    mask = jnp.asarray((1 << bits) - 1, low.dtype)
    addend = jnp.asarray(addend).astype(low.dtype)
    # split the addend first, so that the addition of the low bits cannot overflow
    low_sum = low + (addend & mask)
    return low_sum & mask, high + carry + (low_sum >> bits) + (addend >> bits)


def _add_to_fraction(a: Pair, b: Any) -> Pair:
    number, fraction = a
    addend, rest = b if isinstance(b, tuple) else (b, None)
    if not _is_integer(addend):
        floor = jnp.floor(addend)
        rest = addend - floor if rest is None else addend - floor + rest
        addend = floor
    number = number + jnp.asarray(addend).astype(number.dtype)
    if rest is None or (isinstance(rest, np.ndarray) and not rest.any()):
        return number, fraction
    fraction = fraction + rest.astype(fraction.dtype)
    # move the integer part out of the fraction: below 1 floats are most precise
    carry = jnp.floor(fraction)
    return number + carry.astype(number.dtype), fraction - carry


def _add_to_float(a: Pair, b: Any) -> Pair:
    (high, low), (addend, rest) = a, b if isinstance(b, tuple) else (b, None)
    addend = addend.astype(high.dtype)
    if rest is None:
        # add the previous rounding error to the next part: cheaper than a sum of two pairs
        return _two_sum(high, addend + low)
    high_sum, error = _two_sum(high, addend)
    return _two_sum(high_sum, error + (low + rest.astype(high.dtype)))


def _two_sum(a: jax.Array, b: jax.Array) -> Pair:
    """Returns the rounded sum and its rounding error (Dekker's fast two-sum)."""
    # the error is exact only if the larger operand is subtracted first
    a_is_larger = jnp.abs(a) >= jnp.abs(b)
    large, small = jnp.where(a_is_larger, a, b), jnp.where(a_is_larger, b, a)
    rounded_sum = a + b
    error = small - (rounded_sum - large)
    # infinity - infinity is NaN, not a rounding error
    return rounded_sum, jnp.where(jnp.isfinite(error), error, 0)
