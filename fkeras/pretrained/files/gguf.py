"""GGUF files: key-value pairs and tensors in one file, as llama.cpp reads them.

The file is untrusted: each length is compared with the bytes that remain before anything is
allocated.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.file_type import open_regular
from fkeras.host.containers.limits import Limits, check_limit
from fkeras.host.containers.mapped_file import map_file
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.files import gguf_blocks

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
# dtype of each kind of number, by its number in the format
_NUMBERS = types.MappingProxyType(
    {
        0: "<u1",
        1: "<i1",
        2: "<u2",
        3: "<i2",
        4: "<u4",
        5: "<i4",
        6: "<f4",
        7: "?",
        10: "<u8",
        11: "<i8",
        12: "<f8",
    }
)
_ALIGNMENT = "general.alignment"


class GGUFFile(NamedTuple):
    """The content of a file.

    Attributes:
        metadata: the pairs; arrays are lists.
        tensors: the tensors by name, with the shapes and dtypes of their decoded numbers.
    """

    metadata: dict[str, Any]
    tensors: dict[str, Stored]


def is_gguf(path: str) -> bool:
    """Returns whether a file begins as a GGUF file; False for folders and missing files."""
    if not os.path.isfile(path):
        return False
    with open_regular(path) as file:
        return file.read(4) == MAGIC


def read_gguf(path: str, limits: Limits) -> GGUFFile:
    """Reads pairs and the list of tensors; maps the numbers into memory.

    Raises:
        FileError: for a damaged file, an unknown version or type, and sizes beyond the limits.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise FileError("expected a GGUF file, received an empty file.", file=path)
        data, release = map_file(file)
    reader = _Reader(data, path, limits)
    version = reader.number("<u4", skip=4)
    if version not in (2, 3):
        raise reader.error(
            f"expected version 2 or 3, little endian, received {version}. Convert the model again."
        )
    tensor_count, pair_count = reader.number("<u8"), reader.number("<u8")
    for count in (tensor_count, pair_count):
        check_limit(limits, "objects", count, "tensors or keys", file=path)
    metadata: dict[str, Any] = {}
    for _ in range(pair_count):
        key = reader.text()
        if key in metadata:
            raise reader.error(f"the key {key[:80]!r} occurs twice. Convert the model again.")
        metadata[key] = reader.value(reader.number("<u4"), limits.depth)
    entries = {}
    for _ in range(tensor_count):
        name = reader.text()
        if name in entries:
            raise reader.error(f"the tensor {name[:80]!r} occurs twice. Convert the model again.")
        rank = reader.number("<u4")
        if rank > 8:
            raise reader.error(f"expected at most 8 axes of {name[:80]!r}, received {rank}.")
        # the file lists the innermost axis first
        shape = tuple(reader.number("<u8") for _ in range(rank))[::-1]
        entries[name] = shape, reader.number("<u4"), reader.number("<u8")
    alignment = metadata.get(_ALIGNMENT, 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise reader.error(f"expected {_ALIGNMENT} as a small number, received {alignment!r}.")
    start = -(-reader.place // alignment) * alignment
    tensors, end = {}, start
    for name, (shape, kind, offset) in sorted(entries.items(), key=lambda item: item[1][2]):
        if offset % alignment or start + offset < end:
            raise reader.error(
                f"expected the offset of {name[:80]!r} as a multiple of {alignment} after the tensors before, "
                f"which end at {end - start}, received {offset}. Convert the model again."
            )
        stored, length = _tensor(reader, name, shape, kind, start + offset, limits)
        tensors[name], end = dataclasses.replace(stored, release=release), start + offset + length
    return GGUFFile(metadata, tensors)


def _tensor(
    reader: _Reader,
    name: str,
    shape: tuple[int, ...],
    kind: int,
    start: int,
    limits: Limits,
) -> tuple[Stored, int]:
    """Returns a tensor and the number of its bytes in the file."""
    encoding = gguf_blocks.ENCODINGS.get(kind)
    if encoding is None:
        known = ", ".join(encoding.name for encoding in gguf_blocks.ENCODINGS.values())
        raise reader.error(
            f"{name[:80]!r} has the encoding {gguf_blocks.UNSUPPORTED.get(kind, kind)}: expected one of "
            f"{known}. Convert the model to one of these."
        )
    # Python integers: a product in int64 could overflow to a small number
    count = math.prod(shape)
    row = shape[-1] if shape else 1
    if row % encoding.block or start % 2:
        raise reader.error(f"{name[:80]!r} has rows of {row}, no multiple of {encoding.block}.")
    check_limit(limits, "array_bytes", 4 * count, "bytes of an array", file=reader.file)
    length = count // encoding.block * encoding.bytes
    if start + length > len(reader.data):
        raise reader.error(
            f"{name[:80]!r} needs {length} bytes at {start}, beyond the end of the file. The "
            "file is truncated; download it again."
        )
    data = reader.data[start : start + length]
    read = functools.partial(gguf_blocks.decode, data, encoding, shape)
    return Stored(shape, np.dtype(encoding.dtype), read), length


class _Reader:
    """Reads the head of a file from its start, within its bytes."""

    def __init__(self, data: np.ndarray, file: str, limits: Limits):
        self.data, self.file, self.place, self.limits = data, file, 0, limits
        # slices of a memoryview cost a fraction of those of an array
        self.bytes = data.data

    def error(self, problem: str) -> FileError:
        return FileError(problem, file=self.file)

    def take(self, count: int) -> bytes:
        """Returns the next bytes."""
        end = self.place + count
        if end > len(self.bytes):
            raise self.error(
                f"expected {count} more bytes at {self.place}, received the end of the file. The file is "
                "truncated or damaged; download it again."
            )
        check_limit(self.limits, "config_bytes", end, "bytes of keys and values", file=self.file)
        self.place, start = end, self.place
        return self.bytes[start:end].tobytes()

    def number(self, dtype: str, skip: int = 0) -> Any:
        """Returns the next number, after `skip` bytes."""
        self.take(skip)
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(kind.itemsize), kind)[0].item()

    def text(self) -> str:
        """Returns the next string."""
        try:
            return self.take(int.from_bytes(self.take(8), "little")).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"expected text in UTF-8 before {self.place}: {error}.") from error

    def value(self, kind: int, depth: int) -> Any:
        """Returns the next value of a kind."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY or depth == 0:
            raise self.error(
                f"expected a kind of value from 0 to 12, received {kind} at {self.place}."
            )
        item, count = self.number("<u4"), self.number("<u8")
        if item in _NUMBERS:
            dtype = np.dtype(_NUMBERS[item])
            numbers = self.take(count * dtype.itemsize)
            check_limit(self.limits, "objects", count, "items of an array", file=self.file)
            return np.frombuffer(numbers, dtype).tolist()
        # every string and array has a length of 8 bytes or more
        if count > (len(self.data) - self.place) // 8:
            raise self.error(f"expected {count} items at {self.place}, more than the file holds.")
        check_limit(self.limits, "objects", count, "items of an array", file=self.file)
        return [self.value(item, depth - 1) for _ in range(count)]


def value(metadata: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """Returns the value of a key, after checking its type.

    Args:
        kind: int, float or str.
        default: result for a missing key.

    Raises:
        ValueError: for a value of another type.

    Example:
        >>> value({"llama.block_count": 3}, "llama.block_count", int)
        3
    """
    found = metadata.get(key, default)
    if found is None or (isinstance(found, kind) and not (kind is int and isinstance(found, bool))):
        return found
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        return float(found)
    raise ValueError(f"expected {key!r} as {kind.__name__}, received {str(found)[:80]!r}.")
