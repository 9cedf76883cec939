"""Models of sentencepiece: the fields of the file, and damaged bytes."""

import contextlib
import random

import pytest

import fkeras as fk
from fkeras.pretrained.vocabularies.sentencepiece_file import read_sentencepiece
from tests.pretrained.tokenizer_folders import GOOD, number, piece, text


def read(data, **limits):
    return read_sentencepiece(data, "tokenizer.model", fk.Limits(**limits))


def test_fields():
    content = read(GOOD + text(3, text(2, b"map") + number(3, 0) + number(4, 0)))
    assert content == (["<unk>", "▁a"], [0.0, -1.5], [2, 1], "bpe", True, b"map", False, False)


@pytest.mark.exhaustive
def test_defaults():
    assert read(text(1, text(1, b"a"))) == (["a"], [0.0], [1], "unigram", False, b"", True, True)


def test_unknown_fields_are_skipped():
    unknown = number(200, 1 << 40) + text(201, b"x") + b"\x81\x40" + b"\0" * 8 + text(4, b"")
    assert read(unknown + GOOD + unknown) == read(GOOD)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no pieces"),
        (text(2, b""), "no pieces"),
        (GOOD[:-1], "of a field at"),
        (GOOD + b"\x80", "beyond the end"),
        (GOOD + b"\xff" * 10 + b"\x01", "more than 64 bits"),
        (GOOD + b"\x02\x00", "the number 0"),
        (GOOD + b"\x0b", "the wire type 3"),
        (GOOD + b"\x0f", "the wire type 7"),
        (GOOD + number(1, 3), "in place of bytes"),
        (GOOD + number(3, 3), "in place of bytes"),
        (piece("a", float("nan")), "the score nan"),
        (piece("a", float("inf")), "the score inf"),
        (piece("a", kind=7), "from 1 to 6"),
        (piece("a", kind=0), "from 1 to 6"),
        (text(1, text(2, b"abcde")), "no 32-bit float"),
        (text(1, number(2, 3)), "no 32-bit float"),
        (text(1, text(1, b"\xff")), "utf-8"),
        (GOOD + text(2, number(3, 5)), "from 1 to 4"),
        (GOOD + text(2, number(35, 2)), "from 0 to 1"),
        (GOOD + text(3, text(3, b"a")), "from 0 to 1"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        (b"IQ== 0\nIg== 1\n", "begins with b'IQ== 0"),
    ],
)
def test_damaged(data, message):
    with pytest.raises(fk.FileError, match=message) as caught:
        read(data)
    assert caught.value.member == "tokenizer.model"


def test_limits():
    with pytest.raises(fk.FileError, match="at most 1 pieces"):
        read(GOOD, objects=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_raise_no_other_errors(seed):
    rng = random.Random(seed)
    for _ in range(300):
        data = bytearray(GOOD)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(fk.FileError):
            read(bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data))
