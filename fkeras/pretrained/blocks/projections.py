"""Projections of attention and MLP, with the same layer names in all families."""

from __future__ import annotations

from typing import cast

from fkeras import layers
from fkeras.engine import KerasTensor
from fkeras.pretrained.blocks.activation import activate


def width_of(x: KerasTensor) -> int:
    """Returns the size of the last axis."""
    return cast("int", x.shape[-1])


def to_heads(
    x: KerasTensor, heads: int, size: int, name: str, *, bias: bool = False, role: str = "heads"
) -> KerasTensor:
    """Records a projection (b, t, d) -> (b, t, heads, size).

    Args:
        name: name of the layer, such as "query".
        role: axis role of the heads for sharding: "kv_heads" for the keys and values of grouped-query
            attention.
    """
    return layers.EinsumDense(
        "abc,cde->abde",
        (None, heads, size),
        bias_axes="de" if bias else None,
        axis_roles={"d": role},
        name=name,
    )(x)


def from_heads(
    x: KerasTensor, width: int, name: str = "output", *, bias: bool = False
) -> KerasTensor:
    """Records a projection (b, t, heads, size) -> (b, t, width)."""
    return layers.EinsumDense(
        "abcd,cde->abe",
        (None, width),
        bias_axes="e" if bias else None,
        axis_roles={"c": "heads"},
        name=name,
    )(x)


def mlp(
    x: KerasTensor, inner: int, activation: str, *, bias: bool = True, prefix: str = "mlp_"
) -> KerasTensor:
    """Records `out(activation(in(x)))`."""
    y = activate(activation, layers.Dense(inner, use_bias=bias, name=f"{prefix}in")(x))
    return layers.Dense(width_of(x), use_bias=bias, name=f"{prefix}out")(y)


def gated_mlp(
    x: KerasTensor, inner: int, activation: str, *, bias: bool = False, prefix: str = ""
) -> KerasTensor:
    """Records `down(activation(gate(x)) * up(x))`."""
    gate = layers.Dense(inner, use_bias=bias, name=f"{prefix}gate")(x)
    up = layers.Dense(inner, use_bias=bias, name=f"{prefix}up")(x)
    y = layers.Multiply(name=f"{prefix}gated")([activate(activation, gate), up])
    return layers.Dense(width_of(x), use_bias=bias, name=f"{prefix}down")(y)
