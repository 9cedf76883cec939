"""The `.npz` format of weights: named arrays, readable by NumPy alone.

The entries of a file are

- `weights/<path>`: each weight of a model, such as `weights/dense/kernel`,
- `state/<path>`: each array of the model's state, such as `state/batch_normalization/moving_mean`,
- `opt_state/<path>` and `step`: the optimizer's state and the number of steps, if requested,
- `about`: JSON text with `format`, `version`, and under `dtypes`, by entry, dtypes that NumPy does
  not have (bfloat16, float8); these arrays are stored as unsigned integers of the same size.

Files that users write with `np.savez` from the run of an exported training step have no `about`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from fkeras.atomic_files.atomic import replacing

FORMAT = "fkeras weights"
VERSION = 1
ABOUT = "about"


class Readable(Protocol):
    """A binary file for sequential reading."""

    def read(self, size: int = ..., /) -> bytes: ...

    def tell(self) -> int: ...


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Writes arrays to a file atomically.

    Args:
        path: the path of the file; missing directories are created.
    """
    stored, dtypes = {}, {}
    for name, array in arrays.items():
        # np.savez would write bfloat16 and float8 as raw bytes without the dtype's name
        if array.dtype.kind not in "biufc":
            dtypes[name] = array.dtype.name
            array = array.view(f"uint{8 * array.dtype.itemsize}")
        stored[name] = array
    about = {"format": FORMAT, "version": VERSION, "dtypes": dtypes}
    stored[ABOUT] = np.asarray(json.dumps(about))
    with replacing(path) as file:
        np.savez(file, **stored)


def check_about(about: Any) -> dict[str, np.dtype]:
    """Checks a parsed `about` and returns the dtypes that NumPy does not have, by entry.

    Raises:
        ValueError: for another format, a newer version, or an unknown dtype.
    """
    about = about if isinstance(about, Mapping) else {}
    version = about.get("version")
    if about.get("format") != FORMAT or not isinstance(version, int) or version > VERSION:
        raise ValueError(
            f"expected the format {FORMAT!r}, version {VERSION}, received "
            f"{str(about.get('format'))[:40]!r}, version {str(version)[:20]}. Read the file with "
            "the program that wrote it."
        )
    dtypes = about.get("dtypes", {})
    names = dtypes.items() if isinstance(dtypes, Mapping) else [("dtypes", dtypes)]
    dtypes_by_name = {}
    for name, dtype in names:
        # a name from the file: only scalar types of ml_dtypes are accepted
        dtype_class = getattr(ml_dtypes, dtype, None) if isinstance(dtype, str) else None
        if not isinstance(dtype_class, type) or not issubclass(dtype_class, np.generic):
            raise ValueError(
                f"expected a dtype such as 'bfloat16' for {name!r}, received {str(dtype)[:40]!r}. "
                "The file is damaged."
            )
        dtypes_by_name[name] = np.dtype(dtype_class)
    return dtypes_by_name


def read_header(file: Readable, size: int) -> tuple[tuple[int, ...], np.dtype, bool]:
    """Reads the header of a `.npy` file and returns `(shape, dtype, fortran)`.

    Args:
        file: the file at its start; afterwards the position is the start of the data.

    Raises:
        ValueError: for object arrays, which are pickles, and for a file whose size differs from
            the size in the header.
    """
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"expected .npy version 1 or 2, received {version}. Save the file again.")
    is_version_1 = version == (1, 0)
    read = (
        np.lib.format.read_array_header_1_0 if is_version_1 else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read(file)
    # unpickling objects runs code from the file
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise ValueError(
            f"expected numbers, received {dtype}; objects are pickles, which are never opened. "
            "Save plain arrays."
        )
    # resource limit: the shape is from the file, so compare sizes before any allocation
    stored, claimed = size - file.tell(), math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or stored != claimed:
        raise ValueError(
            f"expected {claimed} bytes for an array of shape {shape}, received {stored} bytes. The "
            "file is truncated or damaged."
        )
    return shape, dtype, fortran


def read_array(file: Readable, size: int) -> np.ndarray:
    """Reads the array of a `.npy` file; allocates no more memory than the file's size.

    Raises:
        ValueError: in the cases of `read_header`, and for truncated data.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> np.save(file, np.arange(3))
        >>> size = file.tell()
        >>> _ = file.seek(0)
        >>> read_array(file, size)
        array([0, 1, 2])
    """
    shape, dtype, fortran = read_header(file, size)
    count = math.prod(shape) * dtype.itemsize
    data = file.read(count)
    if len(data) != count:
        raise ValueError(f"expected {count} bytes, received {len(data)}. The file is truncated.")
    array = np.frombuffer(data, dtype)
    array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    # JAX rejects arrays in a foreign byte order
    return array.astype(dtype.newbyteorder("="), copy=False)


def viewed(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Views stored unsigned integers or raw bytes as a dtype that NumPy does not have.

    Other arrays are returned unchanged.
    """
    # NumPy loads bfloat16 as raw bytes (kind "V"), and `write` stores unsigned integers
    target = np.dtype(dtype)
    is_raw = array.dtype.kind == "V" or array.dtype.kind == "u" != target.kind
    is_small_float = target.kind == "V" or target.name.startswith(("bfloat", "float8"))
    return (
        array.view(target)
        if is_raw and is_small_float and array.itemsize == target.itemsize
        else array
    )
