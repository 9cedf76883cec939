"""Reads sentencepiece models (`tokenizer.model`, `spiece.model`), which are untrusted protocol buffers.

The file is one message. A message is a sequence of fields; a field begins with an integer that holds the
number and the wire type of the field. The reader interprets only the fields that determine ids, and skips all
others, as the format prescribes. The reader needs no further package, and checks limits while reading.
"""

from __future__ import annotations

import math
import struct
import types
from collections.abc import Iterator
from typing import NamedTuple

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.file_type import describe
from fkeras.host.containers.limits import Limits, check_limit

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)

# fields of the message ModelProto and of the messages inside
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_ALGORITHM, _BYTE_FALLBACK = 3, 35
_CHARSMAP, _DUMMY_PREFIX, _TRIMS = 2, 3, 4
_ALGORITHMS = ("unigram", "bpe", "word", "char")

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = types.MappingProxyType({_FIXED64: 8, _FIXED32: 4})


class SentencePieces(NamedTuple):
    """The content of a sentencepiece model.

    Attributes:
        tokens: the texts of the pieces; the position is the id.
        scores: log probabilities of the pieces, or negative ranks of merges.
        types: types of the pieces, such as `CONTROL`.
        algorithm: "unigram", "bpe", "word" or "char".
        byte_fallback: whether characters without a piece become pieces of bytes.
        charsmap: compiled table of replacements of characters; empty without replacements.
        prefix: whether texts get a space at the start.
        trims: whether texts lose spaces at both ends and repeated spaces.
    """

    tokens: list[str]
    scores: list[float]
    types: list[int]
    algorithm: str
    byte_fallback: bool
    charsmap: bytes
    prefix: bool
    trims: bool


def read_sentencepiece(data: bytes, member: str, limits: Limits | None = None) -> SentencePieces:
    """Returns the content of a sentencepiece model.

    Args:
        data: the content of the file.
        member: name of the file in error messages.

    Raises:
        FileError: for bytes that are no sentencepiece model, and for more pieces than `limits.objects`.
    """
    limits = limits or Limits()
    try:
        return _content(data, member, limits)
    except (_MalformedError, UnicodeDecodeError) as error:
        # the bytes of another type of file: a web page, a list of ranks of tiktoken, a git-lfs pointer
        received = describe(data[:512], len(data)) if data[:1] != b"\n" else "a damaged file"
        raise FileError(
            f"expected a sentencepiece model, received {received} ({error}). Download the file again.",
            member=member,
        ) from error


class _MalformedError(ValueError):
    """Bytes that are no protocol buffer, or a value outside its domain."""


def _content(data: bytes, member: str, limits: Limits) -> SentencePieces:
    tokens: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    algorithm, byte_fallback, charsmap, prefix, trims = 1, 0, b"", 1, 1
    for number, value in _fields(data):
        if number == _PIECE:
            check_limit(limits, "objects", len(tokens) + 1, "pieces", member=member)
            token, score, kind = _piece(_as_bytes(value))
            tokens.append(token)
            scores.append(score)
            kinds.append(kind)
        elif number == _TRAINER:
            for name, inner in _fields(_as_bytes(value)):
                if name == _ALGORITHM:
                    algorithm = _integer(inner, 1, len(_ALGORITHMS))
                elif name == _BYTE_FALLBACK:
                    byte_fallback = _integer(inner, 0, 1)
        elif number == _NORMALIZER:
            for name, inner in _fields(_as_bytes(value)):
                if name == _CHARSMAP:
                    charsmap = _as_bytes(inner)
                elif name == _DUMMY_PREFIX:
                    prefix = _integer(inner, 0, 1)
                elif name == _TRIMS:
                    trims = _integer(inner, 0, 1)
    if not tokens:
        raise _MalformedError("no pieces")
    return SentencePieces(
        tokens,
        scores,
        kinds,
        _ALGORITHMS[algorithm - 1],
        bool(byte_fallback),
        charsmap,
        bool(prefix),
        bool(trims),
    )


def _piece(data: bytes) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, NORMAL
    for number, value in _fields(data):
        if number == _TEXT:
            text = _as_bytes(value).decode("utf-8")
        elif number == _SCORE:
            if not isinstance(value, bytes) or len(value) != 4:
                raise _MalformedError("a score that is no 32-bit float")
            (score,) = struct.unpack("<f", value)
            if not math.isfinite(score):
                raise _MalformedError(f"the score {score}")
        elif number == _TYPE:
            kind = _integer(value, NORMAL, BYTE)
    return text, score, kind


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yields number and value of each field: an integer, or the bytes of all other types."""
    position, size = 0, len(data)
    while position < size:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise _MalformedError("a field with the number 0")
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            length, position = _varint(data, position)
        elif wire in _WIDTHS:
            length = _WIDTHS[wire]
        else:
            raise _MalformedError(f"the wire type {wire}")
        # compared before slicing: a slice beyond the end is shorter without an error
        if length > size - position:
            raise _MalformedError(
                f"{length} bytes of a field at {position}, of which {size - position} exist"
            )
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _MalformedError("an integer beyond the end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _MalformedError("an integer of more than 64 bits")


def _as_bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise _MalformedError("an integer in place of bytes")
    return value


def _integer(value: bytes | int, least: int, most: int) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise _MalformedError(f"a value that is no integer from {least} to {most}")
    return value
