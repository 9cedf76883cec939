"""`DotProductAttention`: attention of projected heads, with masks of positions and a cache as state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.layers.attention.score_masks import as_booleans, explicit_mask, score_mask
from fkeras.layers.common import authoring as fk
from fkeras.layers.common.arguments import seeded_key
from fkeras.masks import Mask, check_static, join_tensors, split_tensors
from fkeras.nn import attention_cache
from fkeras.nn.attention import (
    attend,
    attend_with_weights,
    both,
    clear_empty_rows,
    is_flash_available,
)
from fkeras.nn.noise import dropout
from fkeras.nn.numerics.axes import format_shape


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
        kernel: "einsum" for two products of whole arrays, on every backend; "xla" or "cudnn" for that
            implementation of `jax.nn.dot_product_attention`, where it computes the call: without a
            soft cap and without dropout, with values of the size of the keys; "cudnn" needs a GPU and
            16-bit floats. Other calls use "einsum". `fk.plan` reports which kernel is used.
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
        ValueError: for arrays that do not have four axes or do not fit each other, heads that do not
            form equal groups, positions of another shape, a cache without positions; in training
            with dropout and without a key; and, for concrete arrays, for more tokens than a cache has
            room for.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x, positions = jnp.ones((2, 5, 4, 8)), jnp.broadcast_to(jnp.arange(5), (2, 5))
        >>> attention = fk.layers.DotProductAttention(fk.masks.Causal())
        >>> state = attention.init_state(2, 16, x, x, x, positions)
        >>> out = attention.apply(x, x, x, positions, state=state)
        >>> out.value.shape, out.updates["keys"].shape
        ((2, 5, 4, 8), (2, 16, 4, 8))
    """

    mask: fk.Converted[Mask | None, Mask | None] = fk.option(default=None, convert=check_static)
    scale: fk.OptionalReal = fk.option(default=None, convert=fk.real(optional=True))
    soft_cap: fk.OptionalReal = fk.option(default=None, convert=fk.real(above=0, optional=True))
    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    cache: str | None = fk.option(default=None, convert=fk.choice("int8", optional=True))
    kernel: str = fk.option(default="einsum", convert=fk.choice("einsum", "xla", "cudnn"))
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    supports_masking: ClassVar[bool] = True
    _keras_module: ClassVar[str] = "fkeras.layers"
    # a cache belongs to a batch of texts, not to the model: files and lists of weights leave it out
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(stores_state=False)

    # -- calls --------------------------------------------------------------------------------

    @overload
    def __call__(
        self, query: fk.Tensor, key: fk.Field, value: fk.Field, /, *more: fk.Tree, **options: Any
    ) -> fk.Tensor: ...

    @overload
    def __call__(
        self, query: fk.Tree, key: fk.Field, value: fk.Field, /, *more: fk.Tree, **options: Any
    ) -> jax.Array: ...

    def __call__(self, *inputs: fk.Tree, **options: fk.Option) -> Any:
        """Computes the value of the layer; `positions` may come by position or by name."""
        inputs, options = _by_position(self._where, inputs, options)
        mask = options.get("attention_mask")
        if isinstance(mask, Mask):
            # a graph stores a mask as a constant, and the tensors in the mask as inputs of the call
            options["attention_mask"], tensors = split_tensors(mask)
            if tensors:
                options["mask_arrays"] = tensors
        return super().__call__(*inputs, **options)

    def apply(self, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        """Returns the `Output` of the layer; `positions` may come by position or by name."""
        inputs, options = _by_position(self._where, inputs, options)
        return super().apply(*inputs, **options)

    def forward(
        self,
        context: fk.Context,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        positions: jax.Array | None = None,
        *,
        bias: jax.Array | None = None,
        attention_mask: Mask | jax.Array | None = None,
        mask_arrays: Sequence[jax.Array] = (),
    ) -> fk.Output:
        """Computes the `Output`; `mask_arrays` are the arrays of a mask that a graph stores."""
        self._check(query, key, value, positions)
        if isinstance(attention_mask, Mask):
            attention_mask = join_tensors(attention_mask, mask_arrays)
        masks = context.input_masks(3)
        if positions is None:
            if context.state:
                raise fk.FKerasError(
                    f"{self._where}: expected positions beside a cache, received None. Pass them as "
                    "the fourth argument: attention(query, key, value, positions)."
                )
            allowed = self._mask_of_indices(query, key, masks, attention_mask)
            y = self._attend(context, query, key, value, allowed, bias)
            return fk.Output(y, mask=masks[0])
        for mask in masks:
            if mask is not None:
                positions = jnp.where(as_booleans(mask), positions, -1)
        if context.state:
            y, cache = self._attend_to_cache(
                context, query, key, value, positions, bias, attention_mask
            )
            return fk.Output(y, cache, mask=masks[0])
        segments = attention_cache.row_segments(positions)
        same = segments[:, :, None] == segments[:, None, :]
        allowed = self._mask_of_positions(positions, positions, attention_mask) & same[:, None]
        y = self._attend(context, query, key, value, allowed, bias)
        return fk.Output(y, mask=masks[0])

    def _check(
        self, query: jax.Array, key: jax.Array, value: jax.Array, positions: jax.Array | None
    ) -> None:
        """Raises FKerasError for arrays that do not fit each other."""
        shapes = [format_shape(x.shape) for x in (query, key, value)]
        received = f"received query {shapes[0]}, key {shapes[1]} and value {shapes[2]}"
        if not query.ndim == key.ndim == value.ndim == 4:
            raise fk.FKerasError(
                f"{self._where}: expected query, key and value of shape (b, t, heads, d), {received}. "
                "Project them with EinsumDense, or for one head add an axis: x[:, :, None, :]."
            )
        if (
            not _equal(query.shape[0], key.shape[0], value.shape[0])
            or not _equal(key.shape[1], value.shape[1])
            or not _equal(query.shape[3], key.shape[3])
            or not _equal(key.shape[2], value.shape[2])
        ):
            raise fk.FKerasError(
                f"{self._where}: expected query (b, t, h, d), key (b, s, g, d) and value (b, s, g, f), "
                f"{received}."
            )
        heads, groups = query.shape[2], key.shape[2]
        if heads % groups:
            raise fk.FKerasError(
                f"{self._where}: expected a number of query heads divisible by the number of key heads, "
                f"received {heads} and {groups}. Give a number of key heads that divides {heads}."
            )
        if positions is None:
            return
        fits = positions.ndim == 2 and _equal(positions.shape[0], query.shape[0])
        if not fits or not _equal(positions.shape[1], query.shape[1], key.shape[1]):
            raise fk.FKerasError(
                f"{self._where}: expected positions of shape (b, t), one for each query and each key, "
                f"received {format_shape(positions.shape)} beside query {shapes[0]} and key {shapes[1]}. "
                "Attention between two sequences takes no positions."
            )

    # -- masks --------------------------------------------------------------------------------

    def _mask_of_positions(
        self, query: jax.Array, key: jax.Array, attention_mask: Mask | jax.Array | None
    ) -> jax.Array:
        """Returns the mask (b, 1 or heads, t, s) for positions (b, t) and (b, s)."""
        allowed = (query >= 0)[:, :, None] & (key >= 0)[:, None, :]
        for mask in (self.mask, attention_mask):
            if isinstance(mask, Mask):
                allowed = allowed & mask.allows(query, key)
        allowed = allowed[:, None]
        if attention_mask is None or isinstance(attention_mask, Mask):
            return allowed
        array = explicit_mask(self._where, attention_mask, 3, 1)
        if not _equal(array.shape[-1], key.shape[1]) and array.shape[-1] != 1:
            raise fk.FKerasError(
                f"{self._where}: expected an attention_mask for each of {key.shape[1]} keys, received "
                f"{format_shape(attention_mask.shape)}. Beside a cache the last axis counts the slots of "
                "the cache; a mask of fk.masks needs no sizes."
            )
        return allowed & array

    def _mask_of_indices(
        self,
        query: jax.Array,
        key: jax.Array,
        masks: tuple,
        attention_mask: Mask | jax.Array | None,
    ) -> jax.Array | None:
        """Returns the mask of a call without positions, where a token's index is its position."""
        queries, keys = ((*x.shape[:2], 1) for x in (query, key))
        array = None if isinstance(attention_mask, Mask) else attention_mask
        allowed = score_mask(self._where, queries, keys, (1,), masks, array, False, None)
        steps = jnp.arange(query.shape[1]), jnp.arange(key.shape[1])
        for mask in (self.mask, attention_mask):
            if isinstance(mask, Mask):
                pairs = mask.allows(*steps)
                allowed = both(allowed, pairs[None, None] if pairs.ndim == 2 else pairs[:, None])
        return allowed

    # -- cache --------------------------------------------------------------------------------

    def init_cache(self, size: fk.CacheSize, *specs: fk.Tree) -> dict[str, Any]:
        if len(specs) < 3:
            raise fk.FKerasError(
                f"{self._where}: init_state(batch, length) needs the shapes of the inputs, received "
                f"{len(specs)} shapes. Write attention.init_state(batch, length, query, key, value, "
                "positions), or call init_state of the model that contains the layer."
            )
        _, key, value, *rest = specs
        if not rest or rest[0] is None:
            return {}
        slots = int(min(size.length, self._ring_size + size.slack))
        shapes = [(size.batch, slots, *spec.shape[2:]) for spec in (key, value)]
        names = ("keys", "values")
        dtype = "int8" if self.cache == "int8" else self.policy.compute_dtype
        state = {n: jnp.zeros(shape, dtype) for n, shape in zip(names, shapes, strict=True)}
        if self.cache == "int8":
            state["key_scales"], state["value_scales"] = (
                jnp.zeros(shape[:3], "float32") for shape in shapes
            )
        return {**state, "positions": jnp.full((size.batch, slots), -1, "int32")}

    def reset_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns an empty cache with the memory of `state`."""
        return {k: jnp.full_like(v, -1) if k == "positions" else v for k, v in state.items()}

    @property
    def _ring_size(self) -> float:
        """The number of slots that the mask needs at least; infinite for all positions."""
        before, after = (math.inf, math.inf) if self.mask is None else self.mask.reach
        return before + 1 if after <= 0 else math.inf

    def _capacity(self, state: Mapping[str, Any]) -> int | None:
        # `forward` reports a state without this entry
        held = state.get("positions")
        slots = math.inf if held is None else held.shape[1]
        return None if slots >= self._ring_size else int(slots)

    def _keeps_tokens(self, inputs: tuple) -> bool:
        return len(inputs) > 3 and inputs[3] is not None

    def _check_capacity(self, state: Mapping[str, Any], inputs: tuple, mask: fk.Tree) -> None:
        capacity = self._capacity(state)
        if capacity is None or len(inputs) < 4 or isinstance(inputs[3], Tracer):
            return
        needed = np.asarray(inputs[3]).max(axis=1, initial=-1) + 1
        fk.check_room(self._where, capacity, needed)

    def _attend_to_cache(
        self,
        context: fk.Context,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        positions: jax.Array,
        bias: jax.Array | None,
        attention_mask: Mask | jax.Array | None,
    ) -> tuple[jax.Array, dict[str, Any]]:
        """Returns the result of a call with a cache, and the next cache."""
        state = context.state
        self._check_state(state, key, value)
        if self.mask is None and attention_mask is None:
            raise fk.FKerasError(
                f"{self._where}: expected a causal mask beside a cache, received none. A cache holds no "
                "later tokens, and a call without a cache would attend to these: write "
                "DotProductAttention(mask=fk.masks.Causal())."
            )
        size = state["positions"].shape[1]
        is_ring = size >= self._ring_size
        slots = attention_cache.slots_of(positions, size, is_ring)
        entries = self._entries(key, value, positions)
        cache = {
            name: attention_cache.write(state[name], entry, slots)
            for name, entry in entries.items()
        }
        if not is_ring or key.shape[1] - 1 <= size - self._ring_size:
            held = cache
        else:
            # the last keys would overwrite keys in the window of the first query: attend to the old
            # slots beside the new tokens. Slots from the first new position on hold tokens that were
            # taken back.
            present = jnp.where(positions >= 0, positions, jnp.iinfo(positions.dtype).max)
            first = jnp.min(present, axis=1, keepdims=True)
            old = jnp.where(state["positions"] < first, state["positions"], -1)
            held = {
                name: jnp.concatenate([entry, entries[name].astype(entry.dtype)], axis=1)
                for name, entry in {**state, "positions": old}.items()
            }
        keys, values = self._read(held, key.dtype)
        allowed = self._mask_of_positions(positions, held["positions"], attention_mask)
        y = self._attend(context, query, keys, values, allowed, bias)
        if not is_ring:
            # the token found no slot. NaN is visible; other numbers would be wrong in silence
            y = jnp.where((positions >= size)[..., None, None], jnp.asarray(jnp.nan, y.dtype), y)
        return y, cache

    def _check_state(self, state: Mapping[str, Any], key: jax.Array, value: jax.Array) -> None:
        """Raises FKerasError for a cache of other entries, rows or heads."""
        names = {"keys", "values", "positions"}
        names |= {"key_scales", "value_scales"} if self.cache == "int8" else set()
        if {*state} != names:
            raise fk.FKerasError(
                f"{self._where}: expected a cache with the entries {', '.join(sorted(names))}, received "
                f"{', '.join(sorted(state))}. Make the state with init_state(batch, length) of this model."
            )
        for name, x in (("keys", key), ("values", value)):
            held = state[name].shape
            if not _equal(held[0], x.shape[0]) or held[2:] != tuple(x.shape[2:]):
                raise fk.FKerasError(
                    f"{self._where}: expected {name} for the cache of shape {format_shape(held)}, received "
                    f"{format_shape(x.shape)}. Make a state for this batch: init_state({x.shape[0]}, length)."
                )

    def _entries(
        self, key: jax.Array, value: jax.Array, positions: jax.Array
    ) -> dict[str, jax.Array]:
        """Returns the entries of the cache for new tokens."""
        if self.cache != "int8":
            return {"keys": key, "values": value, "positions": positions}
        keys, key_scales = attention_cache.quantized(key)
        values, value_scales = attention_cache.quantized(value)
        scales = {"key_scales": key_scales, "value_scales": value_scales}
        return {"keys": keys, "values": values, **scales, "positions": positions}

    def _read(self, cache: Mapping[str, Any], dtype: Any) -> tuple[jax.Array, jax.Array]:
        """Returns keys and values of a cache in the dtype of the call."""
        keys, values = (cache[name].astype(dtype) for name in ("keys", "values"))
        if self.cache != "int8":
            return keys, values
        key_scales, value_scales = (
            cache[name].astype(dtype)[..., None] for name in ("key_scales", "value_scales")
        )
        return keys * key_scales, values * value_scales

    # -- scores -------------------------------------------------------------------------------

    def kernel_for(
        self, query: fk.SpecLike, value: fk.SpecLike, backend: str, training: bool = False
    ) -> str:
        """Returns the kernel that computes a call: "einsum", "xla" or "cudnn".

        Args:
            query: the query, or its spec.
            value: the value, or its spec.
            backend: JAX's name of the backend, such as "gpu".
            training: whether it is a training call.

        Example:
            >>> import jax.numpy as jnp, fkeras as fk
            >>> x = jnp.ones((2, 5, 4, 64), "bfloat16")
            >>> fk.layers.DotProductAttention(kernel="cudnn").kernel_for(x, x, "gpu")
            'cudnn'
        """
        query, value = fk.as_spec(query), fk.as_spec(value)
        has_more = self.soft_cap is not None or (training and self.dropout > 0)
        if has_more or query.dims[-1] != value.dims[-1]:
            return "einsum"
        if self.kernel == "cudnn" and not is_flash_available(query.dtype, backend):
            return "einsum"
        return self.kernel

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
            bias = self._four_axes(bias, query, key)
        kernel = self.kernel_for(query, value, jax.default_backend(), context.training)
        if kernel != "einsum":
            y = jax.nn.dot_product_attention(
                query, key, value, bias, mask, scale=scale, implementation=_implementation(kernel)
            )
            # JAX's result for a query that attends to no key is the mean of all values
            return y if mask is None else clear_empty_rows(y, mask)
        arguments = query, key, value, mask, bias, scale
        if self.dropout > 0 and context.training:
            dropout_key = seeded_key(context, self.seed)

            def drop(weights: jax.Array) -> jax.Array:
                return dropout(dropout_key, weights, self.dropout)

            return attend_with_weights(*arguments, drop=drop, soft_cap=self.soft_cap)[0]
        return attend(*arguments, soft_cap=self.soft_cap)

    def _four_axes(self, bias: jax.Array, query: jax.Array, key: jax.Array) -> jax.Array:
        """Returns the bias with the axes (b, heads, t, s)."""
        expected = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
        pairs = zip(bias.shape[::-1], expected[::-1], strict=False)
        if bias.ndim > 4 or not all(n == 1 or _equal(n, m) for n, m in pairs):
            raise fk.FKerasError(
                f"{self._where}: expected a bias that broadcasts to (b, heads, t, s) = "
                f"{format_shape(expected)}, received {format_shape(bias.shape)}. Beside a cache the last "
                "axis counts the slots of the cache."
            )
        return jnp.reshape(bias, (*(1,) * (4 - bias.ndim), *bias.shape))


def _implementation(kernel: str) -> Any:
    # JAX annotates the argument with a Literal of its two words
    return kernel


def _equal(*sizes: Any) -> bool:
    """Returns whether sizes may be equal; unknown sizes of a trace with shapes compare by name."""
    return all(size == sizes[0] for size in sizes)


def _by_position(
    where: str, inputs: tuple, options: Mapping[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    """Returns inputs and options with positions as the fourth input, and all after it by name."""
    options = dict(options)
    if "positions" in options:
        if len(inputs) != 3:
            raise TypeError(
                f"{where}: expected query, key and value before positions=..., received {len(inputs)} "
                "inputs. Write attention(query, key, value, positions)."
            )
        inputs = (*inputs, options.pop("positions"))
    for name, value in zip(("bias", "attention_mask"), inputs[4:], strict=False):
        if name in options or len(inputs) > 6:
            raise TypeError(
                f"{where}: expected at most query, key, value, positions, bias and attention_mask, each "
                f"once, received {len(inputs)} inputs and {', '.join(options) or 'no options'}."
            )
        options[name] = value
    return inputs[:4], {
        name: value
        for name, value in options.items()
        if value is not None or name not in ("bias", "attention_mask")
    }
