"""The argument `axis` of layers that normalize over one axis or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from fkeras.engine import Layer
from fkeras.engine.config.converters import axis_or_axes
from fkeras.nn.numerics.axes import format_shape

normalized_axes = axis_or_axes(hint="For the last axis give -1, for an image's features (1, 2, 3).")


def as_tuple(axis: int | Sequence[int]) -> tuple[int, ...]:
    """Returns one axis or several as a tuple."""
    return (axis,) if isinstance(axis, int) else tuple(axis)


def check_axes(layer: Layer, axis: int | Sequence[int], shape: Sequence[Any]) -> set[int]:
    """Returns the axes counted from 0, after checking that an input of `shape` has each once.

    Raises:
        ValueError: for a missing axis, and for an axis named twice.
    """
    ndim, axes = len(shape), as_tuple(axis)
    positions = {a % ndim for a in axes if -ndim <= a < ndim}
    if len(positions) != len(axes):
        raise ValueError(
            f"{layer.where}: expected an input with the axes {axis}, each once, received "
            f"{format_shape(shape)}. Use axes from {-ndim} to {ndim - 1}."
        )
    return positions


def check_weight_sizes(
    layer: Layer, axis: int | Sequence[int], weight: jax.Array, sizes: tuple, shape: Sequence[Any]
) -> None:
    """Raises an error for a weight whose shape is not the `sizes` of an input's axes."""
    if weight.shape != sizes:
        raise ValueError(
            f"{layer.where}: expected sizes {weight.shape} on axis {axis}, received "
            f"{format_shape(shape)}. Its weights are for these sizes; use another layer for other "
            "sizes."
        )
