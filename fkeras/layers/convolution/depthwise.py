"""Depthwise convolutions, one kernel per channel: `DepthwiseConv1D`, `DepthwiseConv2D`."""

from __future__ import annotations

from typing import Self

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.axis_roles import output_letters, window_letters
from fkeras.layers.common.ranks import Spatial
from fkeras.layers.convolution.sliding import (
    Windows1D,
    Windows2D,
    add_bias_and_activate,
    check_kernel_fits,
    known_channels,
)
from fkeras.nn.convolution import convolve_depthwise
from fkeras.nn.numerics.axes import channel_axis


class _DepthwiseConvolution(Spatial):
    """Computes `activation(convolve_depthwise(x, kernel) + bias)` over `rank` axes.

    Args of the family:
        depth_multiplier: number `m` of filters, and of output channels, for each input channel.
        depthwise_initializer: draws the kernel.
        depthwise_regularizer: penalty on the kernel.
        depthwise_constraint: projection of the kernel after each update.
        dilation_rate: distance between the input cells that a kernel reads.
        Other arguments: those of `Conv2D`, without `filters` and `groups`.

    Raises of the family:
        ValueError: for inputs without a channel axis, with other channels than the kernel was
            built for, or smaller than the kernel with padding "valid".
    """

    kernel_size: fk.Sizes = fk.option()
    strides: fk.Sizes = fk.option(default=1)
    padding: str = fk.option(default="valid", convert=fk.choice("valid", "same"))
    depth_multiplier: fk.Integer = fk.option(default=1, convert=fk.integer(minimum=1))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    dilation_rate: fk.Sizes = fk.option(default=1)
    activation: fk.Activation = fk.option(default=None, convert=fk.activation)
    use_bias: bool = fk.option(default=True, convert=fk.boolean)
    depthwise_initializer: fk.Initializer = fk.option(
        default="glorot_uniform", convert=fk.initializer
    )
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    depthwise_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    bias_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    activity_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    depthwise_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    bias_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)

    # Keras names the weight `kernel`, but its options `depthwise_initializer` and so on
    kernel: jax.Array = fk.weight(prefix="depthwise")
    bias: jax.Array | None = fk.weight()

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(
            fk.FrozenDict({"kernel": f"{window_letters(self.rank)}cm", "bias": "o"}),
            roles=fk.FrozenDict(dict.fromkeys("cm", fk.WHOLE)),
            output=output_letters(self.data_format),
        )

    @property
    def input_spec(self) -> fk.InputSpec:
        axes = {}
        if self.kernel is not None:
            axes = {channel_axis(self.data_format): self.kernel.shape[-2]}
        return fk.InputSpec(ndim=self.rank + 2, axes=axes)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        channels = known_channels(self._where, x, channel_axis(self.data_format))
        bias = (channels * self.depth_multiplier,) if self.use_bias else None
        # Keras's layout; XLA's grouped convolution needs (..., 1, channels * depth_multiplier)
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        return self.with_weights(key, kernel=shape, bias=bias)

    def call(self, x: jax.Array) -> jax.Array:
        # XLA returns an empty array for a kernel larger than the input
        check_kernel_fits(self, x)
        y = convolve_depthwise(
            x, self.kernel, self.strides, self.padding, self.data_format, self.dilation_rate
        )
        return add_bias_and_activate(self, y)


class DepthwiseConv1D(Windows1D, _DepthwiseConvolution):
    """Computes `activation(convolve_depthwise(x, kernel) + bias)` over a sequence.

    Shapes:
        (b, t, c) -> (b, t2, c * m); kernel (k, c, m), bias (c * m,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.DepthwiseConv1D(3, depth_multiplier=2)
        >>> layer = layer.build(jax.random.key(0), (None, 8, 3))
        >>> layer(jnp.ones((1, 8, 3))).shape
        (1, 6, 6)
    """


class DepthwiseConv2D(Windows2D, _DepthwiseConvolution):
    """Computes `activation(convolve_depthwise(x, kernel) + bias)` over an image.

    Shapes:
        (b, h, w, c) -> (b, h2, w2, c * m); kernel (kh, kw, c, m), bias (c * m,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.DepthwiseConv2D(3, depth_multiplier=2)
        >>> layer = layer.build(jax.random.key(0), (None, 8, 8, 3))
        >>> layer(jnp.ones((1, 8, 8, 3))).shape
        (1, 6, 6, 6)
    """
