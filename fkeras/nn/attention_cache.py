"""Attention beside a cache of keys and values: writing new tokens, and finding the segments of rows.

Each slot of a cache holds the position of its token, -1 where the slot is empty. Masks compare
positions, so the order of the slots has no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp


def write(
    cache: Mapping[str, jax.Array], entries: Mapping[str, jax.Array], ring: bool
) -> dict[str, jax.Array]:
    """Returns the cache (b, S, ...) with the tokens of `entries` (b, t, ...) at the slots of their positions.

    A single token of a single row is written as a slice, which accelerators do in place; as many tokens as
    slots, in the prefill of a prompt, by a gather; other tokens by a scatter.
    """
    size = cache["positions"].shape[1]
    slots = slots_of(entries["positions"], size, ring)
    # False for symbolic sizes
    if slots.shape == (1, 1):
        store = _write_token
    elif slots.shape[1] == size:
        # XLA computes the tokens of equal slots once for all layers
        slots, store = _tokens_of(slots), _write_all
    else:
        store = _write_tokens
    return {n: store(cache[n], new.astype(cache[n].dtype), slots) for n, new in entries.items()}


def _write_tokens(cache: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
    """Writes tokens at the slots (b, t); a slot beyond the last is not written."""
    return cache.at[jnp.arange(slots.shape[0])[:, None], slots].set(new, mode="drop")


def _tokens_of(slots: jax.Array) -> jax.Array:
    """Returns the number of the token of each slot (b, s), -1 for a slot without a token."""
    steps = jnp.broadcast_to(jnp.arange(slots.shape[1]), slots.shape)
    return _write_tokens(jnp.full_like(steps, -1), steps, slots)


def _write_all(cache: jax.Array, new: jax.Array, tokens: jax.Array) -> jax.Array:
    """Writes tokens by their numbers (b, s); a slot of number -1 keeps its token."""
    tokens = tokens.reshape(*tokens.shape, *[1] * (cache.ndim - 2))
    taken = jnp.take_along_axis(new, jnp.maximum(tokens, 0), axis=1, mode="clip")
    return jnp.where(tokens >= 0, taken, cache)


def _write_token(cache: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
    """Writes the token of a single row."""
    slot = slots[0, 0]
    # slices clamp a slot beyond the last to the last slot, which keeps its token
    old = jax.lax.dynamic_slice_in_dim(cache, slot, 1, 1)
    new = jnp.where(slot < cache.shape[1], new, old)
    return jax.lax.dynamic_update_slice_in_dim(cache, new, slot, 1)


def slots_of(positions: jax.Array, size: int, ring: bool) -> jax.Array:
    """Returns the slot of each position; `size`, outside of the cache, where a token is not stored.

    In a ring only the last `size` positions of a row are stored.
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


def row_segments(positions: jax.Array, chunk: int | None = None) -> jax.Array:
    """Returns the number of the segment of each token, where several texts are packed in one row.

    Positions of one text grow, so a text begins where a position is not greater than the position
    before. Tokens at position -1 are padding: they begin no text.

    Args:
        positions: integers (b, t).
        chunk: number of positions of a chunk, as in `fk.masks.Chunk`; each chunk of a text then counts as a segment.
            None to count texts alone.
    """
    steps = jnp.arange(positions.shape[1])
    present = positions >= 0
    # the index of the last token that is no padding, up to and before each step
    last = jax.lax.cummax(jnp.where(present, steps, -1), axis=1)
    before = jnp.concatenate([jnp.full_like(last[:, :1], -1), last[:, :-1]], axis=1)
    earlier = jnp.take_along_axis(positions, jnp.maximum(before, 0), axis=1)
    begins = positions <= earlier
    if chunk is not None:
        begins = begins | (positions // chunk != earlier // chunk)
    return jnp.cumsum(present & (before >= 0) & begins, axis=1)
