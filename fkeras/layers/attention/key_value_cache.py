"""The cache of keys and values of an attention layer, as the layer's state.

The entries are keys, values and their positions, with a slot for each token; 8-bit caches also hold
scales. A slot without a token has position -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn import attention_cache
from fkeras.nn.numerics.axes import format_shape


def empty_cache(
    batch: int, slots: int, key: fk.Spec, value: fk.Spec, dtype: Any
) -> dict[str, jax.Array]:
    """Returns a cache without tokens, for specs (b, t, heads, d); the dtype "int8" adds scales."""
    shapes = [(batch, slots, *spec.shape[2:]) for spec in (key, value)]
    cache = {n: jnp.zeros(s, dtype) for n, s in zip(("keys", "values"), shapes, strict=True)}
    if dtype == "int8":
        for name, shape in zip(("key_scales", "value_scales"), shapes, strict=True):
            cache[name] = jnp.zeros(shape[:3], "float32")
    return {**cache, "positions": jnp.full((batch, slots), -1, "int32")}


def check_cache(
    where: str, cache: Mapping[str, Any], key: jax.Array, value: jax.Array, is_int8: bool
) -> None:
    """Raises FKerasError for a cache with other entries, or for other rows or heads."""
    names = {"keys", "values", "positions"}
    names |= {"key_scales", "value_scales"} if is_int8 else set()
    if {*cache} != names:
        raise fk.FKerasError(
            f"{where}: expected a cache with the entries {', '.join(sorted(names))}, received "
            f"{', '.join(sorted(cache))}. Make the state with init_cache(batch, length) of this model."
        )
    for name, x in (("keys", key), ("values", value)):
        shape = cache[name].shape
        if shape[0] != x.shape[0] or shape[2:] != tuple(x.shape[2:]):
            raise fk.FKerasError(
                f"{where}: expected {name} for the cache of shape {format_shape(shape)}, received "
                f"{format_shape(x.shape)}. Make a state for this batch: init_cache({x.shape[0]}, length)."
            )


def write_tokens(
    cache: Mapping[str, Any],
    key: jax.Array,
    value: jax.Array,
    positions: jax.Array,
    ring_size: float,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the cache with the tokens of a call, and the entries to which the call attends.

    The two differ where the last tokens of the call overwrite tokens of a ring that its first query
    attends to. `ring_size` is the smallest number of slots of a ring; infinite if there is no ring.
    """
    size = cache["positions"].shape[1]
    is_ring = size >= ring_size
    entries = _entries(cache, key, value, positions)
    new = attention_cache.write(cache, entries, is_ring)
    if not is_ring or key.shape[1] - 1 <= size - ring_size:
        return new, new
    # attend to the old slots and the new tokens; slots from the first new position on hold tokens that
    # were rolled back
    present = jnp.where(positions >= 0, positions, jnp.iinfo(positions.dtype).max)
    first = jnp.min(present, axis=1, keepdims=True)
    old = {**cache, "positions": jnp.where(cache["positions"] < first, cache["positions"], -1)}
    attended = {
        name: jnp.concatenate([entry, entries[name].astype(entry.dtype)], axis=1)
        for name, entry in old.items()
    }
    return new, attended


def _entries(
    cache: Mapping[str, Any], key: jax.Array, value: jax.Array, positions: jax.Array
) -> dict[str, jax.Array]:
    """Returns tokens as entries of a cache."""
    entries = {"keys": key, "values": value, "positions": positions}
    if "key_scales" in cache:
        entries["keys"], entries["key_scales"] = attention_cache.quantized(key)
        entries["values"], entries["value_scales"] = attention_cache.quantized(value)
    return entries


def read_tokens(cache: Mapping[str, Any], dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Returns the keys and values of a cache in a dtype."""
    keys, values = (cache[name].astype(dtype) for name in ("keys", "values"))
    if "key_scales" not in cache:
        return keys, values
    scales = [cache[name].astype(dtype)[..., None] for name in ("key_scales", "value_scales")]
    return keys * scales[0], values * scales[1]
