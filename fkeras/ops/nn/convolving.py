"""Transposed, depthwise and separable convolutions and adaptive pooling, as in `keras.ops.nn`."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.config.converters import data_format_name, sizes
from fkeras.engine.symbolic.define import op, to_floats
from fkeras.nn.convolution import convolve_depthwise, convolve_separable, convolve_transpose
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.pooling import adaptive_pool
from fkeras.ops.nn.spatial import check_kernel

__all__ = (
    "adaptive_average_pool",
    "adaptive_max_pool",
    "conv_transpose",
    "depthwise_conv",
    "separable_conv",
)

_Sizes = int | Sequence[int]


@op
def conv_transpose(
    inputs: TensorLike,
    kernel: TensorLike,
    strides: _Sizes = 1,
    padding: str = "valid",
    output_padding: _Sizes | None = None,
    data_format: str | None = None,
    dilation_rate: _Sizes = 1,
) -> jax.Array:
    """Transposed convolution: the gradient of `conv` with respect to its inputs.

    Args:
        kernel: (*kernel_size, f, c).
        strides: distance in the output between the windows of neighbouring input cells.
        padding: "valid" or "same".
        output_padding: number of cells to add to the smallest output; None for the default size.
        dilation_rate: distance between the output cells of one kernel window.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x, kernel = jnp.array([[[1.0], [5.0]]]), jnp.array([1.0, 2.0, 3.0]).reshape(3, 1, 1)
        >>> fk.ops.conv_transpose(x, kernel, strides=2).ravel()
        Array([ 1.,  2.,  8., 10., 15.], dtype=float32)
    """
    inputs = jnp.asarray(inputs)
    rank = inputs.ndim - 2
    # None and 0 differ: None selects Keras's default output size
    amounts = output_padding
    return convolve_transpose(
        inputs,
        jnp.asarray(kernel),
        sizes(rank).check("conv_transpose: strides", strides),
        padding.lower(),
        None
        if amounts is None
        else sizes(rank, minimum=0).check("conv_transpose: output_padding", amounts),
        data_format_name(data_format),
        sizes(rank).check("conv_transpose: dilation_rate", dilation_rate),
    )


@op
def depthwise_conv(
    inputs: TensorLike,
    kernel: TensorLike,
    strides: _Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: _Sizes = 1,
) -> jax.Array:
    """Depthwise convolution: correlates each input channel with a separate set of m filters.

    Args:
        kernel: (*kernel_size, c, m).
        strides: the step of the window along each axis.
        padding: "valid" or "same".
        dilation_rate: distance between the cells of one kernel window.

    Raises:
        ValueError: if the kernel is larger than the inputs and the padding is "valid".

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x, kernel = jnp.array([[[1.0, 10.0], [2.0, 20.0]]]), jnp.ones((2, 2, 1))
        >>> fk.ops.depthwise_conv(x, kernel)
        Array([[[ 3., 30.]]], dtype=float32)
    """
    inputs, kernel = jnp.asarray(inputs), jnp.asarray(kernel)
    rank, layout = inputs.ndim - 2, data_format_name(data_format)
    steps = sizes(rank).check("depthwise_conv: strides", strides)
    dilation = sizes(rank).check("depthwise_conv: dilation_rate", dilation_rate)
    check_kernel("depthwise_conv", inputs, kernel, dilation, padding, layout)
    return convolve_depthwise(inputs, kernel, steps, padding.lower(), layout, dilation)


@op
def separable_conv(
    inputs: TensorLike,
    depthwise_kernel: TensorLike,
    pointwise_kernel: TensorLike,
    strides: _Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: _Sizes = 1,
) -> jax.Array:
    """Separable convolution: a depthwise convolution followed by a pointwise convolution.

    Args:
        depthwise_kernel: (*kernel_size, c, m).
        pointwise_kernel: (*ones, c * m, f).
        strides: the step of the window along each axis.
        padding: "valid" or "same".
        dilation_rate: distance between the cells of one window of the depthwise kernel.

    Raises:
        ValueError: if the kernel is larger than the inputs and the padding is "valid", or if a spatial size
            of `pointwise_kernel` is not 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x = jnp.array([[[1.0, 10.0], [2.0, 20.0]]])
        >>> fk.ops.separable_conv(x, jnp.ones((2, 2, 1)), jnp.ones((1, 2, 1)))
        Array([[[33.]]], dtype=float32)
    """
    inputs, kernel = jnp.asarray(inputs), jnp.asarray(depthwise_kernel)
    rank, layout = inputs.ndim - 2, data_format_name(data_format)
    steps = sizes(rank).check("separable_conv: strides", strides)
    dilation = sizes(rank).check("separable_conv: dilation_rate", dilation_rate)
    check_kernel("separable_conv", inputs, kernel, dilation, padding, layout)
    pointwise = jnp.asarray(pointwise_kernel)
    if any(size != 1 for size in pointwise.shape[:rank]):
        raise ValueError(
            "fk.ops.separable_conv: expected pointwise_kernel of shape (*ones, c * m, f), received "
            f"{format_shape(pointwise.shape)}. Compute other kernels with fk.ops.conv after fk.ops.depthwise_conv."
        )
    return convolve_separable(inputs, kernel, pointwise, steps, padding.lower(), layout, dilation)


def _adaptive(
    name: str, x: jax.Array, output_size: _Sizes, mode: str, data_format: str | None
) -> jax.Array:
    # all axes but batch and channels are spatial
    target = sizes(x.ndim - 2).check(f"{name}: output_size", output_size)
    return adaptive_pool(x, target, mode, data_format_name(data_format))


@op
def adaptive_average_pool(
    inputs: TensorLike, output_size: _Sizes, data_format: str | None = None
) -> jax.Array:
    """Returns the mean of each of `output_size` windows along each axis.

    Args:
        inputs: an axis of length 0 gives means of 0.
        output_size: number of windows along each axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.adaptive_average_pool(jnp.arange(6.0).reshape(1, 6, 1), 2).ravel()
        Array([1., 4.], dtype=float32)
    """
    x = to_floats(inputs)
    return _adaptive("adaptive_average_pool", x, output_size, "average", data_format)


@op
def adaptive_max_pool(
    inputs: TensorLike, output_size: _Sizes, data_format: str | None = None
) -> jax.Array:
    """Returns the maximum of each of `output_size` windows along each axis.

    Args:
        inputs: an axis of length 0 gives maxima of 0.
        output_size: number of windows along each axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.adaptive_max_pool(jnp.arange(6.0).reshape(1, 6, 1), 2).ravel()
        Array([2., 5.], dtype=float32)
    """
    # no cast to floats: the maximum of integers is an integer
    return _adaptive("adaptive_max_pool", jnp.asarray(inputs), output_size, "max", data_format)
