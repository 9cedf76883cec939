"""Attention beside a cache of keys and values: writing new tokens, and finding the segments of rows.

Each slot of a cache holds the position of its token, -1 where the slot is empty. Masks compare
positions, so the order of the slots has no meaning.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def write(cache: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
    """Returns the cache (b, S, ...) with `new` (b, t, ...) at the slots (b, t) of each row.

    A slot beyond the last is not written. Slots must not be negative: an index counts from the end.

    Example:
        >>> import jax.numpy as jnp
        >>> write(jnp.zeros((1, 3)), jnp.array([[1.0, 2.0]]), jnp.array([[2, 3]]))
        Array([[0., 0., 1.]], dtype=float32)
    """
    rows = jnp.arange(cache.shape[0])[:, None]
    return cache.at[rows, slots].set(new.astype(cache.dtype), mode="drop")


def slots_of(positions: jax.Array, size: int, ring: bool) -> jax.Array:
    """Returns the slot of each position; `size`, outside of the cache, where a token is not stored.

    In a ring only the last `size` positions of a row are stored.

    Example:
        >>> import jax.numpy as jnp
        >>> slots_of(jnp.array([[-1, 3, 4, 5]]), 2, True)
        Array([[2, 2, 0, 1]], dtype=int32)
    """
    if not ring:
        return jnp.where((positions >= 0) & (positions < size), positions, size)
    last = jnp.max(positions, axis=1, keepdims=True)
    return jnp.where((positions >= 0) & (positions > last - size), positions % size, size)


def quantized(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns int8 codes of `x` and float32 scales, one for each vector along the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> codes, scales = quantized(jnp.array([[2.54, -1.27]]))
        >>> codes, scales
        (Array([[127, -64]], dtype=int8), Array([0.02], dtype=float32))
    """
    wide = x.astype("float32")
    scales = jnp.max(jnp.abs(wide), axis=-1) / 127
    codes = jnp.round(wide / jnp.where(scales == 0, 1.0, scales)[..., None])
    return codes.astype("int8"), scales


def row_segments(positions: jax.Array) -> jax.Array:
    """Returns the number of the segment of each token, where several texts are packed in one row.

    Positions of one text grow, so a text begins where a position is not greater than the position
    before. Tokens at position -1 are padding: they begin no text.

    Args:
        positions: integers (b, t).

    Example:
        >>> import jax.numpy as jnp
        >>> row_segments(jnp.array([[0, 1, 0, -1, 1, 0]]))
        Array([[0, 0, 1, 1, 1, 2]], dtype=int32)
    """
    steps = jnp.arange(positions.shape[1])
    present = positions >= 0
    # the index of the last token that is no padding, up to and before each step
    last = jax.lax.cummax(jnp.where(present, steps, -1), axis=1)
    before = jnp.concatenate([jnp.full_like(last[:, :1], -1), last[:, :-1]], axis=1)
    earlier = jnp.take_along_axis(positions, jnp.maximum(before, 0), axis=1)
    begins = present & (before >= 0) & (positions <= earlier)
    return jnp.cumsum(begins, axis=1)
