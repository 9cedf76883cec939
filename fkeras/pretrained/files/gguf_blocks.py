"""Encodings of numbers in GGUF files: floats, and blocks of small integers with a scale.

A block of 32 or 256 numbers holds a scale, sometimes an offset, and codes of 2 to 8 bits. The
functions decode an array (blocks, bytes) to float32 (blocks, numbers).
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np

# numbers that are decoded at once: the intermediate arrays stay in the cache
_CHUNK = 1 << 18


@dataclasses.dataclass(frozen=True)
class Encoding:
    """One encoding.

    Args:
        name: name in llama.cpp.
        block: numbers in a block.
        bytes: bytes of a block.
        dtype: dtype of decoded numbers.
        blocks: decodes blocks; None for plain numbers of `dtype`.
    """

    name: str
    block: int
    bytes: int
    dtype: type | np.dtype = np.float32
    blocks: Callable[[np.ndarray], np.ndarray] | None = None


def decode(data: np.ndarray, encoding: Encoding, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the numbers of a tensor.

    Args:
        data: its bytes.
    """
    if encoding.blocks is None:
        return np.asarray(data).view(encoding.dtype).reshape(shape)
    blocks = np.asarray(data).reshape(-1, encoding.bytes)
    result = np.empty((len(blocks), encoding.block), np.float32)
    step = _CHUNK // encoding.block
    # a scale of infinity or NaN: the loader reports weights that are not finite
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(blocks), step):
            result[start : start + step] = encoding.blocks(blocks[start : start + step])
    return result.reshape(shape)


def _half(data: np.ndarray) -> np.ndarray:
    """Returns float16 numbers (blocks, n) of bytes (blocks, 2n) as float32."""
    return np.ascontiguousarray(data).view("<f2").astype(np.float32)


def _shifted(data: np.ndarray, shifts: tuple[int, ...], width: int, mask: int) -> np.ndarray:
    """Returns codes inside of bytes.

    For each run of `width` bytes: the codes of all bytes at the first shift, then at the next.
    """
    runs = data.reshape(len(data), -1, 1, width)
    places = np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    return ((runs >> places) & mask).reshape(len(data), -1)


def _nibbles(data: np.ndarray, width: int) -> np.ndarray:
    return _shifted(data, (0, 4), width, 15)


def _fifth_bits(data: np.ndarray) -> np.ndarray:
    """Returns 16 for each of 32 set bits (blocks, 4 bytes)."""
    return np.unpackbits(data, axis=1, bitorder="little") << 4


def _q4_0(b: np.ndarray) -> np.ndarray:
    return _half(b[:, :2]) * (_nibbles(b[:, 2:], 16).astype(np.int8) - 8)


def _q4_1(b: np.ndarray) -> np.ndarray:
    return _half(b[:, :2]) * _nibbles(b[:, 4:], 16) + _half(b[:, 2:4])


def _q5_0(b: np.ndarray) -> np.ndarray:
    codes = _nibbles(b[:, 6:], 16) | _fifth_bits(b[:, 2:6])
    return _half(b[:, :2]) * (codes.astype(np.int8) - 16)


def _q5_1(b: np.ndarray) -> np.ndarray:
    codes = _nibbles(b[:, 8:], 16) | _fifth_bits(b[:, 4:8])
    return _half(b[:, :2]) * codes + _half(b[:, 2:4])


def _q8_0(b: np.ndarray) -> np.ndarray:
    return _half(b[:, :2]) * b[:, 2:].view(np.int8)


def _grouped(
    codes: np.ndarray, scales: np.ndarray, offsets: np.ndarray | None = None
) -> np.ndarray:
    """Multiplies groups of equal size by their scales, and subtracts their offsets."""
    groups = codes.reshape(len(codes), scales.shape[1], -1).astype(np.float32)
    result = groups * scales[:, :, None]
    if offsets is not None:
        result -= offsets[:, :, None]
    return result.reshape(len(codes), -1)


