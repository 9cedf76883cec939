"""Argument `axis` of layers that normalize over one or more axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from fkeras.engine import Layer
from fkeras.engine.config.converters import axis_or_axes
from fkeras.nn.numerics.axes import format_shape

normalized_axes = axis_or_axes(hint="For the last axis give -1, for an image's features (1, 2, 3).")


def as_tuple(axis: int | Sequence[int]) -> tuple[int, ...]:
    """Returns one or more axes as a tuple."""
    return (axis,) if isinstance(axis, int) else tuple(axis)


def check_axes(layer: Layer, axis: int | Sequence[int], shape: Sequence[Any]) -> set[int]:
    """Checks that an input of `shape` has each axis once, and returns the axes counted from 0.

    Raises:
        ValueError: for a missing axis, and for a repeated axis.
    """
    ndim, axes = len(shape), as_tuple(axis)
    # -1 and 2 may be the same axis: compare positions, not numbers
    positions = {a % ndim for a in axes if -ndim <= a < ndim}
    if len(positions) != len(axes):
        raise ValueError(
            f"{layer._where}: expected an input with the axes {axis}, each once, received "
            f"{format_shape(shape)}. Use axes from {-ndim} to {ndim - 1}."
        )
    return positions


def check_weight_sizes(
    layer: Layer, axis: int | Sequence[int], weight: jax.Array, sizes: tuple, shape: Sequence[Any]
) -> None:
    """Raises an error if a weight's shape differs from the `sizes` of an input's axes."""
    if weight.shape != sizes:
        raise ValueError(
            f"{layer._where}: expected sizes {weight.shape} on axis {axis}, received "
            f"{format_shape(shape)}. The layer's weights have these sizes; use another layer for "
            "other sizes."
        )
