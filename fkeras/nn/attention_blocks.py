"""Attention by blocks of queries: memory that grows with the length, not with its square.

Each block of queries attends to the keys within its band, and the gradient computes a block again instead of
keeping the scores. Masks are computed for the queries of a block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

#: `take(x, axis)` returns the part of an array that belongs to the queries of a block
Take = Callable[[jax.Array, int], jax.Array]
#: `attend(take, keys, query, bias)` returns the result of a block of queries, which attend to some keys
Block = Callable[[Take, slice, jax.Array, jax.Array | None], jax.Array]

#: the number of keys before and after a query that the query may attend to
Band = tuple[float, float]
ALL: Band = (math.inf, math.inf)

#: number of queries of a block: the axis of a matrix unit
_ROWS = 128
# number of parts of the queries; each part has its own keys and its own loop in the program
_PARTS = 4
# scores of a head from which memory counts more than the time of a second forward pass
_LONG = 2048 * 2048


def whole(x: jax.Array, axis: int) -> jax.Array:
    """Returns `x`: the part of an array that belongs to all queries."""
    return x


def is_long(queries: Any, keys: Any) -> bool:
    """Returns whether attention between so many queries and keys is computed by blocks."""
    known = isinstance(queries, int) and isinstance(keys, int)
    return known and queries > _ROWS and queries * keys >= _LONG


def by_blocks(
    attend: Block,
    query: jax.Array,
    keys: Any,
    bias: jax.Array | None = None,
    band: Band = ALL,
) -> jax.Array:
    """Computes attention for one block of queries after the other.

    Args:
        attend: computes the result (b, n, heads, f) of a block from `take`, the keys to which the block
            attends, the block of the query and that of the bias. An array with one entry for each query,
            such as a mask, goes through `take`.
        query: array of shape (b, t, heads, d).
        keys: the number of keys.
        bias: array of shape (b or 1, heads or 1, t or 1, s), or None.
        band: the number of earlier and of later indices of keys to which a query may attend. Four parts of
            the queries have their own keys, so that causal attention computes 5/8 of all pairs.

    Returns:
        An array of shape (b, t, heads, f).
    """
    length = query.shape[1]
    known = isinstance(length, int) and isinstance(keys, int)
    if band == ALL or not known or not length * keys:
        parts = _part(attend, query, bias, slice(0, length), slice(None))
    else:
        before, after = band
        size, parts = _ROWS * max(1, -(-length // (_PARTS * _ROWS))), []
        for start in range(0, length, size):
            stop = min(start + size, length)
            first = int(min(max(0, start - before), keys - 1))
            last = int(max(first + 1, min(stop + after, keys)))
            parts += _part(attend, query, bias, slice(start, stop), slice(first, last))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)


def _part(
    attend: Block,
    query: jax.Array,
    bias: jax.Array | None,
    queries: slice,
    keys: slice,
) -> list[jax.Array]:
    """Returns the results of one part of the queries: those of equal blocks, and those of the rest."""
    number, rest = divmod(queries.stop - queries.start, _ROWS)
    middle = queries.start + number * _ROWS
    # a bias for each query is split like the query: the gradient of a slice is as large as the whole
    rows = bias if bias is not None and bias.shape[2] != 1 else None
    constant = bias if rows is None else None

    def block(start: Any, query: jax.Array, rows: jax.Array | None) -> jax.Array:
        def take(x: jax.Array, axis: int) -> jax.Array:
            if x.shape[axis] == 1:
                return x
            return jax.lax.dynamic_slice_in_dim(x, start, query.shape[1], axis)

        return attend(take, keys, query, constant if rows is None else rows)

    def split(x: jax.Array | None, axis: int) -> jax.Array | None:
        if x is None:
            return None
        x = jax.lax.slice_in_dim(x, queries.start, middle, axis=axis)
        return jnp.moveaxis(
            x.reshape(*x.shape[:axis], number, _ROWS, *x.shape[axis + 1 :]), axis, 0
        )

    parts = []
    if number:
        again = jax.checkpoint(lambda args: block(*args), prevent_cse=False)
        starts = queries.start + _ROWS * jnp.arange(number, dtype="int32")
        y = jnp.moveaxis(jax.lax.map(again, (starts, split(query, 1), split(rows, 2))), 0, 1)
        parts.append(y.reshape(y.shape[0], number * _ROWS, *y.shape[3:]))
    if rest or not number:
        again = jax.checkpoint(functools.partial(block, middle))
        last = slice(middle, queries.stop)
        parts.append(again(query[:, last], None if rows is None else rows[:, :, last]))
    return parts