def _six_bits(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns 8 scales and 8 minima of 6 bits in 12 bytes, times the two floats before them."""
    first, second, third = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = np.hstack([first & 63, (third & 15) | ((first >> 2) & 48)])
    minima = np.hstack([second & 63, (third >> 4) | ((second >> 2) & 48)])
    return _half(b[:, :2]) * scales, _half(b[:, 2:4]) * minima


def _q2_k(b: np.ndarray) -> np.ndarray:
    codes = _shifted(b[:, 16:80], (0, 2, 4, 6), 32, 3)
    return _grouped(
        codes, _half(b[:, 80:82]) * (b[:, :16] & 15), _half(b[:, 82:]) * (b[:, :16] >> 4)
    )


def _q3_k(b: np.ndarray) -> np.ndarray:
    low = _shifted(b[:, 32:96], (0, 2, 4, 6), 32, 3).astype(np.int8)
    high = _shifted(b[:, :32], tuple(range(8)), 32, 1).astype(np.int8)
    scales = _nibbles(b[:, 96:104], 8) | (_shifted(b[:, 104:108], (0, 2, 4, 6), 4, 3) << 4)
    # a clear high bit stands for 4 less
    return _grouped(low - 4 * (1 - high), _half(b[:, 108:]) * (scales.astype(np.int8) - 32))


def _q4_k(b: np.ndarray) -> np.ndarray:
    return _grouped(_nibbles(b[:, 16:], 32), *_six_bits(b))


def _q5_k(b: np.ndarray) -> np.ndarray:
    high = _shifted(b[:, 16:48], tuple(range(8)), 32, 1)
    return _grouped(_nibbles(b[:, 48:], 32) | (high << 4), *_six_bits(b))


def _q6_k(b: np.ndarray) -> np.ndarray:
    codes = _nibbles(b[:, :128], 64) | (_shifted(b[:, 128:192], (0, 2, 4, 6), 32, 3) << 4)
    scales = _half(b[:, 208:]) * b[:, 192:208].view(np.int8)
    return _grouped(codes.astype(np.int8) - 32, scales)


def _mxfp4(b: np.ndarray) -> np.ndarray:
    # as llama.cpp: integers twice as large, with half of the power of 2
    numbers = np.array((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), np.float32)
    powers = np.ldexp(np.float32(1), b[:, :1].astype(np.int32) - 128)
    return powers * numbers[_nibbles(b[:, 1:], 16)]


#: names of encodings that are not supported, by their number in the format
UNSUPPORTED: Mapping[int, str] = types.MappingProxyType(
    {
        9: "Q8_1",
        15: "Q8_K",
        16: "IQ2_XXS",
        17: "IQ2_XS",
        18: "IQ3_XXS",
        19: "IQ1_S",
        20: "IQ4_NL",
        21: "IQ3_S",
        22: "IQ2_S",
        23: "IQ4_XS",
        24: "I8",
        25: "I16",
        26: "I32",
        27: "I64",
        28: "F64",
        29: "IQ1_M",
        34: "TQ1_0",
        35: "TQ2_0",
        40: "NVFP4",
        41: "Q1_0",
    }
)
#: encodings by their number in the format
ENCODINGS: Mapping[int, Encoding] = types.MappingProxyType(
    {
        0: Encoding("F32", 1, 4),
        1: Encoding("F16", 1, 2, np.float16),
        2: Encoding("Q4_0", 32, 18, blocks=_q4_0),
        3: Encoding("Q4_1", 32, 20, blocks=_q4_1),
        6: Encoding("Q5_0", 32, 22, blocks=_q5_0),
        7: Encoding("Q5_1", 32, 24, blocks=_q5_1),
        8: Encoding("Q8_0", 32, 34, blocks=_q8_0),
        10: Encoding("Q2_K", 256, 84, blocks=_q2_k),
        11: Encoding("Q3_K", 256, 110, blocks=_q3_k),
        12: Encoding("Q4_K", 256, 144, blocks=_q4_k),
        13: Encoding("Q5_K", 256, 176, blocks=_q5_k),
        14: Encoding("Q6_K", 256, 210, blocks=_q6_k),
        30: Encoding("BF16", 1, 2, np.dtype(ml_dtypes.bfloat16)),
        39: Encoding("MXFP4", 32, 17, blocks=_mxfp4),
    }
)
