"""Reading and writing of safetensors files, with the library of that name.

Names are the model's own paths: `dense/kernel` for a weight, `batch_normalization/moving_mean` for
an entry of the state. Files are untrusted. The library rejects a header that does not describe
every byte of the file exactly once. This module also rejects duplicate names, and sizes beyond the
limits.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from fkeras.engine.messages.optional_packages import missing_package
from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.limits import Limits, check_limit
from fkeras.saving.containers.strict_json import parse
from fkeras.saving.weights.weight_source import Stored

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


def is_safetensors(start: bytes, size: int) -> bool:
    """Returns whether the first bytes of a file are those of the safetensors format.

    Example:
        >>> is_safetensors((2).to_bytes(8, "little") + b"{}", 10)
        True
    """
    # a header begins with its length, 8 bytes, which must fit into the file, and is a JSON object
    return len(start) > 8 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size - 8


def _library() -> Any:
    # imported on use: the package is optional
    try:
        import safetensors.numpy
    except ImportError as error:
        raise missing_package("A .safetensors file", "safetensors", error) from error
    return safetensors


@contextlib.contextmanager
def open_table(path: str, limits: Limits) -> Iterator[dict[str, Stored]]:
    """Opens a file; yields its arrays by name, which can be read inside the `with` block."""
    library = _library()
    # before the library: its parser has no limits, and accepts duplicate names
    _check_table(path, limits)
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(library.safe_open(path, framework="numpy"))
        except library.SafetensorError as error:
            raise FileError(
                f"expected a table that describes every byte of the file ({error}). The file is "
                "truncated, damaged or crafted; save or download it again.",
                file=path,
                member=_TABLE,
            ) from error
        # `opened` is not a mapping: iteration needs `keys()`
        yield {name: _stored(opened, name, path, limits) for name in opened.keys()}  # noqa: SIM118


def _check_table(path: str, limits: Limits) -> None:
    """Rejects duplicate names and excessive sizes, which the library accepts."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        check_limit(limits, "config_bytes", length, "bytes of a table", file=path, member=_TABLE)
        table = parse(file.read(length), path, _TABLE, limits)
    check_limit(limits, "objects", len(table), "arrays", file=path)


def _stored(opened: Any, name: str, path: str, limits: Limits) -> Stored:
    array_slice = opened.get_slice(name)
    dtype_name, shape = array_slice.get_dtype(), tuple(array_slice.get_shape())
    dtype = next((np.dtype(kind) for key, kind in _DTYPES if key == dtype_name), None)
    if dtype is None:
        raise FileError(
            f"expected a dtype among {', '.join(key for key, _ in _DTYPES)}, received {dtype_name}. "
            "Save the array as float32.",
            file=path,
            member=name[:200],
        )
    # Python integers: a product in int64 could overflow to a small number
    claimed = math.prod(shape) * dtype.itemsize
    noun = "bytes of an array"
    check_limit(limits, "array_bytes", claimed, noun, file=path, member=name[:200])
    if dtype_name.startswith("F8"):
        return Stored(shape, dtype, functools.partial(_read_float8, path, name, dtype))
    return Stored(shape, dtype, functools.partial(opened.get_tensor, name))


def _read_float8(path: str, name: str, dtype: np.dtype) -> np.ndarray:
    """Reads an array of 8-bit floats, which the library does not convert to NumPy."""
    # `deserialize` needs the bytes of the whole file: slow, but files with 8-bit floats are rare
    with open(path, "rb") as file:
        record = dict(_library().deserialize(file.read()))[name]
    return np.frombuffer(record["data"], dtype).reshape(record["shape"])


def write(file: BinaryIO, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """Writes arrays to a binary file; the same arrays give the same bytes.

    Args:
        about: metadata of the file; give one entry, as the library does not fix the order of
            several.

    Example:
        >>> import pathlib, tempfile
        >>> place = pathlib.Path(tempfile.mkdtemp(), "w.safetensors")
        >>> with place.open("wb") as file:
        ...     write(file, {"dense/bias": np.zeros(2, "float32")}, {"format": "fkeras"})
        >>> with open_table(str(place), Limits()) as table:
        ...     table["dense/bias"].read()
        array([0., 0.], dtype=float32)
    """
    dtypes = [np.dtype(kind) for _, kind in _DTYPES]
    for name, array in arrays.items():
        if array.dtype.newbyteorder("=") not in dtypes:
            raise TypeError(
                f"save_weights: safetensors has no dtype {array.dtype} ({name!r}). Save the model as "
                ".npz or .weights.h5."
            )
    # the library writes the memory of an array and ignores strides: make the arrays contiguous
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    file.write(_library().numpy.save(contiguous, dict(about)))
