"""Reading and writing of safetensors files.

A file is a table (a length of 8 bytes, and JSON), then the bytes of the arrays in the order of the
table. Files of `save_weights` name arrays by the model's own paths: `dense/kernel` for a weight,
`batch_normalization/moving_mean` for an entry of the state. Files are untrusted: the table must
describe every byte of the file exactly once, without duplicate names and within the limits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import ml_dtypes
import numpy as np

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.file_type import open_regular
from fkeras.host.containers.limits import Limits, check_limit
from fkeras.host.containers.mapped_file import map_file
from fkeras.host.containers.stored import Stored
from fkeras.host.containers.strict_json import ParsedJson, check, field, parse

_TABLE = "the table"
_DTYPES = (
    ("F64", np.float64),
    ("F32", np.float32),
    ("F16", np.float16),
    ("BF16", ml_dtypes.bfloat16),
    ("F8_E4M3", ml_dtypes.float8_e4m3fn),
    ("F8_E5M2", ml_dtypes.float8_e5m2),
    ("I64", np.int64),
    ("I32", np.int32),
    ("I16", np.int16),
    ("I8", np.int8),
    ("U64", np.uint64),
    ("U32", np.uint32),
    ("U16", np.uint16),
    ("U8", np.uint8),
    ("BOOL", np.bool_),
    ("C64", np.complex64),
)
# the order of the library safetensors, which aligns arrays by writing large dtypes first
_RANKS = (
    "BOOL",
    "U8",
    "I8",
    "F8_E5M2",
    "F8_E4M3",
    "I16",
    "U16",
    "F16",
    "BF16",
    "I32",
    "U32",
    "F32",
    "C64",
    "F64",
    "I64",
    "U64",
)


def is_safetensors(start: bytes, size: int) -> bool:
    """Returns whether the first bytes of a file are those of the safetensors format."""
    # a header begins with its length, 8 bytes, which must fit into the file, and is a JSON object
    return len(start) > 8 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size - 8


@dataclasses.dataclass(frozen=True)
class Table:
    """The table of an open file.

    Attributes:
        arrays: the arrays by name, in the order of their bytes; `read` returns a view of the mapped
            file.
        dtypes: the format's name of each dtype, such as "BF16".
        metadata: the texts under `__metadata__`.
    """

    arrays: dict[str, Stored]
    dtypes: dict[str, str]
    metadata: dict[str, str]


def read_table(path: str, limits: Limits) -> Table:
    """Reads the table of a file and maps the file into memory.

    Raises:
        FileError: for a table that does not describe every byte of the file exactly once, and for
            sizes beyond the limits.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8:
            raise _not_whole(path, f"a table of {length} bytes in a file of {size}")
        check_limit(limits, "config_bytes", length, "bytes of a table", file=path, member=_TABLE)
        table = parse(file.read(length), path, _TABLE, limits)
        check(table, dict, "the table", file=path, member=_TABLE)
        check_limit(limits, "objects", len(table), "arrays", file=path)
        metadata = field(table, "__metadata__", dict, {}, file=path, member=_TABLE)
        for value in metadata.values():
            check(value, str, "the values of '__metadata__'", file=path, member=_TABLE)
        rows = [item for item in table.items() if item[0] != "__metadata__"]
        entries = [_entry(path, name, row, limits) for name, row in rows]
        data, release = map_file(file)
    end = 0
    for name, _, first, last, *_ in sorted(entries, key=lambda entry: entry[2:4]):
        if first != end:
            raise _not_whole(path, f"bytes from {first} for {name[:80]!r}, after {end}")
        end = last
    if end != size - 8 - length:
        raise _not_whole(path, f"{end} bytes of arrays in a file with {size - 8 - length}")
    base, arrays = 8 + length, {}
    for name, _, first, last, shape, dtype in sorted(entries, key=lambda entry: entry[2:4]):
        read = functools.partial(_view, data, base + first, base + last, shape, dtype)
        arrays[name] = Stored(shape, dtype, read, release)
    return Table(arrays, {entry[0]: entry[1] for entry in entries}, metadata)


def _not_whole(path: str, received: str) -> FileError:
    return FileError(
        f"expected a table that describes every byte of the file, received {received}. The file is "
        "truncated, damaged or crafted; save or download it again.",
        file=path,
        member=_TABLE,
    )


