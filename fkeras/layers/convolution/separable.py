"""Separable convolutions: a depthwise step within channels, then a pointwise step across channels.

With a window of k cells, `SeparableConv1D` and `SeparableConv2D` have k * c * m + c * m * f kernel
weights; a convolution has k * c * f.
"""

from __future__ import annotations

from typing import Self

import jax

from fkeras import activations, constraints, initializers, regularizers
from fkeras.engine import InputSpec, option, weight
from fkeras.engine.config.converters import boolean, choice, data_format_name, integer
from fkeras.engine.config.field_types import (
    Activation,
    Constraint,
    DataFormat,
    Initializer,
    Integer,
    Regularizer,
    Sizes,
)
from fkeras.engine.tree.axes import WHOLE, AxisNames
from fkeras.engine.values.frozen import FrozenDict
from fkeras.engine.values.spec import SpecLike
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

    filters: Integer = option(convert=integer(minimum=1))
    kernel_size: Sizes = option()
    strides: Sizes = option(default=1)
    padding: str = option(default="valid", convert=choice("valid", "same"))
    data_format: DataFormat = option(default=None, convert=data_format_name)
    dilation_rate: Sizes = option(default=1)
    depth_multiplier: Integer = option(default=1, convert=integer(minimum=1))
    activation: Activation = option(default=None, convert=activations.get)
    use_bias: bool = option(default=True, convert=boolean)
    depthwise_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    pointwise_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)
    depthwise_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    pointwise_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    bias_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    activity_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    depthwise_constraint: Constraint = option(default=None, convert=constraints.get)
    pointwise_constraint: Constraint = option(default=None, convert=constraints.get)
    bias_constraint: Constraint = option(default=None, convert=constraints.get)

    # Keras's options are `depthwise_initializer` and so on, without the word "kernel"
    depthwise_kernel: jax.Array = weight(prefix="depthwise")
    pointwise_kernel: jax.Array = weight(prefix="pointwise")
    bias: jax.Array | None = weight()

    @property
    def axis_names(self) -> AxisNames:
        depthwise, pointwise = f"{window_letters(self.rank)}cm", f"{'_' * self.rank}io"
        return AxisNames(
            FrozenDict({"depthwise_kernel": depthwise, "pointwise_kernel": pointwise, "bias": "o"}),
            roles=FrozenDict(
                {**dict.fromkeys("cm", WHOLE), **hidden_of(self.pointwise_kernel, pointwise)}
            ),
            output=output_letters(self.data_format),
        )

    @property
    def input_spec(self) -> InputSpec:
        axes = {}
        if self.depthwise_kernel is not None:
            axes = {channel_axis(self.data_format): self.depthwise_kernel.shape[-2]}
        return InputSpec(ndim=self.rank + 2, axes=axes)

    def build(self, key: jax.Array, x: SpecLike) -> Self:
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
