"""Attention of all families, and transformer blocks with layer normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from fkeras import layers, ops
from fkeras.authoring.layers import LayerScale
from fkeras.engine import Input, KerasTensor, Layer, Model
from fkeras.masks import Causal, Mask, Window
from fkeras.pretrained.blocks.projections import from_heads, gated_mlp, mlp, to_heads, width_of
from fkeras.pretrained.blocks.repeated import repeated

Tensor: TypeAlias = KerasTensor


def norm(x: Tensor, epsilon: float, name: str, center: bool = True, scale: bool = True) -> Tensor:
    """Records a layer normalization; without `center` it has no bias, without `scale` no weight."""
    return layers.LayerNormalization(epsilon=epsilon, center=center, scale=scale, name=name)(x)


def causal(window: int | None) -> Mask:
    """Returns the mask of a decoder: all earlier tokens, or those in a window."""
    return Causal() if window is None else Causal() & Window(window)


def attention(
    x: Tensor,
    heads: int,
    size: int | None = None,
    *,
    key_heads: int | None = None,
    source: Tensor | None = None,
    mask: Mask | None = None,
    positions: Tensor | None = None,
    bias: bool = True,
    key_bias: bool | None = None,
    output_bias: bool | None = None,
    rotary: Callable[..., Any] | None = None,
    head_norm: Callable[[str], Layer] | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    score_bias: Tensor | None = None,
    sinks: bool = False,
    prefix: str = "",
) -> Tensor:
    """Records attention between projections to heads and back.

    Args:
        size: size of a head; None for the width of `x` divided by `heads`.
        key_heads: number of key and value heads, with the axis role "kv_heads"; None for `heads`.
        source: input of the key and value projections; None for self-attention.
        positions: positions of the tokens, which enable a KV cache.
        bias: whether the query, key and value projections have biases.
        key_bias: whether the key projection has a bias; None for `bias`.
        output_bias: whether the output projection has a bias; None for `bias`.
        rotary: rotary embedding of query and key, or a function that returns both with their positions.
        head_norm: returns the normalization "query_norm" or "key_norm" for its name.
        scale: scale of the attention scores; None for `size**-0.5`.
        soft_cap: soft cap of the attention scores.
        score_bias: added to the attention scores.
        sinks: whether each head has an attention sink.
        prefix: prefix of the layer names, such as "cross_".
    """
    width = width_of(x)
    size = width // heads if size is None else size
    source = x if source is None else source
    key_bias = bias if key_bias is None else key_bias
    role = "heads" if key_heads is None else "kv_heads"
    count = key_heads or heads
    query = to_heads(x, heads, size, f"{prefix}query", bias=bias)
    key = to_heads(source, count, size, f"{prefix}key", bias=key_bias, role=role)
    value = to_heads(source, count, size, f"{prefix}value", bias=bias, role=role)
    if head_norm is not None:
        query, key = head_norm("query_norm")(query), head_norm("key_norm")(key)
    if rotary is not None:
        query, key = rotary([query, key], *(() if positions is None else (positions,)))
    name = f"{prefix}attention"
    options = {"scale": scale, "soft_cap": soft_cap, "use_sinks": sinks}
    attend = layers.DotProductAttention(mask, **options, name=name)
    y = attend(query, key, value, positions, bias=score_bias)
    output_bias = bias if output_bias is None else output_bias
    return from_heads(y, width, f"{prefix}output", bias=output_bias)


def add(x: Tensor, y: Tensor, name: str) -> Tensor:
    """Records the sum of a residual connection."""
    return layers.Add(name=name)([x, y])


def pre_norm_blocks(x: Tensor, blocks: int, heads: int, inner: int, **options: Any) -> Tensor:
    """Records the blocks of `pre_norm_states`, and returns the last hidden state."""
    return pre_norm_states(x, blocks, heads, inner, **options)[-1]


def pre_norm_states(
    x: Tensor,
    blocks: int,
    heads: int,
    inner: int,
    *,
    activation: str,
    epsilon: float,
    mask: Mask | None = None,
    bias: bool = True,
    key_bias: bool | None = None,
    gated: bool = False,
    layer_scale: float | None = None,
) -> list[Tensor]:
    """Records pre-norm transformer blocks, named "block_0", "block_1" and so on; returns all hidden states.

    The first state is `x`.

    Args:
        blocks: number of blocks.
        inner: hidden size of the MLP.
        gated: whether the MLP is `down(silu(gate(x)) * up(x))`.
        layer_scale: initial value of the layer scales after attention and MLP; None for no layer scales.
    """
    width = width_of(x)

    def scaled(y: Tensor, part: str) -> Tensor:
        return y if layer_scale is None else LayerScale(layer_scale, width, name=part)(y)

    def block(i: int) -> Model:
        inputs = Input((None, width), name="x")
        y = norm(inputs, epsilon, "attention_norm")
        y = attention(y, heads, mask=mask, bias=bias, key_bias=key_bias, output_bias=True)
        z = add(inputs, scaled(y, "attention_scale"), "attention_add")
        y = norm(z, epsilon, "mlp_norm")
        y = gated_mlp(y, inner, "silu", bias=True) if gated else mlp(y, inner, activation)
        return Model(inputs, add(z, scaled(y, "mlp_scale"), "mlp_add"))

    states = [x]
    for model in repeated(block, [()] * blocks):
        states.append(model(states[-1]))
    return states


def token_where(x: Tensor, scores: Tensor) -> Tensor:
    """Records the hidden state of the first token with the largest score (b, t)."""
    index = ops.reshape(ops.argmax(ops.unmask(scores), axis=-1), (-1, 1, 1))
    return ops.take_along_axis(ops.unmask(x), index, axis=1)[:, 0]


def first_token(x: Tensor, positions: Tensor) -> Tensor:
    """Records the hidden state of the first token that is no padding."""
    return token_where(x, ops.cast(ops.equal(positions, 0), "int32"))


def last_token(x: Tensor, positions: Tensor) -> Tensor:
    """Records the hidden state of the last token that is no padding."""
    return token_where(x, positions)
