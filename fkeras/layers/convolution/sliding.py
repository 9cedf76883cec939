"""Fields, checks and the final step that the convolution layers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.ranks import OverImages, OverSequences, OverVolumes
from fkeras.nn.numerics.axes import channel_axis, check_window


class Windows1D(OverSequences):
    """Layer with a kernel over sequences.

    Args of the family:
        kernel_size: length of the window.
    """

    kernel_size: fk.Sizes = fk.option(convert=fk.sizes(1))
    strides: fk.Sizes = fk.option(default=1, convert=fk.sizes(1))
    dilation_rate: fk.Sizes = fk.option(default=1, convert=fk.sizes(1))


class Windows2D(OverImages):
    """Layer with a kernel over images.

    Args of the family:
        kernel_size: height and width of the window; one integer sets both.
    """

    kernel_size: fk.Sizes = fk.option(convert=fk.sizes(2))
    strides: fk.Sizes = fk.option(default=1, convert=fk.sizes(2))
    dilation_rate: fk.Sizes = fk.option(default=1, convert=fk.sizes(2))


class Windows3D(OverVolumes):
    """Layer with a kernel over volumes.

    Args of the family:
        kernel_size: sizes of the window along the three axes; one integer sets all.
    """

    kernel_size: fk.Sizes = fk.option(convert=fk.sizes(3))
    strides: fk.Sizes = fk.option(default=1, convert=fk.sizes(3))
    dilation_rate: fk.Sizes = fk.option(default=1, convert=fk.sizes(3))


def check_steps(where: str, strides: Sequence[int], dilation_rate: Sequence[int]) -> None:
    """Checks that strides and dilation do not both exceed 1; `where` names the layer.

    Raises:
        ValueError: where both exceed 1.
    """
    # Keras rejects the combination too: a kernel with both skips input cells entirely
    if max(strides) > 1 and max(dilation_rate) > 1:
        raise ValueError(
            f"{where}: expected strides or dilation_rate above 1, not both, received "
            f"strides={strides} and dilation_rate={dilation_rate}. Leave one at 1."
        )


def known_channels(where: str, x: fk.Spec, axis: int) -> int:
    """Returns the number of channels of an input; `where` names the layer.

    Raises:
        ValueError: where the number is unknown.
    """
    channels = x.shape[axis]
    if channels is None:
        raise ValueError(
            f"{where}: expected a known number of channels on axis {axis}, received {x}. "
            "The kernel's shape depends on it: give that axis a size in fk.Input."
        )
    return channels


def check_kernel_fits(layer: Any, x: fk.Leaf) -> None:
    """Checks that the kernel of a layer with padding "valid" is not larger than the input.

    Raises:
        ValueError: where the extent of the kernel, including dilation, exceeds the input.
    """
    if layer.padding == "valid":
        pairs = zip(layer.kernel_size, layer.dilation_rate, strict=True)
        extent = tuple((size - 1) * rate + 1 for size, rate in pairs)
        check_window(layer._where, x, extent, "kernel_size", layer.data_format)


def add_bias_and_activate(layer: Any, y: jax.Array) -> jax.Array:
    """Computes `activation(y + bias)` with the bias on the channel axis.

    A layer without bias or without activation omits that step.
    """
    if layer.bias is not None:
        y = y + fk.align(layer.bias, y.ndim, channel_axis(layer.data_format))
    return y if layer.activation is None else layer.activation(y)
