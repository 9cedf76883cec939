"""Projections to the heads of an attention, and from the heads back."""

from __future__ import annotations

from fkeras import layers
from fkeras.engine import KerasTensor


def to_heads(
    x: KerasTensor, heads: int, size: int, name: str, *, bias: bool = False, role: str = "heads"
) -> KerasTensor:
    """Records a projection (b, t, d) -> (b, t, heads, size).

    Args:
        name: name of the layer, such as "query".
        role: the role by which a trainer splits the heads: "kv_heads" for keys and values that several
            queries share.

    Example:
        >>> import fkeras as fk
        >>> to_heads(fk.Input((None, 8)), 2, 4, "query").shape
        (None, None, 2, 4)
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
    """Records a projection (b, t, heads, size) -> (b, t, width).

    Example:
        >>> import fkeras as fk
        >>> from_heads(fk.Input((None, 2, 4)), 8).shape
        (None, None, 8)
    """
    return layers.EinsumDense(
        "abcd,cde->abe",
        (None, width),
        bias_axes="e" if bias else None,
        axis_roles={"c": "heads"},
        name=name,
    )(x)
