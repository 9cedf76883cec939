"""Scaled dot-product attention, with the name of `keras.ops.nn`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import op, to_common_floats
from fkeras.nn.attention_choice import dot_product_attention as _attention

__all__ = ("dot_product_attention",)


@op
def dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    bias: TensorLike | None = None,
    mask: TensorLike | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
    *,
    empty_rows: str = "zeros",
    sinks: TensorLike | None = None,
) -> jax.Array:
    """Returns softmax(scale * query @ key + bias) @ value for each head.

    The output for a query without any key to attend to is 0, with a gradient of 0.

    Args:
        query: (b, t, heads, d).
        key: (b, s, groups, d), heads a multiple of groups.
        value: (b, s, groups, f).
        bias: added before the softmax; it broadcasts to (b, heads, t, s).
        mask: True where a query may attend to a key; it broadcasts to (b, heads, t, s).
        scale: factor of the scores; None for 1 / sqrt(d).
        is_causal: whether step t attends only to steps up to t.
        flash_attention: True for cuDNN's fused kernel, which needs a GPU and a 16-bit float type;
            False for products of whole arrays; None for the best computation of the platform: long
            sequences by a kernel or by blocks of queries, without an array of all scores, and 16-bit
            floats on a GPU by cuDNN.
        attn_logits_soft_cap: must be None; Keras supports other values only on TPUs.
        empty_rows: output for a query without any key to attend to: "zeros", or "keras" for the
            mean of all values, as in Keras. Models read from Keras's files use "keras".
        sinks: (heads,), attention sinks: one more score of each head, which counts in the sum of the softmax
            and has no value. A query then attends to no key where the scores are far below the sink.

    Returns:
        An array of shape (b, t, heads, f).

    Raises:
        ValueError: if `attn_logits_soft_cap` is not None, or `empty_rows` is unknown; for sinks of another shape,
            beside `flash_attention=True` or `empty_rows="keras"`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.array([1.0, 5.0]).reshape(1, 2, 1, 1)
        >>> fk.ops.dot_product_attention(0 * x, x, x, is_causal=True).ravel()
        Array([1., 3.], dtype=float32)
        >>> fk.ops.dot_product_attention(0 * x, x, x, is_causal=True, sinks=jnp.zeros(1)).ravel()
        Array([0.5, 2. ], dtype=float32)

    References:
        Vaswani et al., Attention is all you need (2017), arxiv.org/abs/1706.03762.
        Xiao et al., Efficient streaming language models with attention sinks (2023), arxiv.org/abs/2309.17453.
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
    # the implementation in `fkeras.nn` expects arrays; the operation also accepts lists
    query, key, value = to_common_floats(query, key, value)
    bias, mask, sinks = (None if x is None else jnp.asarray(x) for x in (bias, mask, sinks))
    settings = scale, is_causal, flash_attention, empty_rows
    return _attention(query, key, value, mask, bias, *settings, sinks=sinks)
