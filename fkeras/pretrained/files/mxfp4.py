"""MXFP4, the encoding of the experts of gpt-oss: blocks of 32 numbers with 4 bits each and one power of 2.

A tensor is stored as two: `*_blocks` (e, rows, blocks, 16) holds two numbers a byte, the first in the low bits,
and `*_scales` (e, rows, blocks) the exponents plus 127. The decoded tensor (e, columns, rows) is transposed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from jax.typing import DTypeLike

from fkeras.host.containers.stored import Stored

_BLOCKS, _SCALES = "_blocks", "_scales"
# bytes of a block
_BYTES = 16
# the numbers of 4 bits: a sign, two bits of the exponent and one of the fraction
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def decoded(tensors: Mapping[str, Stored], dtype: DTypeLike | None = None) -> dict[str, Stored]:
    """Returns tensors of floats instead of blocks and scales; each tensor is computed when it is read.

    Args:
        dtype: dtype of these tensors; None for bfloat16, which holds all numbers exactly.

    Raises:
        ValueError: for blocks without scales, and for shapes or dtypes that do not fit each other.
    """
    result = dict(tensors)
    for name in [name for name in tensors if name.endswith(_BLOCKS)]:
        whole = name.removesuffix(_BLOCKS)
        pair = result.pop(name), result.pop(whole + _SCALES, None)
        if whole in result:
            raise ValueError(
                f"expected {name!r} or {whole!r}, received both. Download the folder again."
            )
        result[whole] = _stored(name, *pair, np.dtype(dtype or "bfloat16"))
    return result


def _stored(name: str, blocks: Stored, scales: Stored | None, dtype: np.dtype) -> Stored:
    shape, kinds = blocks.shape, {blocks.dtype.name, scales and scales.dtype.name}
    fits = len(shape) == 4 and shape[3] == _BYTES and kinds == {"uint8"}
    if scales is None or not fits or scales.shape != shape[:3]:
        other = "no scales" if scales is None else f"scales {scales.dtype} {scales.shape}"
        raise ValueError(
            f"{name}: expected uint8 blocks (e, rows, blocks, {_BYTES}) and scales (e, rows, blocks) of MXFP4, "
            f"received blocks {blocks.dtype} {shape} and {other}. Download the folder again."
        )
    experts, rows, count, _ = shape

    def release() -> None:
        blocks.release()
        scales.release()

    read = functools.partial(_decode, blocks, scales, dtype)
    return Stored((experts, 2 * _BYTES * count, rows), dtype, read, release)


def _decode(blocks: Stored, scales: Stored, dtype: np.dtype) -> np.ndarray:
    codes, exponents = np.asarray(blocks.read()), np.asarray(scales.read())
    # the two float32 numbers of each byte as a single 64-bit number, so that a lookup gives both
    values, byte = np.array(_VALUES, "float32"), np.arange(256)
    pairs = np.stack([values[byte & 15], values[byte >> 4]], axis=1).view("uint64")[:, 0]
    # 2.0**-127 to 2.0**127; the exponent 255 stands for NaN
    powers = np.append(np.ldexp(np.float32(1), np.arange(-127, 128)), np.float32(np.nan))
    experts, rows, count, _ = codes.shape
    result = np.empty((experts, rows, 2 * _BYTES * count), dtype)
    # no warning of infinite numbers: the loader reports weights that are not finite
    with np.errstate(over="ignore", invalid="ignore"):
        # the float32 numbers of one expert at a time
        for own, code, exponent in zip(result, codes, exponents, strict=True):
            numbers = pairs[code].view("float32")
            numbers *= powers[exponent][..., None]
            own[...] = numbers.reshape(own.shape)
    return result.swapaxes(1, 2)
