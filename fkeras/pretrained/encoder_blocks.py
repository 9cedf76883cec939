"""Blocks of encoders and vision towers, and the rows of their weights in a table of names."""

from __future__ import annotations

from typing import TypeAlias, cast

from fkeras import layers
from fkeras.engine import Input, KerasTensor, Model
from fkeras.layers.applications import LayerScale
from fkeras.masks import Mask
from fkeras.pretrained.activation import activate
from fkeras.pretrained.names import HeadBias, Heads, HeadsIn, Row, Transpose
from fkeras.pretrained.projections import from_heads, to_heads

Tensor: TypeAlias = KerasTensor


def width_of(x: Tensor) -> int:
    """Returns the size of the last axis."""
    return cast("int", x.shape[-1])


def norm(x: Tensor, epsilon: float, name: str, center: bool = True) -> Tensor:
    """Records a layer normalization; without `center` it has no bias."""
    return layers.LayerNormalization(epsilon=epsilon, center=center, name=name)(x)


def attention(
    x: Tensor,
    count: int,
    *,
    source: Tensor | None = None,
    mask: Mask | None = None,
    positions: Tensor | None = None,
    bias: bool = True,
    key_bias: bool | None = None,
    output_bias: bool = True,
    rotary: layers.RotaryEmbedding | None = None,
    prefix: str = "",
) -> Tensor:
    """Records attention with `count` heads that share the width of `x`.

    Args:
        source: tensor of keys and values; None for self-attention.
        positions: positions of the tokens, for a cache.
        bias: whether query, key and value have biases.
        key_bias: whether the key has a bias; None for `bias`.
        output_bias: whether the output has a bias.
        rotary: turns query and key by their positions.
        prefix: first part of the names, such as "cross_".

    Raises:
        ValueError: for a width that the heads do not divide.
    """
    width = width_of(x)
    size, rest = divmod(width, count)
    if rest:
        raise ValueError(
            f"expected a width that is a multiple of the number of heads, received {width} and {count} "
            "heads. Correct config.json."
        )
    source = x if source is None else source
    key_bias = bias if key_bias is None else key_bias
    query = to_heads(x, count, size, f"{prefix}query", bias=bias)
    key = to_heads(source, count, size, f"{prefix}key", bias=key_bias)
    value = to_heads(source, count, size, f"{prefix}value", bias=bias)
    if rotary is not None:
        query, key = rotary([query, key])
    attend = layers.DotProductAttention(mask, name=f"{prefix}attention")
    y = attend(query, key, value) if positions is None else attend(query, key, value, positions)
    return from_heads(y, width, f"{prefix}output", bias=output_bias)


def mlp(x: Tensor, width: int, activation: str, prefix: str = "mlp_") -> Tensor:
    """Records two dense layers with an activation between them."""
    hidden = layers.Dense(width, name=f"{prefix}in")(x)
    return layers.Dense(width_of(x), name=f"{prefix}out")(activate(activation, hidden))


def add(x: Tensor, y: Tensor, name: str) -> Tensor:
    """Records the sum of a residual connection."""
    return layers.Add(name=name)([x, y])


def pre_norm_block(
    name: str,
    width: int,
    count: int,
    inner: int,
    *,
    activation: str,
    epsilon: float,
    mask: Mask | None = None,
    bias: bool = True,
    key_bias: bool | None = None,
    gated: bool = False,
    layer_scale: float | None = None,
) -> Model:
    """Returns a block that normalizes the inputs of attention and MLP.

    Args:
        width: width of the network.
        count: number of heads.
        inner: width inside the MLP.
        gated: whether the MLP is `down(silu(gate(x)) * up(x))`.
        layer_scale: first factor of learned scales after attention and MLP; None for no scales.
    """

    def scaled(y: Tensor, part: str) -> Tensor:
        return y if layer_scale is None else LayerScale(layer_scale, width, name=part)(y)

    inputs = Input((None, width), name="x")
    y = norm(inputs, epsilon, "attention_norm")
    y = attention(y, count, mask=mask, bias=bias, key_bias=key_bias)
    x = add(inputs, scaled(y, "attention_scale"), "attention_add")
    y = norm(x, epsilon, "mlp_norm")
    if gated:
        gate = layers.Dense(inner, name="gate")(y)
        y = activate("silu", gate) * layers.Dense(inner, name="up")(y)
        y = layers.Dense(width, name="down")(y)
    else:
        y = mlp(y, inner, activation)
    return Model(inputs, add(x, scaled(y, "mlp_scale"), "mlp_add"), name=name)


# rows of tables


def dense_rows(tensor: str, layer: str, bias: bool = True) -> tuple[Row, ...]:
    """Returns the rows of a `Dense` layer."""
    rows = (Row(f"{tensor}.weight", f"{layer}/kernel", Transpose()),)
    return (*rows, Row(f"{tensor}.bias", f"{layer}/bias")) if bias else rows


def norm_rows(tensor: str, layer: str, bias: bool = True) -> tuple[Row, ...]:
    """Returns the rows of a layer normalization."""
    rows = (Row(f"{tensor}.weight", f"{layer}/gamma"),)
    return (*rows, Row(f"{tensor}.bias", f"{layer}/beta")) if bias else rows


def head_rows(tensor: str, layer: str, count: int, size: int, bias: bool = True) -> tuple[Row, ...]:
    """Returns the rows of a projection to heads."""
    rows = (Row(f"{tensor}.weight", f"{layer}/kernel", Heads(count, size)),)
    return (*rows, Row(f"{tensor}.bias", f"{layer}/bias", HeadBias(count, size))) if bias else rows


def output_rows(
    tensor: str, layer: str, count: int, size: int, bias: bool = True
) -> tuple[Row, ...]:
    """Returns the rows of the projection that merges heads."""
    rows = (Row(f"{tensor}.weight", f"{layer}/kernel", HeadsIn(count, size)),)
    return (*rows, Row(f"{tensor}.bias", f"{layer}/bias")) if bias else rows


def tower_rows(prefix: str, layer: str, count: int, size: int) -> tuple[Row, ...]:
    """Returns the rows of a block of CLIP, SigLIP and their towers."""
    n = count, size
    return (
        *norm_rows(f"{prefix}layer_norm1", f"{layer}/attention_norm"),
        *head_rows(f"{prefix}self_attn.q_proj", f"{layer}/query", *n),
        *head_rows(f"{prefix}self_attn.k_proj", f"{layer}/key", *n),
        *head_rows(f"{prefix}self_attn.v_proj", f"{layer}/value", *n),
        *output_rows(f"{prefix}self_attn.out_proj", f"{layer}/output", *n),
        *norm_rows(f"{prefix}layer_norm2", f"{layer}/mlp_norm"),
        *dense_rows(f"{prefix}mlp.fc1", f"{layer}/mlp_in"),
        *dense_rows(f"{prefix}mlp.fc2", f"{layer}/mlp_out"),
    )
