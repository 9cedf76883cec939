"""Folders of tokenizers without tokenizer.json, and models of sentencepiece."""

import base64
import gzip
import json
import pathlib
import struct

EXPECTED = json.loads(
    gzip.decompress((pathlib.Path(__file__).parent / "data/vocabularies.json.gz").read_bytes())
)
_CONTENTS = [base64.b64decode(content) for content in EXPECTED["contents"]]
_SHORT = {"config": "tokenizer_config.json", "added": "added_tokens.json"}


def files(name):
    """The contents of the files of a folder by name."""
    return {n: _CONTENTS[i] for n, i in EXPECTED["folders"][name]["files"].items()}


def write(place, name, **changed):
    """Writes a folder, and returns its path.

    Args:
        changed: other contents by names of files, with "_" for "."; None leaves a file out, and a
            dictionary is written as JSON.
    """
    contents = files(name)
    for key, value in changed.items():
        data = json.dumps(value).encode() if isinstance(value, dict) else value
        contents[_SHORT.get(key, key.replace("_", "."))] = data
    for file, data in contents.items():
        if data is not None:
            (place / file).write_bytes(data)
    return place


def integer(value):
    """An integer of a protocol buffer."""
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    """A field with an integer."""
    return integer(field << 3) + integer(value)


def text(field, data):
    """A field with bytes."""
    return integer(field << 3 | 2) + integer(len(data)) + data


def piece(token, score=0.0, kind=1):
    """A piece of a model of sentencepiece."""
    content = text(1, token.encode()) + b"\x15" + struct.pack("<f", score) + number(3, kind)
    return text(1, content)


GOOD = piece("<unk>", kind=2) + piece("▁a", -1.5) + text(2, number(3, 2) + number(35, 1))
