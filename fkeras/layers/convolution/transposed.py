"""Transposed convolutions: `Conv1DTranspose`, `Conv2DTranspose`, `Conv3DTranspose`.

A convolution computes each output cell from a window of the input. A transposed convolution does
the reverse: each input cell, times the kernel, is added to a window of the output, and neighbouring
windows are a stride apart. The transposed convolution equals the gradient of a convolution with
respect to the input of the convolution. With strides above 1 the output is larger than the input.
"""

from __future__ import annotations

from typing import ClassVar, Self

import jax

from fkeras.layers.common import authoring as fk
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

    filters: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    kernel_size: fk.Sizes = fk.option()
    strides: fk.Sizes = fk.option(default=1)
    padding: str = fk.option(default="valid", convert=fk.choice("valid", "same"))
    output_padding: fk.OptionalSizes = fk.option(default=None)
    data_format: fk.DataFormat = fk.option(default=None, convert=fk.data_format_name)
    dilation_rate: fk.Sizes = fk.option(default=1)
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
        kernel = f"{window_letters(self.rank)}oi"
        return fk.AxisNames(
            fk.FrozenDict({"kernel": kernel, "bias": "o"}),
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
    def input_spec(self) -> fk.InputSpec:
        axes = {}
        if self.kernel is not None:
            # filters come before channels: the kernel is that of the convolution it transposes
            axes = {channel_axis(self.data_format): self.kernel.shape[-1]}
        return fk.InputSpec(ndim=self.rank + 2, axes=axes)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
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

    output_padding: fk.OptionalSizes = fk.option(
        default=None, convert=fk.sizes(1, minimum=0, optional=True)
    )


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

    output_padding: fk.OptionalSizes = fk.option(
        default=None, convert=fk.sizes(2, minimum=0, optional=True)
    )


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

    # Keras has another order in this class only
    _positional: ClassVar[tuple[str, ...]] = ("data_format", "output_padding")

    output_padding: fk.OptionalSizes = fk.option(
        default=None, convert=fk.sizes(3, minimum=0, optional=True)
    )


# Keras's aliases
Convolution1DTranspose = Conv1DTranspose
Convolution2DTranspose = Conv2DTranspose
Convolution3DTranspose = Conv3DTranspose
