"""Roles of the axes of kernels: the rule that chooses the hidden axis."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fkeras.layers.common import authoring as fk


def hidden(inputs: str, outputs: str, sizes: Mapping[str, int]) -> Mapping[str, str]:
    """Returns the role "hidden" for one axis of a kernel: the first letter of the wider side.

    The kernel of a layer that widens is then split by outputs and the kernel of a layer that narrows
    by inputs: a pair of both, as in a feed-forward block, needs one sum between the devices. Of sides
    of one size the side with more axes is the hidden side, as that of the heads; otherwise the side
    of the outputs.

    Args:
        sizes: the size of each letter; empty before the layer is built.
    """
    if not sizes:
        return fk.FrozenDict()
    # compared in this order: entries, axes, and the outputs last, which win between equals
    sides = [(math.prod(sizes[n] for n in side), len(side), side) for side in (inputs, outputs)]
    wider_side = outputs if sides[1][:2] >= sides[0][:2] else inputs
    return fk.FrozenDict({wider_side[0]: "hidden"} if wider_side else {})


def hidden_of(kernel: object, axes: str) -> Mapping[str, str]:
    """Returns the role of the axes "i" and "o" of a kernel, which is None before `build`."""
    shape = getattr(kernel, "shape", ())
    return hidden("i", "o", dict(zip(axes, shape, strict=False)))


def window_letters(rank: int) -> str:
    """Returns the letters of the axes of a window: depth, height, width."""
    return "dhw"[-rank:]


def output_letters(data_format: str) -> str:
    """Returns the letters of the output of a convolution: "o" for the channels."""
    return "...o" if data_format == "channels_last" else "_o..."
