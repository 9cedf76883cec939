"""Convolutions over sequences, images and volumes: `Conv1D`, `Conv2D`, `Conv3D`.

A base class implements all three; each subclass sets the number of spatial axes.
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
    Windows3D,
    add_bias_and_activate,
    check_kernel_fits,
    check_steps,
    known_channels,
)
from fkeras.nn.convolution import convolve
from fkeras.nn.numerics.axes import channel_axis

WHOLE_CHANNELS = fk.FrozenDict({"i": fk.WHOLE, "o": fk.WHOLE})


class _Convolution(Spatial):
    """Computes `activation(convolve(x, kernel) + bias)` over `rank` axes.

    Args of the family:
        filters: number `f` of filters: the channels of the output.
        strides: steps of the window along each axis.
        padding: "valid" keeps windows inside the input; "same" pads with zeros, so that the output
            has the size of the input with strides of 1.
        dilation_rate: distance between the input cells that a kernel reads; above 1 only with
            strides of 1.
        groups: number of groups of channels; each group computes f / groups of the filters from
            c / groups of the channels.
        activation: activation function or its name; None is the identity.
        use_bias: whether to add a bias.
        kernel_initializer: draws the kernel.
        bias_initializer: draws the bias.
        kernel_regularizer: penalty on the kernel.
        bias_regularizer: penalty on the bias.
        activity_regularizer: penalty on the output, divided by the batch size.
        kernel_constraint: projection of the kernel after each update.
        bias_constraint: projection of the bias after each update.

    Raises of the family:
        ValueError: where `filters` is not a multiple of `groups`, or strides and dilation both
            exceed 1; for inputs without a channel axis, with other channels than the kernel was
            built for, or smaller than the kernel with padding "valid".
    """

    filters: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    kernel_size: fk.Sizes = fk.option()
    strides: fk.Sizes = fk.option(default=1)
    padding: str = fk.option(default="valid", convert=fk.choice("valid", "same"))
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    dilation_rate: fk.Sizes = fk.option(default=1)
    groups: fk.Integer = fk.option(default=1, convert=fk.integer(minimum=1))
    activation: fk.Activation = fk.option(default=None, convert=fk.activation)
    use_bias: bool = fk.option(default=True, convert=fk.boolean)
    kernel_initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    kernel_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    bias_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    activity_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    kernel_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    bias_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)

    kernel: jax.Array = fk.weight()
    bias: jax.Array | None = fk.weight()

    @property
    def axis_names(self) -> fk.AxisNames:
        kernel = f"{window_letters(self.rank)}io"
        return fk.AxisNames(
            fk.FrozenDict({"kernel": kernel, "bias": "o"}),
            roles=hidden_of(self.kernel, kernel) if self.groups == 1 else WHOLE_CHANNELS,
            output=output_letters(self.data_format),
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        # here, and not in `build`: the traceback then shows the user's line that makes the layer
        if self.filters % self.groups:
            raise ValueError(
                f"{self._where}: expected filters to be a multiple of groups={self.groups}, "
                f"received filters={self.filters}. Each group computes filters / groups of the "
                f"filters: give filters={_next_multiple(self.filters, self.groups)}, or other "
                "groups."
            )
        check_steps(self._where, self.strides, self.dilation_rate)

    @property
    def input_spec(self) -> fk.InputSpec:
        axes = {}
        if self.kernel is not None:
            # axis -2 of a grouped kernel has the channels of one group only
            axes = {channel_axis(self.data_format): self.kernel.shape[-2] * self.groups}
        return fk.InputSpec(ndim=self.rank + 2, axes=axes)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        axis = channel_axis(self.data_format)
        channels = known_channels(self._where, x, axis)
        if channels % self.groups:
            raise ValueError(
                f"{self._where}: expected channels on axis {axis} divisible by "
                f"groups={self.groups}, received {x} with {channels}. Give a divisor of {channels} "
                "as groups, or another number of channels."
            )
        # Keras's kernel layout for both data formats, so that weight files need no transposition
        shape = (*self.kernel_size, channels // self.groups, self.filters)
        return self.with_weights(key, kernel=shape, bias=(self.filters,) if self.use_bias else None)

    def call(self, x: jax.Array) -> jax.Array:
        # XLA returns an empty array for a kernel larger than the input
        check_kernel_fits(self, x)
        y = convolve(
            x, self.kernel, self.strides, self.padding, self.data_format, self.dilation_rate
        )
        return add_bias_and_activate(self, y)


def _next_multiple(number: int, divisor: int) -> int:
    return -(-number // divisor) * divisor


class Conv1D(Windows1D, _Convolution):
    """Computes `activation(convolve(x, kernel) + bias)` over a sequence.

    Args:
        padding: "valid" keeps windows inside the input; "same" pads with zeros, so that the output
            has the size of the input with strides of 1; "causal" pads only the start, so that no
            output depends on a later step.

    Shapes:
        (b, t, c) -> (b, t2, f); kernel (k, c / groups, f), bias (f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Conv1D(8, 3, activation="relu")
        >>> layer = layer.build(jax.random.key(0), (None, 16, 3))
        >>> layer(jnp.ones((1, 16, 3))).shape
        (1, 14, 8)
    """

    padding: str = fk.option(default="valid", convert=fk.choice("valid", "same", "causal"))


class Conv2D(Windows2D, _Convolution):
    """Computes `activation(convolve(x, kernel) + bias)` over an image.

    Shapes:
        (b, h, w, c) -> (b, h2, w2, f); kernel (kh, kw, c / groups, f), bias (f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Conv2D(8, 3, activation="relu")
        >>> layer = layer.build(jax.random.key(0), (None, 28, 28, 1))
        >>> layer(jnp.ones((1, 28, 28, 1))).shape
        (1, 26, 26, 8)
    """


class Conv3D(Windows3D, _Convolution):
    """Computes `activation(convolve(x, kernel) + bias)` over a volume.

    Shapes:
        (b, d1, d2, d3, c) -> (b, e1, e2, e3, f); kernel (k1, k2, k3, c / groups, f), bias (f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Conv3D(8, 3, activation="relu")
        >>> layer = layer.build(jax.random.key(0), (None, 8, 8, 8, 1))
        >>> layer(jnp.ones((1, 8, 8, 8, 1))).shape
        (1, 6, 6, 6, 8)
    """


# Keras's aliases
Convolution1D, Convolution2D, Convolution3D = Conv1D, Conv2D, Conv3D
