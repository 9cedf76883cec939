"""Convolution, pooling and image patches, with the names of `keras.ops.nn`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.engine.call.node import TensorLike
from fkeras.engine.config.converters import data_format_name, sizes
from fkeras.engine.symbolic.define import op, to_floats
from fkeras.nn import pooling
from fkeras.nn.convolution import convolve
from fkeras.nn.numerics.axes import check_window

__all__ = (
    "average_pool",
    "conv",
    "depth_to_space",
    "fold",
    "max_pool",
    "space_to_depth",
    "unfold",
)

_Sizes = int | Sequence[int]


def _sizes(name: str, value: _Sizes, count: int, least: int = 1) -> tuple[int, ...]:
    return sizes(count, minimum=least).check(name, value)


def check_kernel(
    name: str,
    inputs: jax.Array,
    kernel: jax.Array,
    dilation: Sequence[int],
    padding: str,
    layout: str,
) -> None:
    """Raises a ValueError for a kernel larger than the inputs, for which XLA would return an empty array."""
    if padding.lower() == "valid":
        # `zip` stops before the channel axes of the kernel
        extent = tuple((k - 1) * d + 1 for k, d in zip(kernel.shape, dilation, strict=False))
        check_window(f"fk.ops.{name}", inputs, extent, "kernel", layout)


@op
def conv(
    inputs: TensorLike,
    kernel: TensorLike,
    strides: _Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: _Sizes = 1,
) -> jax.Array:
    """Convolution: the cross-correlation of the inputs with each filter of a kernel.

    Args:
        kernel: (*kernel_size, c / groups, f).
        strides: step of the window along each axis.
        padding: "valid", "same", or "causal" for sequences.
        dilation_rate: distance between the cells of one kernel window.

    Raises:
        ValueError: if the kernel is larger than the inputs and the padding is "valid".

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> x, kernel = jnp.array([[[1.0], [2.0], [4.0]]]), jnp.array([[[-1.0]], [[1.0]]])
        >>> fk.ops.conv(x, kernel).ravel()
        Array([1., 2.], dtype=float32)
    """
    inputs, kernel = jnp.asarray(inputs), jnp.asarray(kernel)
    rank, layout = inputs.ndim - 2, data_format_name(data_format)
    strides = _sizes("conv: strides", strides, rank)
    dilation = _sizes("conv: dilation_rate", dilation_rate, rank)
    check_kernel("conv", inputs, kernel, dilation, padding, layout)
    return convolve(inputs, kernel, strides, padding.lower(), layout, dilation)


def _pool(
    function: Callable,
    name: str,
    x: jax.Array,
    pool_size: _Sizes,
    strides: _Sizes | None,
    padding: str,
    data_format: str | None,
) -> jax.Array:
    rank, layout = x.ndim - 2, data_format_name(data_format)
    pool_size = _sizes(f"{name}: pool_size", pool_size, rank)
    strides = pool_size if strides is None else _sizes(f"{name}: strides", strides, rank)
    if padding.lower() == "valid":
        # as for `conv`: report the axis instead of returning an empty array
        check_window(f"fk.ops.{name}", x, pool_size, "pool_size", layout)
    return function(x, pool_size, strides, padding.lower(), layout)


@op
def max_pool(
    inputs: TensorLike,
    pool_size: _Sizes,
    strides: _Sizes | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """Returns the maximum of each window.

    Args:
        pool_size: size of the window along each axis.
        strides: step of the window along each axis; None for `pool_size`.
        padding: "valid" for windows inside the inputs, or "same" for ceil(size / stride) windows.

    Raises:
        ValueError: if the window is larger than the inputs and the padding is "valid".

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.max_pool(jnp.array([[[1], [7], [2], [4]]]), 2).ravel()
        Array([7, 4], dtype=int32)
    """
    x = jnp.asarray(inputs)
    return _pool(pooling.max_pool, "max_pool", x, pool_size, strides, padding, data_format)


@op
def average_pool(
    inputs: TensorLike,
    pool_size: _Sizes,
    strides: _Sizes | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """Returns the mean of each window; padding does not count.

    Args:
        pool_size: size of the window along each axis.
        strides: step of the window along each axis; None for `pool_size`.
        padding: "valid" for windows inside the inputs, or "same" for ceil(size / stride) windows.

    Raises:
        ValueError: if the window is larger than the inputs and the padding is "valid".

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.average_pool(jnp.array([[[1.0], [7.0], [2.0]]]), 2, padding="same").ravel()
        Array([4., 2.], dtype=float32)
    """
    x = to_floats(inputs)
    return _pool(pooling.average_pool, "average_pool", x, pool_size, strides, padding, data_format)


@op
def unfold(
    x: TensorLike,
    kernel_size: _Sizes,
    dilation: _Sizes = 1,
    padding: _Sizes = 0,
    stride: _Sizes = 1,
) -> jax.Array:
    """Extracts the windows of images as columns (im2col).

    Args:
        x: (b, c, h, w).
        kernel_size: height and width of the window.
        dilation: distance between the cells of a window.
        padding: number of zeros at both ends of each axis.
        stride: steps of the window.

    Returns:
        An array of shape (b, c * kh * kw, windows).

    Raises:
        ValueError: if the array has another rank.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.unfold(jnp.arange(6.0).reshape(1, 1, 2, 3), 2)[0].T
        Array([[0., 1., 3., 4.],
               [1., 2., 4., 5.]], dtype=float32)
    """
    x = jnp.asarray(x)
    _check_rank("unfold", x, 4, "(b, c, h, w)")
    pads = [(0, 0), (0, 0), *((p, p) for p in _sizes("unfold: padding", padding, 2, 0))]
    # each output is a copy of one element; TPUs and TF32 would round it in the convolution
    patches = lax.conv_general_dilated_patches(
        jnp.pad(x, pads),
        _sizes("unfold: kernel_size", kernel_size, 2),
        _sizes("unfold: stride", stride, 2),
        "VALID",
        rhs_dilation=_sizes("unfold: dilation", dilation, 2),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
        precision=lax.Precision.HIGHEST,
    )
    return jnp.reshape(patches, (*patches.shape[:2], patches.shape[2] * patches.shape[3]))


@op
def fold(
    x: TensorLike,
    output_size: _Sizes,
    kernel_size: _Sizes,
    dilation: _Sizes = 1,
    padding: _Sizes = 0,
    stride: _Sizes = 1,
) -> jax.Array:
    """Sums columns of windows into images (col2im); the transpose of `unfold`.

    Args:
        x: (b, c * kh * kw, windows).
        output_size: height and width of the images.
        kernel_size: height and width of the window.
        dilation: distance between the cells of a window.
        padding: number of cells to remove at both ends of each axis.
        stride: steps of the window.

    Returns:
        An array of shape (b, c, h, w).

    Raises:
        ValueError: if the array has another rank.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.fold(jnp.ones((1, 4, 2)), (2, 3), 2)[0, 0]
        Array([[1., 2., 1.],
               [1., 2., 1.]], dtype=float32)
    """
    x = jnp.asarray(x)
    _check_rank("fold", x, 3, "(b, c * kh * kw, windows)")
    size = _sizes("fold: output_size", output_size, 2)
    kernel = _sizes("fold: kernel_size", kernel_size, 2)
    options = {"dilation": dilation, "padding": padding, "stride": stride}
    image = jax.ShapeDtypeStruct(
        (x.shape[0], x.shape[1] // (kernel[0] * kernel[1]), *size), x.dtype
    )
    # `unfold` is linear, and its transpose adds up overlapping windows: no scatter is needed
    transpose = jax.linear_transpose(lambda y: unfold.function(y, kernel, **options), image)
    return transpose(x)[0]


def _check_rank(name: str, x: jax.Array, rank: int, form: str) -> None:
    if x.ndim != rank:
        raise ValueError(
            f"{name}: expected an array {form}, received one of shape {x.shape}. Give it "
            f"{rank} axes, the batch included."
        )


def _check_block(name: str, block_size: int) -> None:
    if block_size < 2:
        raise ValueError(
            f"{name}: block_size: expected an integer of 2 or more, received {block_size}. 1 would "
            "change nothing."
        )


@op
def depth_to_space(x: TensorLike, block_size: int, data_format: str = "channels_last") -> jax.Array:
    """Rearranges blocks of channels into blocks of pixels.

    Args:
        x: (b, h, w, c * block_size**2), or with the channels second.
        block_size: height and width of a block.
        data_format: "channels_last" or "channels_first".

    Returns:
        An array of shape (b, h * block_size, w * block_size, c), or with the channels second.

    Raises:
        ValueError: if `block_size` is below 2.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.depth_to_space(jnp.arange(4).reshape(1, 1, 1, 4), 2)[0, :, :, 0]
        Array([[0, 1],
               [2, 3]], dtype=int32)
    """
    _check_block("depth_to_space", block_size)
    x, size = jnp.asarray(x), block_size
    if data_format_name(data_format) == "channels_last":
        b, h, w, c = x.shape
        # channels are ordered (row, column, c); move rows beside h and columns beside w
        y = jnp.reshape(x, (b, h, w, size, size, c // size**2)).transpose(0, 1, 3, 2, 4, 5)
        return jnp.reshape(y, (b, h * size, w * size, c // size**2))
    b, c, h, w = x.shape
    # channels are ordered (c, row, column) here, unlike with "channels_last"
    y = jnp.reshape(x, (b, c // size**2, size, size, h, w)).transpose(0, 1, 4, 2, 5, 3)
    return jnp.reshape(y, (b, c // size**2, h * size, w * size))


@op
def space_to_depth(x: TensorLike, block_size: int, data_format: str = "channels_last") -> jax.Array:
    """Rearranges blocks of pixels into blocks of channels.

    Args:
        x: (b, h, w, c), or with the channels second.
        block_size: height and width of a block.
        data_format: "channels_last" or "channels_first".

    Returns:
        An array of shape (b, h / block_size, w / block_size, c * block_size**2), or with the
        channels second.

    Raises:
        ValueError: if `block_size` is below 2.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.ops.space_to_depth(jnp.arange(4).reshape(1, 2, 2, 1), 2).tolist()
        [[[[0, 1, 2, 3]]]]
    """
    _check_block("space_to_depth", block_size)
    x, size = jnp.asarray(x), block_size
    if data_format_name(data_format) == "channels_last":
        b, h, w, c = x.shape
        # the inverse of `depth_to_space`, with the same order of channels
        y = jnp.reshape(x, (b, h // size, size, w // size, size, c)).transpose(0, 1, 3, 2, 4, 5)
        return jnp.reshape(y, (b, h // size, w // size, c * size**2))
    b, c, h, w = x.shape
    y = jnp.reshape(x, (b, c, h // size, size, w // size, size)).transpose(0, 1, 3, 5, 2, 4)
    return jnp.reshape(y, (b, c * size**2, h // size, w // size))
