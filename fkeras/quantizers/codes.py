"""Numbers as small integers and scales: the coding of whole arrays, of groups, and of two in a byte.

What quantizes weights computes with NumPy where its argument is no tracer: weights of many shapes
are coded once, and no program is compiled for any of them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_EPSILON = 1e-7


def _of(x: Any) -> tuple[Any, Any]:
    """The functions for `x`, and `x` as an array of theirs."""
    if isinstance(x, Tracer):
        return jnp, x
    return np, np.asarray(x)


def abs_max_quantize(
    x: Any,
    axis: int | tuple[int, ...],
    value_range: tuple[int, int] = (-127, 127),
    dtype: str = "int8",
    epsilon: float = _EPSILON,
) -> tuple[Any, Any]:
    """Computes `round(x * scale)` with `scale = value_range[1] / (max(|x|) + epsilon)`.

    Args:
        x: an array of floats.
        axis: the axes that share one scale.
        value_range: the least and the greatest code; codes beyond are clipped.
        dtype: the dtype of the codes.
        epsilon: keeps the scale of zeros finite.

    Returns:
        The codes, of the shape of `x`, and the scale with size 1 along `axis`; codes / scale is
        about `x`. Of NumPy, unless `x` is traced.

    Example:
        >>> import jax.numpy as jnp
        >>> codes, scale = abs_max_quantize(jnp.array([[1.0, -2.0, 0.5]]), axis=-1)
        >>> codes, scale
        (array([[  64, -127,   32]], dtype=int8), array([[63.5]], dtype=float32))
    """
    xp, x = _of(x)
    low, high = value_range
    most = xp.max(xp.abs(x), axis=axis, keepdims=True)
    scale = (high / (most + xp.asarray(epsilon, x.dtype))).astype(x.dtype)
    return xp.clip(xp.round(x * scale), low, high).astype(dtype), scale


def abs_max_quantize_grouped_with_zero_point(
    x: Any,
    block_size: int,
    value_range: tuple[int, int] = (-8, 7),
    dtype: str = "int8",
    epsilon: float = _EPSILON,
) -> tuple[Any, Any, Any]:
    """Computes `round(x / scale) + zero` with a scale and a zero for each group of rows.

    A group is `block_size` rows of a column; the last one may have fewer. Its smallest number, or 0
    if that is smaller, is coded as `value_range[0]`, its greatest, or 0, as `value_range[1]`.
    (Keras leaves 0 out, and loses groups whose numbers have one sign.)

    Args:
        x: a matrix (rows, columns).
        block_size: how many rows a group has.
        value_range: the least and the greatest code.
        dtype: the dtype of the codes.
        epsilon: keeps the scale of equal numbers above 0.

    Returns:
        The codes (rows, columns), the scales (groups, columns), and the zeros, int8 of the same
        shape; (codes - zero) * scale is about `x`.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([[0.0], [3.0], [-1.0], [2.0]])
        >>> codes, scale, zero = abs_max_quantize_grouped_with_zero_point(x, block_size=2)
        >>> codes.ravel(), zero.ravel()
        (array([-8,  7, -8,  7], dtype=int8), array([-8, -3], dtype=int8))
    """
    xp, x = _of(x)
    low, high = value_range
    rows, columns = x.shape
    groups = -(-rows // block_size)
    padded = xp.pad(x, ((0, groups * block_size - rows), (0, 0)))
    blocks = xp.reshape(padded, (groups, block_size, columns))
    least = xp.minimum(xp.min(blocks, axis=1, keepdims=True), 0)
    most = xp.maximum(xp.max(blocks, axis=1, keepdims=True), 0)
    scale = ((most - least + xp.asarray(epsilon, x.dtype)) / (high - low)).astype(x.dtype)
    zero = xp.clip(xp.round(-least / scale) + low, low, high)
    codes = xp.clip(xp.round(blocks / scale) + zero, low, high).astype(dtype)
    codes = xp.reshape(codes, (groups * block_size, columns))[:rows]
    return codes, xp.squeeze(scale, axis=1), xp.squeeze(zero, axis=1).astype("int8")


def dequantize_groups(
    codes: jax.Array, scale: jax.Array, zero: jax.Array, groups: jax.Array, axis: int
) -> jax.Array:
    """Computes `(codes - zero) * scale` with the zero and the scale of each place's group.

    Args:
        codes: integers.
        scale: the scales, with a place for each group along `axis`.
        zero: the zeros likewise.
        groups: the number of the group of each place along `axis` of the codes.
        axis: the axis with groups.

    Example:
        >>> import jax.numpy as jnp
        >>> codes, groups = jnp.array([[1], [2], [3]], "int8"), jnp.array([0, 0, 1])
        >>> scale, zero = jnp.array([[0.5], [2.0]]), jnp.array([[1], [0]], "int8")
        >>> dequantize_groups(codes, scale, zero, groups, axis=0).ravel()
        Array([0. , 0.5, 6. ], dtype=float32)
    """
    groups = groups.astype("int32")
    scale = jnp.take(scale, groups, axis=axis)
    zero = jnp.take(zero, groups, axis=axis).astype(scale.dtype)
    return (codes.astype(scale.dtype) - zero) * scale


def pack_int4(codes: Any, axis: int = 0) -> Any:
    """Two codes of 4 bits a byte: along `axis` the first in the low half, the next in the high one.

    Args:
        codes: int8 from -8 to 7, or uint8 from 0 to 15.
        axis: the axis that gets half as long; an odd one is filled up with a 0.

    Returns:
        The bytes, in the dtype of the codes.

    Example:
        >>> import jax.numpy as jnp
        >>> pack_int4(jnp.array([-3, 7, 2], "int8"))
        array([125,   2], dtype=int8)
    """
    xp, codes = _of(codes)
    codes = xp.moveaxis(codes, axis, 0)
    codes = xp.pad(codes, ((0, codes.shape[0] % 2), *((0, 0),) * (codes.ndim - 1)))
    # in unsigned bytes, where a shift drops no sign
    halves = codes.view("uint8") & np.uint8(0x0F)
    packed = halves[::2] | (halves[1::2] << np.uint8(4))
    return xp.moveaxis(packed.view(codes.dtype), 0, axis)


def unpack_int4(packed: Any, size: int, axis: int = 0) -> Any:
    """The codes that `pack_int4` put into bytes.

    Args:
        packed: int8 for codes from -8 to 7, uint8 for codes from 0 to 15.
        size: how many codes there are along `axis`.
        axis: the axis that was packed.

    Returns:
        The codes, in the dtype of the bytes.

    Example:
        >>> import jax.numpy as jnp
        >>> unpack_int4(jnp.array([125, 2], "int8"), 3)
        array([-3,  7,  2], dtype=int8)
    """
    xp, packed = _of(packed)
    packed, four = xp.moveaxis(packed, axis, 0), xp.asarray(4, packed.dtype)
    # shifts of signed integers keep the sign
    halves = xp.stack([(packed << four) >> four, packed >> four], axis=1)
    codes = xp.reshape(halves, (2 * packed.shape[0], *packed.shape[1:]))[:size]
    return xp.moveaxis(codes, 0, axis)
