"""Decoding of blocks against the gguf package."""

import numpy as np
import pytest

from fkeras.pretrained.files.gguf_blocks import ENCODINGS, Encoding, decode

gguf = pytest.importorskip("gguf")
CODED = [number for number, encoding in ENCODINGS.items() if encoding.blocks is not None]


def _blocks(number, count, seed=0):
    """Random codes with scales that are finite."""
    encoding = ENCODINGS[number]
    numbers = np.random.default_rng(seed)
    blocks = numbers.integers(0, 256, (count, encoding.bytes), dtype=np.uint8)
    scales = numbers.normal(size=(count, encoding.bytes // 2)).astype("<f2").view(np.uint8)
    starts = {"Q6_K": (208,), "Q3_K": (108,), "Q2_K": (80, 82)}.get(encoding.name, (0, 2))
    if encoding.name == "MXFP4":
        # powers of 2, also the smallest
        blocks[:, 0] = np.r_[0, 1, 2, numbers.integers(100, 150, count - 3)]
        return blocks
    for start in starts:
        blocks[:, start : start + 2] = scales[:, start : start + 2]
    return blocks


@pytest.mark.one_in(5)
@pytest.mark.parametrize("number", CODED, ids=lambda n: ENCODINGS[n].name)
def test_blocks_decode_to_the_same_bits(number):
    encoding = ENCODINGS[number]
    if encoding.name not in gguf.GGMLQuantizationType.__members__:
        pytest.skip("this version of gguf is older than the encoding")
    kind = gguf.GGMLQuantizationType(number)
    assert kind.name == encoding.name
    assert gguf.GGML_QUANT_SIZES[kind] == (encoding.block, encoding.bytes)
    blocks = _blocks(number, 12)
    ours = decode(blocks.reshape(-1), encoding, (3, 4 * encoding.block))
    theirs = gguf.quants.dequantize(blocks, kind)
    assert np.isfinite(theirs).all()
    assert np.array_equal(ours, theirs.reshape(3, -1))


def test_long_tensors_are_decoded_in_pieces():
    encoding = ENCODINGS[8]
    sizes = []

    def blocks(data):
        sizes.append(len(data))
        return encoding.blocks(data)

    data = np.tile(_blocks(8, 1), (10_000, 1))
    counted = Encoding("Q8_0", 32, 34, blocks=blocks)
    result = decode(data.reshape(-1), counted, (10_000, 32))
    assert sizes == [8_192, 1_808]
    assert (result == result[0]).all()
