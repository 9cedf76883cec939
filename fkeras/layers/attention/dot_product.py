"""`DotProductAttention`: attention of projected heads, with masks of positions and a cache as state."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.layers.attention.key_value_cache import (
    check_cache,
    empty_cache,
    read_tokens,
    write_tokens,
)
from fkeras.layers.attention.score_masks import as_booleans, explicit_mask, score_mask
from fkeras.layers.common import authoring as fk
from fkeras.masks import (
    Mask,
    allowed_part,
    band_and_segments,
    check_static,
    join_tensors,
    split_tensors,
)
from fkeras.nn import attention_cache
from fkeras.nn.attention import MaskOf, both, clear_empty_rows
from fkeras.nn.attention_blocks import Take, is_long, whole
from fkeras.nn.attention_choice import attention, is_flash_available
from fkeras.nn.attention_kernels import Call, Pairs
from fkeras.nn.numerics.axes import format_shape

_TO_HEADS = "Project to heads with EinsumDense, or for one head add an axis: x[:, :, None, :]."


class DotProductAttention(fk.KeepsTokens, fk.Layer):
    """Computes `softmax(scale * query @ key) @ value` for each head; its only weights are sinks.

    `EinsumDense` layers before the layer project to heads, and an `EinsumDense` layer after the layer
    projects back.

    Masks compare the `positions` of tokens. Without a cache, a new text begins where a position is not
    greater than the previous position; tokens do not attend to other texts of their row.

    `init_cache(batch, length, query, key, value, positions)`, or `init_cache(batch, length)` of a model,
    makes a cache: keys, values and their positions. A call with the cache adds its tokens to the cache
    and attends to all tokens of the cache; `updates` holds the next cache. Tokens at position -1 are
    padding, which is not stored. The cache of a mask with a window, such as `Causal() & Window(512)`, is
    a ring buffer of `512 + slack` slots. A token without a slot in a full cache gives NaN in a compiled
    program.

    A query that attends to no key gives 0, with gradient 0.

    Args:
        mask: a mask of `fk.masks`, such as `fk.masks.Causal()`; None for all keys.
        scale: factor of the logits; None for 1 / sqrt(d).
        soft_cap: bound c of the logits, which become `c * tanh(logits / c)`; None for no bound.
        dropout: probability of dropping an attention weight in training.
        cache: "int8" to store keys and values as 8-bit codes with a scale for each head and token;
            None for the compute dtype.
        kernel: "einsum" for two einsums; "blockwise" for einsums of one block of queries after the
            other, whose memory grows with t + s instead of t * s, and which the gradient computes again;
            "splash" for the kernel of the platform for which the program is lowered: JAX's splash
            attention on a TPU, cuDNN on a GPU with 16-bit floats, else blocks. Kernels support masks of
            `Causal`, `Window`, `Chunk`, `Segments`, padding and positions, without bias, cache and dropout.
            "xla" or "cudnn" for this implementation of `jax.nn.dot_product_attention` in calls without a
            soft cap, sinks and dropout whose values have the size of the keys; "cudnn" also needs a GPU and
            16-bit floats. None, and calls without their kernel: "splash" where t * s is at least
            2048 * 2048; for shorter sequences cuDNN on a GPU, in calls of at least 128 queries and keys with
            16-bit floats and without positions, padding and segments, else "einsum". `fk.plan` reports the
            kernel of each layer.
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.
        use_sinks: whether each head has an attention sink: one more logit, a weight, which counts in the sum of
            the softmax and has no value. JAX's splash attention supports sinks, cuDNN does not.
        sinks_initializer: draws the sinks.

    Call:
        positions: integers (b, t), -1 at padding, usually from `fk.layers.Positions`. None, for
            encoders and cross-attention, counts from 0; `init_state` then makes no cache.
        bias: array that broadcasts to (b, heads, t, s), added to the logits. With a cache, the last
            axis has the slots of the cache.
        attention_mask: a mask of `fk.masks`, which may hold arrays, or a Boolean array (t, s),
            (b, t, s) or (b, heads, t, s).

    Shapes:
        query (b, t, h, d), key (b, s, g, d), value (b, s, g, f) -> (b, t, h, f); h is a multiple of g,
        and h / g adjacent heads share one key head; sinks (h,).

    Raises:
        ValueError: for arrays without four axes or with different sizes, query heads that are no
            multiple of the key heads, positions of another shape, a cache without positions; in training
            with dropout and without a key; and, for concrete arrays, for more tokens than a cache has
            room for.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x, positions = jnp.ones((2, 5, 4, 8)), jnp.broadcast_to(jnp.arange(5), (2, 5))
        >>> attention = fk.layers.DotProductAttention(fk.masks.Causal())
        >>> state = attention.init_cache(2, 16, x, x, x, positions)
        >>> out = attention.apply(x, x, x, positions, state=state)
        >>> out.value.shape, out.updates["keys"].shape
        ((2, 5, 4, 8), (2, 16, 4, 8))
    """

    mask: fk.Converted[Mask | None, Mask | None] = fk.option(default=None, convert=check_static)
    scale: fk.OptionalReal = fk.option(default=None, convert=fk.real(optional=True))
    soft_cap: fk.OptionalReal = fk.option(default=None, convert=fk.real(above=0, optional=True))
    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    cache: str | None = fk.option(default=None, convert=fk.choice("int8", optional=True))
    kernel: str | None = fk.option(
        default=None,
        convert=fk.choice("einsum", "blockwise", "splash", "xla", "cudnn", optional=True),
    )
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    use_sinks: bool = fk.option(default=False, convert=fk.boolean)
    sinks_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)

    sinks: jax.Array | None = fk.weight(axes="h")

    supports_masking: ClassVar[bool] = True
    _keras_module: ClassVar[str] = "fkeras.layers"
    # a cache belongs to a batch, not to the model: files and lists of weights omit the cache
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(stores_state=False)

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(roles=fk.FrozenDict({"h": "heads"} if self.use_sinks else {}))

    @property
    def built(self) -> bool:
        return self.__dict__.get("_built", False) or not self.use_sinks

    def build(self, key: jax.Array, query: fk.SpecLike, *others: fk.Tree) -> Self:
        if self.use_sinks and len(query.shape) != 4:
            raise fk.FKerasError(
                f"{self._where}: expected a query of shape (b, t, heads, d), with a sink for each head, received "
                f"{format_shape(query.shape)}. {_TO_HEADS}"
            )
        return self.with_weights(key, sinks=query.shape[2:3] if self.use_sinks else None)

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
        """Computes the value of the layer; `positions` is a positional or a keyword argument."""
        inputs, options = _by_position(self._where, inputs, options)
        mask = options.get("attention_mask")
        if isinstance(mask, Mask):
            # a graph stores a mask as a constant, and the tensors in the mask as inputs of the call
            options["attention_mask"], tensors = split_tensors(mask)
            if tensors:
                options["mask_arrays"] = tensors
        return super().__call__(*inputs, **options)

    def apply(self, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        """Returns the `Output` of the layer; `positions` is a positional or a keyword argument."""
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
                    f"{self._where}: expected positions with a cache, received None. Pass them as "
                    "the fourth argument: attention(query, key, value, positions)."
                )
            by_index = functools.partial(self._mask_of_indices, query, key, masks, attention_mask)
            pairs = self._pairs_of_indices(query, key, masks, attention_mask)
            y = self._attend(context, query, key, value, by_index, bias, pairs)
            return fk.Output(y, mask=masks[0])
        # query, key and value usually share one mask
        for mask in {id(mask): mask for mask in masks if mask is not None}.values():
            positions = jnp.where(as_booleans(mask), positions, -1)
        if context.state:
            y, cache = self._attend_to_cache(
                context, query, key, value, positions, bias, attention_mask
            )
            return fk.Output(y, cache, mask=masks[0])
        segments = attention_cache.row_segments(positions)

        def mask_of(take: Take) -> jax.Array:
            same = take(segments, 1)[:, :, None] == segments[:, None, :]
            return self._mask_of_positions(positions, attention_mask, take) & same[:, None]

        pairs = self._pairs_of_positions(positions, segments, attention_mask)
        y = self._attend(context, query, key, value, mask_of, bias, pairs)
        return fk.Output(y, mask=masks[0])

    def _check(
        self, query: jax.Array, key: jax.Array, value: jax.Array, positions: jax.Array | None
    ) -> None:
        """Raises FKerasError for arrays with other axes or different sizes."""
        shapes = [format_shape(x.shape) for x in (query, key, value)]
        received = f"received query {shapes[0]}, key {shapes[1]} and value {shapes[2]}"
        if not query.ndim == key.ndim == value.ndim == 4:
            raise fk.FKerasError(
                f"{self._where}: expected query, key and value of shape (b, t, heads, d), {received}. "
                f"{_TO_HEADS}"
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
        if self.sinks is not None and self.sinks.shape != (heads,):
            raise fk.FKerasError(
                f"{self._where}: expected one sink for each query head, received sinks "
                f"{format_shape(self.sinks.shape)} and query {shapes[0]}. Build the layer for {heads} heads."
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
        self,
        query: jax.Array,
        attention_mask: Mask | jax.Array | None,
        take: Take,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Returns the mask (b, 1 or heads, n, s) of the queries of `take` among positions (b, t).

        `key` are the positions (b, s) of the keys; None for those of the queries.
        """
        key = query if key is None else key
        allowed = (take(query, 1) >= 0)[:, :, None] & (key >= 0)[:, None, :]
        for mask in (self.mask, attention_mask):
            if isinstance(mask, Mask):
                allowed = allowed & allowed_part(mask, query, key, take)
        allowed = allowed[:, None]
        if attention_mask is None or isinstance(attention_mask, Mask):
            return allowed
        array = explicit_mask(self._where, attention_mask, 3, 1)
        if not _equal(array.shape[-1], key.shape[1]) and array.shape[-1] != 1:
            raise fk.FKerasError(
                f"{self._where}: expected an attention_mask for each of {key.shape[1]} keys, received "
                f"{format_shape(attention_mask.shape)}. With a cache the last axis has the slots of the "
                "cache; a mask of fk.masks fits any sizes."
            )
        return allowed & take(array, 2)

    def _mask_of_indices(
        self,
        query: jax.Array,
        key: jax.Array,
        masks: tuple,
        attention_mask: Mask | jax.Array | None,
        take: Take,
    ) -> jax.Array | None:
        """Returns the mask of a call without positions, where a token's index is its position."""
        queries, keys = ((*x.shape[:2], 1) for x in (query, key))
        array = None if isinstance(attention_mask, Mask) else attention_mask
        allowed = score_mask(self._where, queries, keys, (1,), masks, array, False, None, take)
        steps = jnp.arange(query.shape[1]), jnp.arange(key.shape[1])
        for mask in (self.mask, attention_mask):
            if isinstance(mask, Mask):
                pairs = allowed_part(mask, *steps, take)
                allowed = both(allowed, pairs[None, None] if pairs.ndim == 2 else pairs[:, None])
        return allowed

    def _band_and_segments(self, attention_mask: Any) -> tuple[Any, Any, int | None] | None:
        """Returns reach, segments and chunk of the masks of a call; None for masks without such a form."""
        masks = [mask for mask in (self.mask, attention_mask) if mask is not None]
        if not all(isinstance(mask, Mask) for mask in masks):
            return None
        return band_and_segments(masks)

    def _pairs_of_positions(
        self, positions: jax.Array, segments: jax.Array, attention_mask: Mask | jax.Array | None
    ) -> Pairs | None:
        """Returns the pairs that attend, as for `_mask_of_positions`; None if they need an array."""
        form = self._band_and_segments(attention_mask)
        if form is None or form[1] is not None:
            return None
        if form[2] is not None:
            segments = attention_cache.row_segments(positions, form[2])
        valid, (rows, length) = positions >= 0, positions.shape
        return Pairs(form[0], segments, segments, positions).only(
            valid, valid, (rows, length, length)
        )

    def _pairs_of_indices(
        self,
        query: jax.Array,
        key: jax.Array,
        masks: tuple,
        attention_mask: Mask | jax.Array | None,
    ) -> Pairs | None:
        """Returns the pairs that attend, as for `_mask_of_indices`; None if they need an array."""
        form = self._band_and_segments(attention_mask)
        if form is None:
            return None
        reach, ids, chunk = form
        shape = query.shape[0], query.shape[1], key.shape[1]
        of_query, *of_keys = (None if mask is None else as_booleans(mask) for mask in masks)
        pairs = Pairs(reach)
        if ids is not None:
            # kernels compare numbers of 32 bits
            if not _equal(ids.shape[1], *shape[1:]) or jnp.iinfo(ids.dtype).max >= 2**31:
                return None
            ids = jnp.broadcast_to(jnp.asarray(ids).astype("int32"), shape[:2])
            pairs = Pairs(reach, ids, ids).only(ids != 0, ids != 0, shape)
        if chunk is not None:
            steps = (jnp.arange(n, dtype="int32") // chunk for n in shape[1:])
            pairs = Pairs(reach, *(jnp.broadcast_to(s, (shape[0], *s.shape)) for s in steps))
        return pairs.only(of_query, both(*of_keys), shape)

    # -- cache --------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # callers use the signature of `Layer`

        def init_cache(self, size: fk.CacheSize, *specs: fk.Tree) -> dict[str, Any]:
            if len(specs) < 3:
                raise fk.FKerasError(
                    f"{self._where}: init_cache(batch, length) needs the shapes of the inputs, received "
                    f"{len(specs)} shapes. Write attention.init_cache(batch, length, query, key, value, "
                    "positions), or call init_cache of the model that contains the layer."
                )
            _, key, value, *rest = specs
            if not rest or rest[0] is None:
                return {}
            slots = int(min(size.length, self._ring_size + size.slack))
            dtype = "int8" if self.cache == "int8" else self.policy.compute_dtype
            return empty_cache(size.batch, slots, key, value, dtype)

    def reset_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a cache without tokens that reuses the arrays of `state`."""
        return {k: jnp.full_like(v, -1) if k == "positions" else v for k, v in state.items()}

    @property
    def _ring_size(self) -> float:
        """The smallest number of slots that the mask allows; infinite if a cache must hold all tokens."""
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
        check_cache(self._where, state, key, value, self.cache == "int8")
        if self.mask is None and attention_mask is None:
            raise fk.FKerasError(
                f"{self._where}: expected a causal mask with a cache, received none. A cache holds no "
                "later tokens, and a call without a cache would attend to these: write "
                "DotProductAttention(mask=fk.masks.Causal())."
            )
        size = state["positions"].shape[1]
        cache, attended = write_tokens(state, key, value, positions, self._ring_size)
        keys, values = read_tokens(attended, key.dtype)

        def mask_of(take: Take) -> jax.Array:
            return self._mask_of_positions(positions, attention_mask, take, attended["positions"])

        y = self._attend(context, query, keys, values, mask_of, bias)
        if size < self._ring_size:
            # no slot for the token. NaN is visible; other numbers would hide the error
            y = jnp.where((positions >= size)[..., None, None], jnp.asarray(jnp.nan, y.dtype), y)
        return y, cache

    # -- scores -------------------------------------------------------------------------------

    def kernel_for(
        self,
        query: fk.SpecLike,
        value: fk.SpecLike,
        backend: str,
        training: bool = False,
        bias: Any = None,
        attention_mask: Any = None,
        positions: Any = None,
    ) -> str:
        """Returns the computation of a call without padding: "einsum", "blockwise", "splash", "xla" or "cudnn".

        Args:
            query: the query, or its spec.
            value: the value, or its spec; the key has its dtype.
            backend: JAX's name of the platform for which the program is lowered, such as "gpu".
            training: whether it is a training call.
            bias: the bias of the call, or None.
            attention_mask: the mask of the call, or None.
            positions: the positions of the call, their spec, or None.

        Example:
            >>> import jax.numpy as jnp, fkeras as fk
            >>> x = jnp.ones((2, 4096, 4, 64), "bfloat16")
            >>> attention = fk.layers.DotProductAttention(fk.masks.Causal())
            >>> [attention.kernel_for(x, x, backend) for backend in ("tpu", "gpu", "cpu")]
            ['splash', 'cudnn', 'blockwise']
            >>> short = x[:, :512]
            >>> [attention.kernel_for(short, short, backend) for backend in ("tpu", "gpu", "cpu")]
            ['einsum', 'cudnn', 'einsum']
        """
        query, value = fk.as_spec(query), fk.as_spec(value)
        drops = training and self.dropout > 0
        if self._is_jax(query, value, backend, drops):
            return str(self.kernel)
        if self.kernel in ("einsum", "blockwise"):
            return self.kernel
        long = is_long(query.dims[1], value.dims[1])
        form = self._band_and_segments(attention_mask)
        if form is None or bias is not None or drops:
            return "blockwise" if long else "einsum"
        short = not long and self.kernel != "splash"
        has_positions = positions is not None
        has_ids = has_positions or form[1:] != (None, None)
        options = {"soft_cap": self.soft_cap, "has_sinks": self.use_sinks, "short": short}
        q, v = (jax.ShapeDtypeStruct((1, *x.dims[1:]), x.dtype) for x in (query, value))
        # the size of keys is that of the query
        kernel = Call(form[0], has_ids, has_positions, **options).kernel(backend, q, v, v)
        return kernel or ("einsum" if short else "blockwise")

    def _is_jax(self, query: Any, value: Any, backend: str, drops: bool) -> bool:
        """Returns whether `jax.nn.dot_product_attention` computes a call."""
        if self.kernel not in ("xla", "cudnn") or drops:
            return False
        if self.soft_cap is not None or self.use_sinks:
            return False
        return query.dims[-1] == value.dims[-1] and (
            self.kernel == "xla" or is_flash_available(query.dtype, backend)
        )

    def _attend(
        self,
        context: fk.Context,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        mask_of: MaskOf,
        bias: jax.Array | None,
        pairs: Pairs | None = None,
    ) -> jax.Array:
        scale = 1.0 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        if bias is not None:
            bias = self._four_axes(bias, query, key)
        drops = self.dropout > 0 and context.training
        specs = fk.as_spec(query), fk.as_spec(value)
        if self.kernel and self._is_jax(*specs, jax.default_backend(), drops):
            mask = mask_of(whole)
            y = jax.nn.dot_product_attention(
                query, key, value, bias, mask, scale=scale, implementation=_any(self.kernel)
            )
            # JAX's result for a query that attends to no key is the mean of all values
            return y if mask is None else clear_empty_rows(y, mask)
        drop = (context.seeded_key(self.seed), self.dropout) if drops else None
        kernel = None if self.kernel in ("xla", "cudnn") else self.kernel
        sinks = None if self.sinks is None else self.sinks[None]
        arguments = query, key, value, mask_of, scale, bias, self.soft_cap, kernel, pairs, drop
        return attention(*arguments, sinks=sinks)

    def _four_axes(self, bias: jax.Array, query: jax.Array, key: jax.Array) -> jax.Array:
        """Returns the bias with the axes (b, heads, t, s)."""
        expected = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
        pairs = zip(bias.shape[::-1], expected[::-1], strict=False)
        if bias.ndim > 4 or not all(n == 1 or _equal(n, m) for n, m in pairs):
            raise fk.FKerasError(
                f"{self._where}: expected a bias that broadcasts to (b, heads, t, s) = "
                f"{format_shape(expected)}, received {format_shape(bias.shape)}. With a cache the last "
                "axis has the slots of the cache."
            )
        return jnp.reshape(bias, (*(1,) * (4 - bias.ndim), *bias.shape))


def _any(kernel: str) -> Any:
    # JAX annotates the argument as a Literal
    return kernel


def _equal(*sizes: Any) -> bool:
    """Returns whether sizes are equal; symbolic sizes compare by name."""
    return all(size == sizes[0] for size in sizes)


def _by_position(
    where: str, inputs: tuple, options: Mapping[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    """Returns the arguments with positions as the fourth input, and bias and attention_mask as options."""
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
