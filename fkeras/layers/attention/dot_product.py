"""`DotProductAttention`: attention of projected heads, with masks of positions and a cache as state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.attention.score_masks import as_booleans, score_mask
from fkeras.layers.common import authoring as fk
from fkeras.layers.common.arguments import seeded_key
from fkeras.masks import Mask, check_static
from fkeras.nn import attention_cache
from fkeras.nn.attention import attend, attend_with_weights, both
from fkeras.nn.noise import dropout


class DotProductAttention(fk.Layer):
    """Computes `softmax(scale * query @ key) @ value` for each head; has no weights.

    The layer is the middle of an attention block: `EinsumDense` layers before it project to heads,
    an `EinsumDense` after it projects back.

    Masks compare the `positions` of tokens. Without a cache, a position that is not greater than the
    position before begins another text of the row, and texts do not see each other.

    `init_state(batch, length, query, key, value, positions)`, or `init_state(batch, length)` of a model,
    makes a cache: keys, values and their positions. A call with the cache adds its tokens to the cache
    and attends to all tokens of the cache; `updates` holds the next cache. Tokens at position -1 are
    padding, which is not stored. A mask with a window, such as `Causal() & Window(512)`, needs a ring
    of `512 + slack` slots only. A query beyond the end of a full cache gives NaN in a compiled program.

    A query that attends to no key gives 0, with gradient 0.

    Args:
        mask: a mask of `fk.masks`, such as `fk.masks.Causal()`; None for all keys.
        scale: factor of the scores; None for 1 / sqrt(d).
        soft_cap: bound c of the scores, which become `c * tanh(scores / c)`; None for none.
        dropout: probability of dropping an attention weight in training.
        cache: "int8" to store keys and values as 8-bit codes with a scale for each head and token;
            None for the compute dtype.
        seed: folded into the key of each call; None uses the key alone.

    Call:
        positions: integers (b, t), -1 at padding, usually from `fk.layers.Positions`. None counts from
            0, and makes no cache: for encoders and cross-attention.
        bias: array that broadcasts to (b, heads, t, s), added to the scores. Beside a cache the last
            axis counts positions.
        attention_mask: a mask of `fk.masks`, which may hold arrays, or a Boolean array (t, s),
            (b, t, s) or (b, heads, t, s).

    Shapes:
        query (b, t, h, d), key (b, s, g, d), value (b, s, g, f) -> (b, t, h, f); h is a multiple of g,
        and h / g adjacent heads share one key head.

    Raises:
        ValueError: for arrays that do not have four axes, heads that do not form equal groups,
            positions of another shape; in training with dropout and without a key.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x, positions = jnp.ones((2, 5, 4, 8)), jnp.broadcast_to(jnp.arange(5), (2, 5))
        >>> attention = fk.layers.DotProductAttention(fk.masks.Causal())
        >>> state = attention.init_state(2, 16, x, x, x, positions)
        >>> out = attention.apply(x, x, x, positions, state=state)
        >>> out.value.shape, out.updates["keys"].shape
        ((2, 5, 4, 8), (2, 16, 4, 8))
    """

    mask: Mask | None = fk.option(default=None, convert=check_static)
    scale: fk.OptionalReal = fk.option(default=None, convert=fk.real(optional=True))
    soft_cap: fk.OptionalReal = fk.option(default=None, convert=fk.real(above=0, optional=True))
    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    cache: str | None = fk.option(default=None, convert=fk.choice("int8", optional=True))
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    supports_masking: ClassVar[bool] = True

    def init_cache(self, size: fk.CacheSize, *specs: fk.Tree) -> dict[str, Any]:
        if len(specs) < 4 or specs[3] is None:
            return {}
        _, key, value = specs[:3]
        slots = self._slots(size)
        lead = size.batch, slots
        dtype = "int8" if self.cache == "int8" else self.policy.compute_dtype
        state = {
            "keys": jnp.zeros((*lead, *key.shape[2:]), dtype),
            "values": jnp.zeros((*lead, *value.shape[2:]), dtype),
            "positions": jnp.full(lead, -1, "int32"),
        }
        if self.cache == "int8":
            state["key_scales"] = jnp.zeros((*lead, key.shape[2]), "float32")
            state["value_scales"] = jnp.zeros((*lead, value.shape[2]), "float32")
        return state

    def _window(self) -> float:
        """Returns the number of slots that a ring needs; infinite without a ring."""
        before, after = (math.inf, math.inf) if self.mask is None else self.mask.reach
        return before + 1 if after == 0 else math.inf

    def _slots(self, size: fk.CacheSize) -> int:
        return int(min(size.length, self._window() + size.slack))

    def forward(
        self,
        context: fk.Context,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        positions: jax.Array | None = None,
        bias: jax.Array | None = None,
        attention_mask: Any = None,
    ) -> fk.Output:
        masks = context.mask if isinstance(context.mask, list | tuple) else (context.mask,)
        masks = (*masks, None, None, None)[:3]
        if positions is not None:
            for mask in masks:
                if mask is not None:
                    positions = jnp.where(as_booleans(mask), positions, -1)
        updates: Mapping[str, Any] = {}
        if context.state:
            y, updates = self._cached(context, query, key, value, positions, bias, attention_mask)
        elif positions is not None:
            allowed = self._allowed(positions, positions, attention_mask)
            segments = attention_cache.row_segments(positions)
            same = segments[:, :, None] == segments[:, None, :]
            y = self._attend(context, query, key, value, allowed & same[:, None], bias)
        else:
            allowed = self._plain_mask(query, key, masks, attention_mask)
            y = self._attend(context, query, key, value, allowed, bias)
        return fk.Output(y, dict(updates), mask=masks[0])

    def _allowed(self, query: jax.Array, key: jax.Array, attention_mask: Any) -> jax.Array:
        """Returns the mask (b, 1, t, s) of positions (b, t) and (b, s)."""
        allowed = (query >= 0)[:, :, None] & (key >= 0)[:, None, :]
        for mask in (self.mask, attention_mask):
            if isinstance(mask, Mask):
                allowed = allowed & mask.allows(query, key)
        allowed = allowed[:, None]
        if attention_mask is None or isinstance(attention_mask, Mask):
            return allowed
        return allowed & self._explicit(attention_mask)

    def _explicit(self, mask: jax.Array) -> jax.Array:
        mask = as_booleans(mask)
        shape = (*(1,) * (3 - mask.ndim), *mask.shape)
        return jnp.reshape(mask, (shape[0], 1, *shape[1:]) if mask.ndim < 4 else shape)

    def _plain_mask(
        self, query: jax.Array, key: jax.Array, masks: tuple, attention_mask: Any
    ) -> jax.Array | None:
        """Returns the mask of a call without positions."""
        shapes = [(*x.shape[:2], 1) for x in (query, key)]
        array = None if isinstance(attention_mask, Mask) else attention_mask
        allowed = score_mask(self._where, *shapes, (1,), masks, array, False, None)
        steps = jnp.arange(query.shape[1]), jnp.arange(key.shape[1])
        for mask in (self.mask, attention_mask):
            if isinstance(mask, Mask):
                pairs = mask.allows(*steps)
                allowed = both(allowed, pairs[None, None] if pairs.ndim == 2 else pairs[:, None])
        return allowed

    def _cached(
        self,
        context: fk.Context,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        positions: jax.Array | None,
        bias: jax.Array | None,
        attention_mask: Any,
    ) -> tuple[jax.Array, dict[str, Any]]:
        """Returns the result of a call with a cache, and the next cache."""
        if positions is None:
            raise fk.FKerasError(
                f"{self._where}: expected positions beside a cache, received None."
            )
        state = context.state
        size = state["positions"].shape[1]
        window = self._window()
        ring = size >= window
        slots = attention_cache.slots_of(positions, size, ring)
        written = self._write(state, key, value, positions, slots)
        # the window of the first query must not have lost slots to the last key
        if not ring or key.shape[1] - 1 <= size - window:
            keys, values, held = *self._read(written, key.dtype), written["positions"]
        else:
            # slots at or after the first new position hold tokens that were taken back
            first = jnp.min(jnp.where(positions >= 0, positions, jnp.iinfo("int32").max), axis=1)
            old = jnp.where(state["positions"] < first[:, None], state["positions"], -1)
            keys, values = self._read(state, key.dtype)
            fresh = self._rounded(key), self._rounded(value)
            keys = jnp.concatenate([keys, fresh[0]], axis=1)
            values = jnp.concatenate([values, fresh[1]], axis=1)
            held = jnp.concatenate([old, positions], axis=1)
        y = self._attend(
            context, query, keys, values, self._allowed(positions, held, attention_mask), bias
        )
        if not ring:  # a token that found no slot: never a wrong number
            y = jnp.where((positions >= size)[..., None, None], jnp.asarray(jnp.nan, y.dtype), y)
        return y, written

    def _write(
        self,
        state: Mapping[str, Any],
        key: jax.Array,
        value: jax.Array,
        positions: jax.Array,
        slots: jax.Array,
    ) -> dict[str, Any]:
        entries = {"keys": key, "values": value, "positions": positions}
        if self.cache == "int8":
            entries["keys"], entries["key_scales"] = attention_cache.quantized(key)
            entries["values"], entries["value_scales"] = attention_cache.quantized(value)
        return {
            name: attention_cache.write(state[name], new, slots) for name, new in entries.items()
        }

    def _read(self, state: Mapping[str, Any], dtype: Any) -> tuple[jax.Array, jax.Array]:
        """Returns keys and values of a cache in the dtype of the call."""
        if self.cache != "int8":
            return state["keys"].astype(dtype), state["values"].astype(dtype)
        return tuple(
            state[f"{name}s"].astype(dtype) * state[f"{name}_scales"].astype(dtype)[..., None]
            for name in ("key", "value")
        )

    def _rounded(self, x: jax.Array) -> jax.Array:
        """Returns new keys or values as the cache will hold them."""
        if self.cache != "int8":
            return x
        codes, scales = attention_cache.quantized(x)
        return codes.astype(x.dtype) * scales.astype(x.dtype)[..., None]

    def _attend(
        self,
        context: fk.Context,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        mask: jax.Array | None,
        bias: jax.Array | None,
    ) -> jax.Array:
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        if bias is not None:
            bias = jnp.reshape(bias, (*(1,) * (4 - bias.ndim), *bias.shape))
        if self.dropout > 0 and context.training:
            dropout_key = seeded_key(context, self.seed)
            return attend_with_weights(
                query,
                key,
                value,
                mask,
                bias,
                scale,
                drop=lambda weights: dropout(dropout_key, weights, self.dropout),
                soft_cap=self.soft_cap,
            )[0]
        return attend(query, key, value, mask, bias, scale, soft_cap=self.soft_cap)
