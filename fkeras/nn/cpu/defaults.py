"""Convolutions by XLA's operation, for all platforms."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import lax

from fkeras.nn.numerics.axes import channel_axis


def convolution(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: str,
    data_format: str,
    dilation: Sequence[int],
) -> jax.Array:
    """Computes a correlation; the arguments are those of `fkeras.nn.convolution.convolve`."""
    # letters of the spatial axes, as `dimension_numbers` names axes
    axes = "DHW"[-(x.ndim - 2) :]
    images = f"N{axes}C" if data_format == "channels_last" else f"NC{axes}"
    if padding == "causal":
        # zeros before the start only: an output depends on no later cell
        extents = zip(kernel.shape, dilation, strict=False)
        pads = [((size - 1) * rate, 0) for size, rate in extents]
    else:
        pads = padding.upper()
    return lax.conv_general_dilated(
        x,
        kernel,
        tuple(strides),
        pads,
        rhs_dilation=tuple(dilation),
        dimension_numbers=(images, f"{axes}IO", images),
        # the shapes determine the groups, so grouped convolutions need no argument
        feature_group_count=x.shape[channel_axis(data_format)] // kernel.shape[-2],
    )


def transposed_convolution(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    data_format: str,
    dilation: Sequence[int],
) -> jax.Array:
    """Computes a transposed convolution: a correlation of the dilated input with a flipped kernel.

    Args:
        kernel: array of shape (*window, f, c), in reverse order along the axes of the window.
        pads: the number of zeros before and after each axis, whose cells are `strides` apart.
        Other arguments: those of `convolution`.
    """
    rank = x.ndim - 2
    axes = "DHW"[-rank:]
    images = f"N{axes}C" if data_format == "channels_last" else f"NC{axes}"
    return lax.conv_general_dilated(
        x,
        kernel,
        (1,) * rank,
        pads,
        lhs_dilation=tuple(strides),
        rhs_dilation=tuple(dilation),
        dimension_numbers=(images, f"{axes}OI", images),
    )
