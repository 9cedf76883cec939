"""The computation of an attention call: whole arrays, blocks of queries, or a kernel."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.attention import (
    MaskOf,
    attend,
    attend_with_weights,
    both,
    causal_mask,
    clear_empty_rows,
    fill_empty_rows,
    of_keys,
)
from fkeras.nn.attention_blocks import ALL, Take, by_blocks, is_long, whole
from fkeras.nn.attention_kernels import CAUSAL, Pairs, attend_by_kernel, has_short_kernel
from fkeras.nn.noise import dropout
from fkeras.nn.numerics.axes import format_shape

#: dtypes that cuDNN's fused kernel supports
_SHORT = (jnp.dtype("bfloat16"), jnp.dtype("float16"))
#: a key of JAX and the probability of dropping an attention weight
Drop = tuple[jax.Array, float]


def attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask_of: MaskOf,
    scale: float,
    bias: jax.Array | None = None,
    soft_cap: float | None = None,
    kernel: str | None = None,
    pairs: Pairs | None = None,
    drop: Drop | None = None,
    fill: bool = False,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """Computes attention by one of several computations, which have equal results.

    Args:
        query: array of shape (b, t, heads, d).
        key: array of shape (b, s, groups, d).
        value: array of shape (b, s, groups, f).
        mask_of: returns the mask of the queries of `take`.
        bias: array of shape (b or 1, heads or 1, t or 1, s), or None.
        soft_cap: bound of the logits, as for `attend`.
        kernel: "einsum" for whole arrays, "blockwise" for blocks of queries, "splash" for a kernel of
            the platform if there is one, else blocks; None for "splash" if the sequences are long, else
            for cuDNN on a GPU where it applies without a choice in the program, or "einsum".
        pairs: the pairs that `mask_of` allows; None if kernels do not support the mask.
        drop: key and rate of dropout of the attention weights; None for no dropout. Each block of
            queries has its own key.
        fill: whether a query that attends to no key has the mean of all values instead of 0.
        sinks: array of shape (1, heads), as for `attend`.

    Returns:
        An array of shape (b, t, heads, f).
    """
    length = query.shape[1]
    long = is_long(length, key.shape[1])
    if pairs is not None and drop is None and bias is None and not fill:
        arguments = query, key, value, pairs
        if kernel == "splash" or (kernel is None and long):
            return attend_by_kernel(*arguments, scale, soft_cap, sinks)
        if kernel is None and has_short_kernel(*arguments, soft_cap, sinks is not None):
            return attend_by_kernel(*arguments, scale, soft_cap, sinks, short=True)

    def compute(take: Take, keys: slice, rows: jax.Array, bias: jax.Array | None) -> jax.Array:
        mask, bias = of_keys(mask_of(take), keys), of_keys(bias, keys)
        arguments = rows, key[:, keys], value[:, keys], mask, bias, scale
        if drop is None:
            y = attend(*arguments, soft_cap=soft_cap, sinks=sinks)
        else:
            own, rate = drop
            if take is not whole:
                own = jax.random.fold_in(own, take(jnp.arange(length), 0)[0])

            def dropped(weights: jax.Array) -> jax.Array:
                return dropout(own, weights, rate)

            y, _ = attend_with_weights(*arguments, drop=dropped, soft_cap=soft_cap, sinks=sinks)
        return fill_empty_rows(y, value, mask) if fill and mask is not None else y

    if kernel == "blockwise" or (long and kernel != "einsum"):
        band = ALL if pairs is None else pairs.indices
        return by_blocks(compute, query, key.shape[1], bias, band)
    return compute(whole, slice(None), query, bias)


def dot_product_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | MaskOf | None = None,
    bias: jax.Array | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    empty_rows: str = "zeros",
    pairs: Pairs | None = None,
    drop: Drop | None = None,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """Computes `softmax(scale * query @ key + bias) @ value` for each head.

    A query whose row of the mask is all False attends to no key: its result and its gradient are
    0. (`jax.nn.dot_product_attention` and Keras return the mean of all values.)

    Long sequences are computed by a kernel of the platform, or by blocks of queries: the memory grows
    with t + s instead of t * s. On a GPU, cuDNN computes shorter sequences of 16-bit floats, too.

    Args:
        query: array of shape (b, t, heads, d).
        key: array of shape (b, s, groups, d). The number of heads is a multiple of the number of
            groups; heads // groups adjacent heads share one key.
        value: array of shape (b, s, groups, f).
        mask: a Boolean array that broadcasts to (b, heads, t, s), True where a query may attend to
            a key, or a function that returns this array for the queries of `take`.
        bias: array that broadcasts to (b, heads, t, s), added before the softmax.
        scale: factor of the logits; None for 1 / sqrt(d).
        is_causal: whether step t attends only to the steps up to t.
        flash_attention: True for cuDNN's fused kernel, which needs a GPU and a 16-bit float type;
            False for products of whole arrays; None for the choice of `attention`.
        empty_rows: result for queries that attend to no key: "zeros", or "keras" for the mean of
            all values.
        pairs: the pairs that `mask` allows; None if unknown.
        drop: as for `attention`.
        sinks: array of shape (heads,), one more logit of each head, which counts in the sum of the softmax and
            has no value; None for no such logits.

    Returns:
        An array of shape (b, t, heads, f).

    Raises:
        ValueError: if an array does not have four axes, if sizes differ, if the number of heads is not a multiple
            of the number of groups, if the fused kernel does not support the call, and for sinks of another shape,
            beside `flash_attention=True` or `empty_rows="keras"`.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.ones((2, 5, 4, 3))
        >>> dot_product_attention(x, x, x, is_causal=True).shape
        (2, 5, 4, 3)

    References:
        Vaswani et al., Attention is all you need (2017), https://arxiv.org/abs/1706.03762
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 4:
            raise ValueError(
                f"dot_product_attention: expected {name} of shape (b, t, heads, d), received "
                f"{x.shape}. For one head add an axis: x[:, :, None, :]."
            )
    rows = {x.shape[0] for x in (query, key, value)} - {1}
    if len(rows) > 1 or key.shape[1:3] != value.shape[1:3] or query.shape[3] != key.shape[3]:
        raise ValueError(
            "dot_product_attention: expected query (b, t, heads, d), key (b, s, groups, d) and value "
            f"(b, s, groups, f), received {format_shape(query.shape)}, {format_shape(key.shape)} and "
            f"{format_shape(value.shape)}. Key and value have the same steps and groups; query and key the same d."
        )
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    bias = None if bias is None else _four_axes(bias)
    mask_of = mask if mask is None or callable(mask) else _mask_of(_four_axes(mask))
    if sinks is not None:
        _check_sinks(sinks, query, flash_attention, empty_rows)
        sinks = sinks[None]

    def order(take: Take) -> jax.Array | None:
        return causal_mask(query.shape[1], key.shape[1], take)[None, None] if is_causal else None

    if flash_attention:
        check_flash_applies(query)
        # the fused kernel applies is_causal; the result does not show empty rows
        mask = None if mask_of is None else mask_of(whole)
        y = jax.nn.dot_product_attention(
            query, key, value, bias, mask, scale=scale, is_causal=is_causal, implementation="cudnn"
        )
        combined = both(mask, order(whole))
        if mask is None or combined is None:
            return y
        if empty_rows == "keras":
            return fill_empty_rows(y, value, combined)
        return clear_empty_rows(y, combined)

    if mask_of is None:
        pairs = Pairs()
    elif pairs is None and not callable(mask):
        pairs = _pairs_of_keys(mask_of(whole), query.shape, key.shape)
    # each step attends at least to itself or, under a causal mask, to the first key
    full = (
        pairs is not None
        and pairs.query_ids is None
        and (pairs.band == ALL or query.shape[1] == key.shape[1])
    )
    if is_causal and pairs is not None:
        pairs = pairs._replace(band=(pairs.band[0], min(pairs.band[1], CAUSAL[1])))

    def combined_of(take: Take) -> jax.Array | None:
        return both(None if mask_of is None else mask_of(take), order(take))

    kernel = "einsum" if flash_attention is False else None
    fill = empty_rows == "keras" and not full
    arguments = query, key, value, combined_of, scale, bias, None, kernel, pairs, drop, fill
    return attention(*arguments, sinks=sinks)


