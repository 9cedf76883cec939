"""Transposed convolutions: `Conv1DTranspose`, `Conv2DTranspose`, `Conv3DTranspose`.

A convolution computes each output cell from a window of the input. A transposed convolution does
the reverse: each input cell, times the kernel, is added to a window of the output, and neighbouring
windows are a stride apart. The transposed convolution equals the gradient of a convolution with
respect to the input of the convolution. With strides above 1 the output is larger than the input.
"""

from __future__ import annotations

from typing import Self

import jax

from fkeras import activations, constraints, initializers, regularizers
from fkeras.engine import InputSpec, option, weight
from fkeras.engine.config.converters import boolean, choice, data_format_name, integer, sizes
from fkeras.engine.config.field_types import (
    Activation,
    Constraint,
    DataFormat,
    Initializer,
    Integer,
    OptionalSizes,
    Regularizer,
    Sizes,
)
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.values.frozen import FrozenDict
from fkeras.engine.values.spec import SpecLike
from fkeras.layers.common.axis_roles import hidden_of, output_letters, window_letters
from fkeras.layers.common.ranks import Spatial
from fkeras.layers.convolution.sliding import (
    Windows1D,
    Windows2D,
    Windows3D,
    add_bias_and_activate,
    check_steps,
    known_channels,
)
from fkeras.nn.convolution import convolve_transpose
from fkeras.nn.numerics.axes import channel_axis


class _TransposedConvolution(Spatial):
    """Computes `activation(convolve_transpose(x, kernel) + bias)` over `rank` axes.

    Args of the family:
        strides: distance between the output windows of neighbouring input cells.
        padding: "valid" returns all cells that the windows cover; "same" returns `strides` times
            the size of the input.
        output_padding: number of cells to add to the smallest possible size; below the strides.
            With None, n input cells give (n - 1) * stride + max(extent, stride) cells with "valid",
            and n * stride cells with "same".
        dilation_rate: distance between the output cells that a kernel writes; above 1 only with
            strides of 1.
        Other arguments: those of `Conv2D`, without `groups`.

    Raises of the family:
        ValueError: where strides and dilation both exceed 1, or `output_padding` is not below the
            strides; for inputs without a channel axis, or with other channels than the kernel was
            built for.
    """

    filters: Integer = option(convert=integer(minimum=1))
    kernel_size: Sizes = option()
    strides: Sizes = option(default=1)
    padding: str = option(default="valid", convert=choice("valid", "same"))
    output_padding: OptionalSizes = option(default=None)
    data_format: DataFormat = option(default=None, convert=data_format_name)
    dilation_rate: Sizes = option(default=1)
    activation: Activation = option(default=None, convert=activations.get)
    use_bias: bool = option(default=True, convert=boolean)
    kernel_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)
    kernel_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    bias_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    activity_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    kernel_constraint: Constraint = option(default=None, convert=constraints.get)
    bias_constraint: Constraint = option(default=None, convert=constraints.get)

    kernel: jax.Array = weight()
    bias: jax.Array | None = weight()

    @property
    def axis_names(self) -> AxisNames:
        kernel = f"{window_letters(self.rank)}oi"
        return AxisNames(
            FrozenDict({"kernel": kernel, "bias": "o"}),
            roles=hidden_of(self.kernel, kernel),
            output=output_letters(self.data_format),
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self._where, self.strides, self.dilation_rate)
        # a convolution maps inputs of `stride` different sizes to one output size: output_padding
        # selects among these sizes
        pairs = zip(self.output_padding or (), self.strides, strict=False)
        if any(pad >= stride for pad, stride in pairs):
            raise ValueError(
                f"{self._where}: expected output_padding below strides={self.strides} along each "
                f"axis, received output_padding={self.output_padding}. A stride of n has n "
                "possible output sizes: give a smaller number, or None."
            )

    @property
    def input_spec(self) -> InputSpec:
        axes = {}
        if self.kernel is not None:
            # filters come before channels: the kernel is that of the convolution it transposes
            axes = {channel_axis(self.data_format): self.kernel.shape[-1]}
        return InputSpec(ndim=self.rank + 2, axes=axes)

    def build(self, key: jax.Array, x: SpecLike) -> Self:
        channels = known_channels(self._where, x, channel_axis(self.data_format))
        # Keras's layout, which weight files store
        shape = (*self.kernel_size, self.filters, channels)
        return self.with_weights(key, kernel=shape, bias=(self.filters,) if self.use_bias else None)

    def call(self, x: jax.Array) -> jax.Array:
        y = convolve_transpose(
            x,
            self.kernel,
            self.strides,
            self.padding,
            self.output_padding,
            self.data_format,
            self.dilation_rate,
        )
        return add_bias_and_activate(self, y)


class Conv1DTranspose(Windows1D, _TransposedConvolution):
    """Computes `activation(convolve_transpose(x, kernel) + bias)` over a sequence.

    Shapes:
        (b, t, c) -> (b, t2, f); kernel (k, f, c), bias (f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Conv1DTranspose(8, 3, 2, "same", activation="relu")
        >>> layer = layer.build(jax.random.key(0), (None, 8, 3))
        >>> layer(jnp.ones((1, 8, 3))).shape
        (1, 16, 8)
    """

    output_padding: OptionalSizes = option(default=None, convert=sizes(1, minimum=0, optional=True))


class Conv2DTranspose(Windows2D, _TransposedConvolution):
    """Computes `activation(convolve_transpose(x, kernel) + bias)` over an image.

    Shapes:
        (b, h, w, c) -> (b, h2, w2, f); kernel (kh, kw, f, c), bias (f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Conv2DTranspose(8, 3, 2, "same", activation="relu")
        >>> layer = layer.build(jax.random.key(0), (None, 7, 7, 3))
        >>> layer(jnp.ones((1, 7, 7, 3))).shape
        (1, 14, 14, 8)
    """

    output_padding: OptionalSizes = option(default=None, convert=sizes(2, minimum=0, optional=True))


class Conv3DTranspose(Windows3D, _TransposedConvolution):
    """Computes `activation(convolve_transpose(x, kernel) + bias)` over a volume.

    Shapes:
        (b, d1, d2, d3, c) -> (b, e1, e2, e3, f); kernel (k1, k2, k3, f, c), bias (f,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Conv3DTranspose(8, 3, 2, "same", activation="relu")
        >>> layer = layer.build(jax.random.key(0), (None, 4, 4, 4, 3))
        >>> layer(jnp.ones((1, 4, 4, 4, 3))).shape
        (1, 8, 8, 8, 8)
    """

    output_padding: OptionalSizes = option(default=None, convert=sizes(3, minimum=0, optional=True))


# Keras's aliases
Convolution1DTranspose = Conv1DTranspose
Convolution2DTranspose = Conv2DTranspose
Convolution3DTranspose = Conv3DTranspose
