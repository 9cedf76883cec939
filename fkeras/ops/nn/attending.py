"""Attention of queries to keys, as `keras.ops.nn` names it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fkeras.engine.symbolic.define import op
from fkeras.nn.attention import dot_product_attention as _attention

__all__ = ("dot_product_attention",)


@op
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
    *,
    empty_rows: str = "zeros",
) -> Any:
    """softmax(scale * query @ key + bias) @ value for each head.

    A query that may attend to no key gives zeros, and no gradient.

    Args:
        query: (b, t, heads, d).
        key: (b, s, groups, d), heads a multiple of groups.
        value: (b, s, groups, f).
        bias: added before the softmax; it broadcasts to (b, heads, t, s).
        mask: True where a query may attend to a key; it broadcasts to (b, heads, t, s).
        scale: the factor; 1 / sqrt(d) where it is None.
        is_causal: whether step t attends to the steps up to t only.
        flash_attention: whether to use cuDNN's fused kernel; None where it fits.
        attn_logits_soft_cap: takes nothing but None; in Keras it is for TPUs alone.
        empty_rows: the result of a query that may attend to no key: "zeros", or "keras" for
            Keras's, the mean of all values. Calls in Keras's files have "keras".

    Returns:
        An array of shape (b, t, heads, f).

    Raises:
        ValueError: where `attn_logits_soft_cap` is not None, or `empty_rows` neither of the two.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.array([1.0, 4.0]).reshape(1, 2, 1, 1)
        >>> fk.ops.dot_product_attention(0 * x, x, x, is_causal=True).ravel()
        Array([1. , 2.5], dtype=float32)

    References:
        Vaswani et al., Attention is all you need (2017), arxiv.org/abs/1706.03762.
    """
    if attn_logits_soft_cap is not None:
        raise ValueError(
            "dot_product_attention: expected attn_logits_soft_cap=None, received "
            f"{attn_logits_soft_cap}. For capped scores compute them with fk.ops.einsum and "
            "cap * tanh(scores / cap)."
        )
    if empty_rows not in ("zeros", "keras"):
        raise ValueError(
            "dot_product_attention: empty_rows: expected 'zeros' or 'keras', received "
            f"{empty_rows!r}. Use 'zeros', or 'keras' for the mean of all values."
        )
    query, key, value = (jnp.asarray(x) for x in (query, key, value))
    bias, mask = (None if x is None else jnp.asarray(x) for x in (bias, mask))
    return _attention(query, key, value, mask, bias, scale, is_causal, flash_attention, empty_rows)
