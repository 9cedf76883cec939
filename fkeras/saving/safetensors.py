"""safetensors: a length, a JSON table of arrays, their bytes; read with suspicion and written.

The format is so small that it needs no package. Names are the model's own paths, `dense/kernel`
for a weight and `batch_normalization/moving_mean` for a state. The table must describe every byte
of the file exactly once, as the format demands.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from fkeras.saving.errors import FileError
from fkeras.saving.hdf5_arrays import aligned
from fkeras.saving.limits import Limits
from fkeras.saving.strict_json import check, field, parse
from fkeras.saving.weight_source import Stored

_TABLE = "the table"
_ABOUT = "__metadata__"
# the format's own bound of the table
_LONGEST = 100_000_000
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


def is_safetensors(start: bytes, size: int) -> bool:
    """Whether a file begins like one of this format.

    Example:
        >>> is_safetensors((2).to_bytes(8, "little") + b"{}", 10)
        True
    """
    return len(start) > 8 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size - 8


def read_table(file: BinaryIO, path: str, limits: Limits) -> dict[str, Stored]:
    """The arrays of a file by name; none is read yet.

    Args:
        file: the file, which can seek; it stays open while arrays are read.
        path: its path, for messages.
        limits: the greatest sizes.

    Raises:
        FileError: where the table is no table, or does not describe every byte exactly once.
    """
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(size - 8, _LONGEST, limits.config_bytes):
        raise FileError(
            f"a table of {length} bytes in a file of {size}; expected at most "
            f"{min(_LONGEST, limits.config_bytes)}. It is cut off or damaged.",
            file=path,
            member=_TABLE,
        )
    # spaces fill it up
    table = check(
        parse(file.read(length), path, _TABLE, limits), dict, _TABLE, file=path, member=_TABLE
    )
    about = field(table, _ABOUT, dict, {}, file=path, member=_TABLE)
    for key, value in about.items():
        check(value, str, f"the metadata {key[:40]!r}", file=path, member=_ABOUT)
    rows = {name: row for name, row in table.items() if name != _ABOUT}
    if len(rows) > limits.objects:
        raise FileError(
            f"{len(rows)} arrays, expected at most {limits.objects}. If you trust the file, pass "
            "limits=fk.Limits(objects=...).",
            file=path,
        )
    begin = 8 + length
    found, places = {}, []
    for name, row in rows.items():
        stored, start, end = _row(name, row, path, limits)
        places.append((start, end, name))
        read = functools.partial(_read, file, begin + start, stored[0], stored[1], path, name)
        found[name] = Stored(*stored, read=read)
    _check_places(sorted(places), size - begin, path)
    return found


def _row(name: str, row: Any, path: str, limits: Limits) -> tuple[tuple, int, int]:
    place = {"file": path, "member": name[:200]}
    word = field(row, "dtype", str, **place)
    dtype = next((np.dtype(kind) for key, kind in _DTYPES if key == word), None)
    if dtype is None:
        raise FileError(
            f"expected a dtype among {', '.join(key for key, _ in _DTYPES)}, received "
            f"{word[:40]!r}. Save it as float32.",
            **place,
        )
    shape = field(row, "shape", list, **place)
    offsets = field(row, "data_offsets", list, **place)
    for number in (*shape, *offsets):
        if check(number, int, "a size", **place) < 0:
            raise FileError(f"expected sizes of 0 or more, received {number}.", **place)
    if len(offsets) != 2 or len(shape) > 64:
        raise FileError(
            f"expected begin and end, and at most 64 axes, received {len(offsets)} offsets and "
            f"{len(shape)} axes. It is damaged.",
            **place,
        )
    start, end = offsets
    claimed = math.prod(shape) * dtype.itemsize
    if end - start != claimed:
        raise FileError(
            f"an array of {claimed} bytes, of which the table has {end - start}. It is damaged.",
            **place,
        )
    if claimed > limits.array_bytes:
        raise FileError(
            f"an array of {claimed} bytes, expected at most {limits.array_bytes}. If you trust "
            "the file, pass limits=fk.Limits(array_bytes=...).",
            **place,
        )
    return (tuple(shape), dtype), start, end


def _check_places(places: list[tuple[int, int, str]], size: int, path: str) -> None:
    at = 0
    for start, end, name in places:
        if start != at:
            word = "share bytes with another array" if start < at else "leave a gap before it"
            raise FileError(
                f"its bytes {start} to {end} {word}; expected it to begin at {at}. The file is "
                "damaged, or made to mislead.",
                file=path,
                member=name[:200],
            )
        at = end
    if at != size:
        raise FileError(
            f"arrays of {at} bytes in a file that has {size} for them. It is cut off or damaged.",
            file=path,
            member=_TABLE,
        )


def _read(
    file: BinaryIO, start: int, shape: tuple[int, ...], dtype: np.dtype, path: str, name: str
) -> np.ndarray:
    array = aligned(shape, np.dtype(np.uint8) if dtype == np.bool_ else dtype)
    view = memoryview(array.reshape(-1).view(np.uint8))
    file.seek(start)
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise FileError("its bytes end too early. It is cut off.", file=path, member=name[:200])
        done += count
    return array != 0 if dtype == np.bool_ else array


def write(file: BinaryIO, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """Writes arrays into a binary file.

    Args:
        file: the file.
        arrays: NumPy arrays by name.
        about: what the file says of itself.

    Raises:
        TypeError: for a dtype that the format does not have.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> write(file, {"dense/bias": np.zeros(2, "float32")}, {"format": "fkeras"})
        >>> read_table(file, "w", Limits())["dense/bias"].read()
        array([0., 0.], dtype=float32)
    """
    table: dict[str, Any] = {_ABOUT: dict(about)}
    at = 0
    # the largest numbers first, so that each begins on a multiple of its own size
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    for name in order:
        array = arrays[name]
        word = next((key for key, kind in _DTYPES if array.dtype == kind), None)
        if word is None:
            raise TypeError(
                f"save_weights: safetensors has no dtype {array.dtype} ({name!r}). Save it as "
                ".npz or .weights.h5."
            )
        offsets = [at, at + array.nbytes]
        table[name] = {"dtype": word, "shape": list(array.shape), "data_offsets": offsets}
        at += array.nbytes
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    file.write(len(header).to_bytes(8, "little") + header)
    for name in order:
        little = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), order="C", copy=False)
        file.write(memoryview(little.reshape(-1).view(np.uint8)))