def _entry(
    path: str, name: str, entry: ParsedJson, limits: Limits
) -> tuple[str, str, int, int, tuple[int, ...], np.dtype]:
    """Returns name, dtype's name, first and last byte, shape and dtype of one array."""
    place = {"file": path, "member": name[:200]}
    dtype_name = field(entry, "dtype", str, **place)
    shape = field(entry, "shape", list, **place)
    offsets = field(entry, "data_offsets", list, **place)
    dtype = named_dtype(dtype_name)
    if dtype is None:
        raise FileError(
            f"expected a dtype among {', '.join(key for key, _ in _DTYPES)}, received "
            f"{dtype_name[:40]}. Save the array as float32.",
            **place,
        )
    for number in (*shape, *offsets):
        if check(number, int, "the shape and the offsets as numbers", **place) < 0:
            raise FileError(f"expected sizes and offsets of 0 or more, received {number}.", **place)
    # Python integers: a product in int64 could overflow to a small number
    claimed = math.prod(shape) * dtype.itemsize
    if len(offsets) != 2 or offsets[1] - offsets[0] != claimed or len(shape) > 64:
        raise _not_whole(
            path, f"the offsets {offsets[:3]} of {name[:80]!r} for {claimed} bytes {shape[:8]}"
        )
    check_limit(limits, "array_bytes", claimed, "bytes of an array", **place)
    return name, dtype_name, offsets[0], offsets[1], tuple(shape), dtype


def _view(
    data: np.ndarray, start: int, end: int, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    return data[start:end].view(dtype).reshape(shape)


@contextlib.contextmanager
def open_table(path: str, limits: Limits) -> Iterator[dict[str, Stored]]:
    """Opens a file; yields its arrays by name, whose `read` copies the bytes."""
    # a copy: an array on the CPU may use the memory of its source, and the file may change
    yield {
        name: dataclasses.replace(stored, read=functools.partial(_copy, stored))
        for name, stored in read_table(path, limits).arrays.items()
    }


def _copy(stored: Stored) -> np.ndarray:
    return np.array(stored.read())


def write(file: BinaryIO, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """Writes arrays to a binary file; the same arrays give the same bytes.

    Args:
        about: metadata of the file.

    Raises:
        TypeError: for an array of a dtype that the format lacks.
    """
    dtypes = {name: dtype_name(array.dtype) for name, array in arrays.items()}
    for name, dtype in dtypes.items():
        if dtype is None:
            raise TypeError(
                f"save_weights: safetensors has no dtype {arrays[name].dtype} ({name!r}). Save the model as "
                ".npz or .weights.h5."
            )
    order = in_order({name: str(dtype) for name, dtype in dtypes.items()})
    shapes = {name: arrays[name].shape for name in order}
    write_stream(file, order, shapes, lambda name: arrays[name], about)


def dtype_name(dtype: np.dtype) -> str | None:
    """Returns the format's name of a dtype, or None.

    Example:
        >>> dtype_name(np.dtype("float32"))
        'F32'
    """
    native = dtype.newbyteorder("=")
    return next((name for name, kind in _DTYPES if np.dtype(kind) == native), None)


def named_dtype(name: str) -> np.dtype | None:
    """Returns the dtype of a name of the format, or None for an unknown name; inverts `dtype_name`."""
    return next((np.dtype(kind) for key, kind in _DTYPES if key == name), None)


def in_order(dtypes: Mapping[str, str]) -> dict[str, str]:
    """Returns names and dtypes in the order of the library safetensors: large dtypes first, then names."""
    return dict(sorted(dtypes.items(), key=lambda item: (-_RANKS.index(item[1]), item[0])))


def write_stream(
    file: BinaryIO,
    dtypes: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    array: Callable[[str], np.ndarray],
    metadata: Mapping[str, str],
) -> None:
    """Writes arrays one by one, in the order of `dtypes`.

    Args:
        dtypes: the format's name of the dtype of each array.
        array: returns the array of a name; called when its bytes are written.
    """
    table: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    kinds = {name: np.dtype(kind) for name, kind in _DTYPES}
    end = 0
    for name, dtype in dtypes.items():
        start, end = end, end + math.prod(shapes[name]) * kinds[dtype].itemsize
        table[name] = {"dtype": dtype, "shape": list(shapes[name]), "data_offsets": [start, end]}
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at multiples of 8 bytes
    file.write(len(text).to_bytes(8, "little") + text)
    for name, dtype in dtypes.items():
        contiguous = np.asarray(array(name), kinds[dtype], order="C")
        file.write(contiguous.reshape(-1).view(np.uint8).data)
