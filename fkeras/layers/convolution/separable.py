"""Separable convolutions: a depthwise step within channels, then a pointwise step across channels.

With a window of k cells, `SeparableConv1D` and `SeparableConv2D` have k * c * m + c * m * f kernel
weights; a convolution has k * c * f.
"""

from __future__ import annotations

from typing import Self

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.axis_roles import hidden_of, output_letters, window_letters
from fkeras.layers.common.ranks import Spatial
from fkeras.layers.convolution.sliding import (
    Windows1D,
    Windows2D,
    add_bias_and_activate,
    check_kernel_fits,
    known_channels,
)
from fkeras.nn.convolution import convolve_separable
from fkeras.nn.numerics.axes import channel_axis


class _SeparableConvolution(Spatial):
    """Computes `activation(convolve_separable(x, ...) + bias)` over `rank` axes.

    Args of the family:
        filters: number `f` of output channels, computed by the pointwise step.
        dilation_rate: distance between the input cells that a depthwise kernel sees.
        depth_multiplier: number `m` of outputs of the depthwise step for each input channel.
        depthwise_initializer: draws the depthwise kernel.
        pointwise_initializer: draws the pointwise kernel.
        depthwise_regularizer: penalty on the depthwise kernel.
        pointwise_regularizer: penalty on the pointwise kernel.
        depthwise_constraint: projection of the depthwise kernel after each update.
        pointwise_constraint: projection of the pointwise kernel after each update.
        Other arguments: those of `Conv2D`, without `groups`.

    Raises of the family:
        ValueError: for inputs without a channel axis, with other channels than the kernels were
            built for, or smaller than the depthwise kernel with padding "valid".

    References of the family:
        Chollet, 2017, Xception: deep learning with depthwise separable convolutions,
        https://arxiv.org/abs/1610.02357
    """

    filters: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    kernel_size: fk.Sizes = fk.option()
    strides: fk.Sizes = fk.option(default=1)
    padding: str = fk.option(default="valid", convert=fk.choice("valid", "same"))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    dilation_rate: fk.Sizes = fk.option(default=1)
    depth_multiplier: fk.Integer = fk.option(default=1, convert=fk.integer(minimum=1))
    activation: fk.Activation = fk.option(default=None, convert=fk.activation)
    use_bias: bool = fk.option(default=True, convert=fk.boolean)
    depthwise_initializer: fk.Initializer = fk.option(
        default="glorot_uniform", convert=fk.initializer
    )
    pointwise_initializer: fk.Initializer = fk.option(
        default="glorot_uniform", convert=fk.initializer
    )
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    depthwise_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    pointwise_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    bias_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    activity_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    depthwise_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    pointwise_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    bias_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)

    # Keras's options are `depthwise_initializer` and so on, without the word "kernel"
    depthwise_kernel: jax.Array = fk.weight(prefix="depthwise")
    pointwise_kernel: jax.Array = fk.weight(prefix="pointwise")
    bias: jax.Array | None = fk.weight()

    @property
    def axis_names(self) -> fk.AxisNames:
        depthwise, pointwise = f"{window_letters(self.rank)}cm", f"{'_' * self.rank}io"
        return fk.AxisNames(
            fk.FrozenDict(
                {"depthwise_kernel": depthwise, "pointwise_kernel": pointwise, "bias": "o"}
            ),
            roles=fk.FrozenDict(
                {**dict.fromkeys("cm", fk.WHOLE), **hidden_of(self.pointwise_kernel, pointwise)}
            ),
            output=output_letters(self.data_format),
        )

    @property
    def input_spec(self) -> fk.InputSpec:
        axes = {}
        if self.depthwise_kernel is not None:
            axes = {channel_axis(self.data_format): self.depthwise_kernel.shape[-2]}
        return fk.InputSpec(ndim=self.rank + 2, axes=axes)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        channels = known_channels(self._where, x, channel_axis(self.data_format))
        # the pointwise step is a convolution with a window of one cell along each axis
        expanded_channels = channels * self.depth_multiplier
        return self.with_weights(
            key,
            depthwise_kernel=(*self.kernel_size, channels, self.depth_multiplier),
            pointwise_kernel=(*(1,) * self.rank, expanded_channels, self.filters),
            bias=(self.filters,) if self.use_bias else None,
        )

    def call(self, x: jax.Array) -> jax.Array:
        # XLA returns an empty array for a kernel larger than the input
        check_kernel_fits(self, x)
        y = convolve_separable(
            x,
            self.depthwise_kernel,
            self.pointwise_kernel,
            self.strides,
            self.padding,
            self.data_format,
            self.dilation_rate,
        )
        return add_bias_and_activate(self, y)


class SeparableConv1D(Windows1D, _SeparableConvolution):
    """Computes `activation(convolve_separable(x, ...) + bias)` over a sequence.

    Shapes:
        (b, t, c) -> (b, t2, f); depthwise_kernel (k, c, m), pointwise_kernel
        (1, c * m, f), bias (f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.SeparableConv1D(4, 3, depth_multiplier=2)
        >>> layer = layer.build(jax.random.key(0), (None, 8, 3))
        >>> layer(jnp.ones((1, 8, 3))).shape
        (1, 6, 4)
    """


class SeparableConv2D(Windows2D, _SeparableConvolution):
    """Computes `activation(convolve_separable(x, ...) + bias)` over an image.

    Shapes:
        (b, h, w, c) -> (b, h2, w2, f); depthwise_kernel (kh, kw, c, m), pointwise_kernel
        (1, 1, c * m, f), bias (f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.SeparableConv2D(4, 3, depth_multiplier=2)
        >>> layer = layer.build(jax.random.key(0), (None, 8, 8, 3))
        >>> layer(jnp.ones((1, 8, 8, 3))).shape
        (1, 6, 6, 4)
    """


# Keras's aliases
SeparableConvolution1D, SeparableConvolution2D = SeparableConv1D, SeparableConv2D