def _pairs_of_keys(mask: jax.Array | None, query: tuple, key: tuple) -> Pairs | None:
    """Returns the pairs of a mask with four axes that excludes keys for all queries; else None."""
    if mask is None or mask.shape[1:3] != (1, 1) or mask.dtype != jnp.bool_:
        return None
    keys = jnp.broadcast_to(mask[:, 0, 0], (mask.shape[0], key[1]))
    return Pairs().only(None, keys, (query[0], query[1], key[1]))


def _mask_of(mask: jax.Array) -> MaskOf:
    return lambda take: take(mask, 2)


def is_flash_available(dtype: Any, backend: str) -> bool:
    """Returns whether cuDNN's fused kernel computes this dtype on this backend."""
    return backend == "gpu" and jnp.dtype(dtype) in _SHORT


def check_flash_applies(query: jax.Array) -> None:
    """Raises an error if cuDNN's fused kernel is not available: without a GPU, or in float32."""
    if not is_flash_available(query.dtype, jax.default_backend()):
        raise ValueError(
            f"flash_attention: expected a GPU and bfloat16 or float16, received {query.dtype} on "
            f"{jax.default_backend()}. Leave flash_attention at None, which runs everywhere, "
            "or give the layer dtype='mixed_bfloat16'."
        )


def _check_sinks(
    sinks: jax.Array, query: jax.Array, flash_attention: bool | None, empty_rows: str
) -> None:
    where = "dot_product_attention: sinks"
    is_real = jnp.issubdtype(sinks.dtype, jnp.floating) or jnp.issubdtype(sinks.dtype, jnp.integer)
    if sinks.shape != (query.shape[2],) or not is_real:
        raise ValueError(
            f"{where}: expected one number for each of {query.shape[2]} query heads, received {sinks.dtype} "
            f"{sinks.shape}. Give an array of floats of shape ({query.shape[2]},)."
        )
    if flash_attention:
        raise ValueError(
            f"{where}: expected flash_attention=None or False beside sinks, received True. The fused kernel has no "
            "sinks: leave flash_attention at None."
        )
    if empty_rows == "keras":
        raise ValueError(
            f"{where}: expected empty_rows='zeros' beside sinks, received 'keras'. A query without keys gives its "
            "whole weight to the sink: leave empty_rows out."
        )


def _four_axes(x: jax.Array) -> jax.Array:
    return jnp.reshape(x, (*(1,) * (4 - x.ndim), *x.shape))
