"""Convolutions of arrays: standard, depthwise, separable, transposed."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fkeras.nn.cpu.convolution import Convolution, TransposedConvolution
from fkeras.nn.cpu.depthwise import Depthwise
from fkeras.nn.cpu.forms import compute
from fkeras.nn.numerics.axes import channel_axis


def convolve(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sequence[int] | None = None,
) -> jax.Array:
    """Computes the cross-correlation of `x` with each filter of `kernel`.

    The number of groups is `c` divided by the kernel's input channels.

    Args:
        x: array of shape (b, *sizes, c), or (b, c, *sizes) with "channels_first";
            integers are converted to the kernel's dtype.
        kernel: array of shape (*kernel_size, c / groups, f).
        padding: "valid" for windows inside `x`; "same" pads with zeros so that stride 1 keeps the
            sizes; "causal" pads the start only, so that no output sees a later step.
        data_format: "channels_last" or "channels_first".

    Returns:
        An array of shape (b, *new_sizes, f), or (b, f, *new_sizes).
    """
    dilation = (1,) * (x.ndim - 2) if dilation_rate is None else tuple(dilation_rate)
    depthwise = kernel.shape[-2] == 1 != x.shape[channel_axis(data_format)]
    form = Depthwise if depthwise else Convolution
    fields = tuple(strides), padding, data_format, dilation
    return compute(form(*fields), x.astype(kernel.dtype), kernel)


def convolve_depthwise(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sequence[int] | None = None,
) -> jax.Array:
    """Computes the cross-correlation of each channel of `x` with separate filters.

    Args:
        kernel: array of shape (*kernel_size, c, m), m filters for each channel.
        padding: as in `convolve`.
        Other arguments: those of `convolve`.

    Returns:
        An array of shape (b, *new_sizes, c * m), or (b, c * m, *new_sizes); the m outputs of a
        channel are adjacent.
    """
    dilation = (1,) * (x.ndim - 2) if dilation_rate is None else tuple(dilation_rate)
    form = Depthwise(tuple(strides), padding, data_format, dilation)
    # one input channel per filter: the default convolution has c groups
    grouped_kernel = kernel.reshape(*kernel.shape[:-2], 1, -1)
    return compute(form, x.astype(kernel.dtype), grouped_kernel)


def convolve_separable(
    x: jax.Array,
    depthwise_kernel: jax.Array,
    pointwise_kernel: jax.Array,
    strides: Sequence[int],
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sequence[int] | None = None,
) -> jax.Array:
    """Convolves each channel of `x` separately, then mixes the channels of each cell.

    Args:
        x: array of shape (b, *sizes, c), or (b, c, *sizes) with "channels_first";
            integers are converted to the kernels' dtype.
        depthwise_kernel: array of shape (*kernel_size, c, m), m filters for each channel.
        pointwise_kernel: array of shape (*ones, c * m, f).
        padding: as in `convolve`.
        Other arguments: those of `convolve`.

    Returns:
        An array of shape (b, *new_sizes, f), or (b, f, *new_sizes).
    """
    y = convolve_depthwise(x, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return convolve(y, pointwise_kernel, (1,) * (x.ndim - 2), "valid", data_format)


def convolve_transpose(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: str = "valid",
    output_padding: Sequence[int] | None = None,
    data_format: str = "channels_last",
    dilation_rate: Sequence[int] | None = None,
) -> jax.Array:
    """Computes a transposed convolution: adds the kernel, scaled by each cell of `x`.

    The copies of the kernel are `strides` cells apart. An axis of n cells grows to the following
    size, where e is the kernel's extent (k - 1) * dilation_rate + 1, s the stride and p the output
    padding:

        =======  =======================  =======================
        padding  without p                with p
        =======  =======================  =======================
        "valid"  (n - 1) * s + max(e, s)  (n - 1) * s + e + p
        "same"   n * s                    (n - 1) * s + e % 2 + p
        =======  =======================  =======================

    Args:
        kernel: array of shape (*kernel_size, f, c).
        padding: "valid" keeps all cells that the windows cover, "same" `strides` times the sizes.
        output_padding: number of cells to add to the smallest size that fits, along each axis;
            None for the sizes above.
        Other arguments: those of `convolve`.

    Returns:
        An array of shape (b, *new_sizes, f), or (b, f, *new_sizes).

    References:
        Dumoulin and Visin, 2016, A guide to convolution arithmetic for deep learning,
        https://arxiv.org/abs/1603.07285
    """
    rank = x.ndim - 2
    dilation_rate = (1,) * rank if dilation_rate is None else tuple(dilation_rate)
    paddings = (None,) * rank if output_padding is None else tuple(output_padding)
    pads = [
        transposed_pads((size - 1) * rate + 1, stride, padding, pad)
        for size, rate, stride, pad in zip(
            kernel.shape[:-2], dilation_rate, strides, paddings, strict=True
        )
    ]
    form = TransposedConvolution(tuple(strides), padding, data_format, dilation_rate, tuple(pads))
    # a transposed convolution is a correlation of the dilated input with the flipped kernel
    return compute(form, x.astype(kernel.dtype), jnp.flip(kernel, range(rank)))


def transposed_pads(
    extent: int, stride: int, padding: str, output_padding: int | None
) -> tuple[int, int]:
    """Returns the padding before and after an axis whose cells are already `stride` apart."""
    if padding == "valid":
        extra = max(stride - extent, 0) if output_padding is None else output_padding
        return extent - 1, extent - 1 + extra
    if output_padding is None:
        total = extent + stride - 2
    else:
        total = extent + extent % 2 - 2 + output_padding
    # as in Keras, the extra zero of an odd total goes in front; a window must still reach a cell,
    # so at most extent - 1 zeros precede the axis
    before = min(total - total // 2, extent - 1)
    return before, total - before
