"""Quantization of arrays to small integers: one scale, scales by group, and packing of int4 pairs.

The functions that quantize weights use NumPy unless their argument is traced. Weights have many
shapes and are quantized once, so that compiling a program for each shape would not pay off.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.nn.numerics.stable import EPSILON


def _array_module(x: object) -> tuple[Any, Any]:
    """Returns `jnp` for a traced `x`, else NumPy, and `x` as an array of that module."""
    if isinstance(x, Tracer):
        return jnp, x
    return np, np.asarray(x)


def abs_max_quantize(
    x: jax.Array | np.ndarray,
    axis: int | tuple[int, ...],
    value_range: tuple[int, int] = (-127, 127),
    dtype: str = "int8",
    epsilon: float = EPSILON,
) -> tuple[Any, Any]:
    """Computes `round(x * scale)` with `scale = value_range[1] / (max(|x|) + epsilon)`.

    Args:
        x: an array of floats.
        axis: the axes that share one scale.
        value_range: the smallest and the largest code; other codes are clipped.
        dtype: the dtype of the codes.
        epsilon: the number that keeps the scale of zeros finite.

    Returns:
        The codes, with the shape of `x`, and the scale with size 1 along `axis`; codes / scale
        approximates `x`. The arrays are NumPy arrays unless `x` is traced.

    Example:
        >>> import jax.numpy as jnp
        >>> codes, scale = abs_max_quantize(jnp.array([[1.0, -2.0, 0.5]]), axis=-1)
        >>> codes, scale
        (array([[  64, -127,   32]], dtype=int8), array([[63.5]], dtype=float32))
    """
    xp, x = _array_module(x)
    low, high = value_range
    max_abs = xp.max(xp.abs(x), axis=axis, keepdims=True)
    scale = (high / (max_abs + xp.asarray(epsilon, x.dtype))).astype(x.dtype)
    return xp.clip(xp.round(x * scale), low, high).astype(dtype), scale


def abs_max_quantize_grouped_with_zero_point(
    x: jax.Array | np.ndarray,
    block_size: int,
    value_range: tuple[int, int] = (-8, 7),
    dtype: str = "int8",
    epsilon: float = EPSILON,
) -> tuple[Any, Any, Any]:
    """Computes `round(x / scale) + zero` with a scale and a zero point for each group of rows.

    A group consists of `block_size` rows of a column; the last group may have fewer rows.
    `value_range[0]` is the code of the group's minimum and `value_range[1]` that of the maximum,
    where the range always includes 0. This is a departure from Keras, which does not include 0 and
    cannot represent groups whose numbers all have the same sign.

    Args:
        x: a matrix (rows, columns).
        block_size: the number of rows of a group.
        value_range: the smallest and the largest code.
        dtype: the dtype of the codes.
        epsilon: the number that keeps the scale of a group of zeros above 0.

    Returns:
        The codes (rows, columns), the scales (groups, columns), and the zero points (groups,
        columns) as int8; (codes - zero) * scale approximates `x`.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.array([[0.0], [3.0], [-1.0], [2.0]])
        >>> codes, scale, zero = abs_max_quantize_grouped_with_zero_point(x, block_size=2)
        >>> codes.ravel(), zero.ravel()
        (array([-8,  7, -8,  7], dtype=int8), array([-8, -3], dtype=int8))
    """
    xp, x = _array_module(x)
    low, high = value_range
    rows, columns = x.shape
    groups = -(-rows // block_size)  # rounded up
    # padding with 0 does not change the range of a group, which includes 0
    padded = xp.pad(x, ((0, groups * block_size - rows), (0, 0)))
    blocks = xp.reshape(padded, (groups, block_size, columns))
    minimum = xp.minimum(xp.min(blocks, axis=1, keepdims=True), 0)
    maximum = xp.maximum(xp.max(blocks, axis=1, keepdims=True), 0)
    scale = ((maximum - minimum + xp.asarray(epsilon, x.dtype)) / (high - low)).astype(x.dtype)
    zero = xp.clip(xp.round(-minimum / scale) + low, low, high)
    codes = xp.clip(xp.round(blocks / scale) + zero, low, high).astype(dtype)
    codes = xp.reshape(codes, (groups * block_size, columns))[:rows]
    return codes, xp.squeeze(scale, axis=1), xp.squeeze(zero, axis=1).astype("int8")


def dequantize_groups(
    codes: jax.Array, scale: jax.Array, zero: jax.Array, groups: jax.Array, axis: int
) -> jax.Array:
    """Computes `(codes - zero) * scale` with the zero point and the scale of each group.

    Args:
        scale: the scales, with one entry for each group along `axis`.
        zero: the zero points, with one entry for each group along `axis`.
        groups: the index of the group for each entry of the codes along `axis`.

    Raises:
        ValueError: for indices in a dtype that rounds them.
    """
    if jnp.issubdtype(groups.dtype, jnp.floating):
        exact = 2 ** (jnp.finfo(groups.dtype).nmant + 1)
        if scale.shape[axis] > exact + 1:
            raise ValueError(
                f"dequantize: expected the indices of {scale.shape[axis]} groups in float32, received "
                f"{groups.dtype}, which rounds integers above {exact}. Cast models by fk.cast(model, "
                f"{str(groups.dtype)!r}), which keeps the indices."
            )
    groups = groups.astype("int32")
    scale = jnp.take(scale, groups, axis=axis)
    zero = jnp.take(zero, groups, axis=axis).astype(scale.dtype)
    return (codes.astype(scale.dtype) - zero) * scale


def pack_int4(codes: jax.Array | np.ndarray, axis: int = 0) -> Any:
    """Packs pairs of 4-bit codes along an axis into bytes, the first code in the low half.

    Args:
        codes: int8 from -8 to 7, or uint8 from 0 to 15.
        axis: the axis to pack, which becomes half as long; an odd length is padded with a 0.

    Returns:
        The bytes, in the dtype of the codes.

    Example:
        >>> import jax.numpy as jnp
        >>> pack_int4(jnp.array([-3, 7, 2], "int8"))
        array([125,   2], dtype=int8)
    """
    xp, codes = _array_module(codes)
    codes = xp.moveaxis(codes, axis, 0)
    codes = xp.pad(codes, ((0, codes.shape[0] % 2), *((0, 0),) * (codes.ndim - 1)))
    # packs unsigned bytes: a shift of int8 would mix the sign into the bits
    halves = codes.view("uint8") & np.uint8(0x0F)
    packed = halves[::2] | (halves[1::2] << np.uint8(4))
    return xp.moveaxis(packed.view(codes.dtype), 0, axis)


def int4_codes(codes: jax.Array | np.ndarray, size: int, axis: int = 0) -> Any:
    """Returns codes in `int4` arrays as they are, and packed codes unpacked; see `unpack_int4`."""
    return codes if codes.dtype == "int4" else unpack_int4(codes, size, axis)


def unpack_int4(packed: jax.Array | np.ndarray, size: int, axis: int = 0) -> Any:
    """Unpacks the codes that `pack_int4` packed.

    Args:
        packed: int8 for codes from -8 to 7, uint8 for codes from 0 to 15.
        size: the number of codes along `axis`, which may be odd.
        axis: the axis that was packed.

    Returns:
        The codes, in the dtype of the bytes.

    Example:
        >>> import jax.numpy as jnp
        >>> unpack_int4(jnp.array([125, 2], "int8"), 3)
        array([-3,  7,  2], dtype=int8)
    """
    xp, packed = _array_module(packed)
    packed, four = xp.moveaxis(packed, axis, 0), xp.asarray(4, packed.dtype)
    # the right shift of int8 is arithmetic, so the shifts extend the sign of a code; uint8 codes
    # stay unsigned
    halves = xp.stack([(packed << four) >> four, packed >> four], axis=1)
    codes = xp.reshape(halves, (2 * packed.shape[0], *packed.shape[1:]))[:size]
    return xp.moveaxis(codes, 0, axis)
