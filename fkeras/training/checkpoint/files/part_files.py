"""Files with parts of arrays, of a save that several processes write.

Each process writes one file: the bytes of its parts one after the other, each in C order. The manifest
has position, shape, dtype and checksum of each part; every byte belongs to one part. Orbax is not
used: orbax writes NumPy arrays in process 0 only, and reads an array into memory as a whole.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fkeras.training.checkpoint.files import disk
from fkeras.training.checkpoint.files.arrays import array_checksum, dtype_of
from fkeras.training.checkpoint.files.errors import BrokenSaveError


class Part(NamedTuple):
    """Part of an array that one process writes.

    Attributes:
        name: name of the array.
        start: index of the first element of the part in the array.
        data: the elements.
    """

    name: str
    start: tuple[int, ...]
    data: np.ndarray


def file_name(index: int) -> str:
    """Returns the name of the file of a process.

    Args:
        index: position of the process in its group.

    Example:
        >>> file_name(0), file_name(1)
        ('arrays-0', 'arrays-1')
    """
    return f"arrays-{index}"


def write_parts(path: str, parts: Iterable[Part]) -> dict[str, Any]:
    """Writes parts into a new file, flushes the file to disk, and returns the facts of the file."""
    name, offset, facts = os.path.basename(path), 0, []
    with open(path, "xb") as file:
        for part in parts:
            file.write(_bytes_of(part.data))
            position = {"start": list(part.start), "shape": list(part.data.shape)}
            value = f"{array_checksum(part.data):08x}"
            place = {"file": name, "offset": offset, "crc32": value}
            facts.append({"array": part.name, **position, **place})
            offset += part.data.nbytes
    disk.flush(path)
    return {"file": name, "bytes": offset, "parts": facts}


def write_facts(path: str, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Writes what process 0 needs to know of a file, beside the save.

    Args:
        path: the path for the JSON data.
        arrays: shape and dtype of all arrays of the tree, by name.
        facts: the result of `write_parts`.
    """
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"arrays": arrays, **facts}, file)


def join_facts(save: str, paths: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arrays and the files of a save, for the manifest.

    Args:
        save: the folder of the files.
        paths: the JSON data of all processes, in their order.

    Raises:
        ValueError: if the processes saved different trees, or no process has a part of an array.
        OSError: if a file cannot be read, or has another size than its process wrote.
    """
    arrays: dict[str, Any] = {}
    files: dict[str, Any] = {}
    for number, path in enumerate(paths):
        with open(path, encoding="utf-8") as file:
            facts = json.load(file)
        if number == 0:
            arrays = {name: {**kind, "parts": []} for name, kind in facts["arrays"].items()}
        first = {name: {key: e[key] for key in ("shape", "dtype")} for name, e in arrays.items()}
        if facts["arrays"] != first:
            raise ValueError(
                f"the tree of process {number} of the group has other arrays than the tree of "
                "process 0. Save the same tree in every process"
            )
        size = os.path.getsize(os.path.join(save, facts["file"]))
        if size != facts["bytes"]:
            raise OSError(f"{facts['file']} has {size} bytes, expected {facts['bytes']}")
        files[facts["file"]] = {"bytes": size}
        for part in facts["parts"]:
            arrays[part.pop("array")]["parts"].append(part)
    for name, entry in arrays.items():
        if sum(math.prod(part["shape"]) for part in entry["parts"]) != math.prod(entry["shape"]):
            raise ValueError(
                f"no process has all parts of {name}. Place the array on devices of process 0, or "
                "on devices of all processes"
            )
    return arrays, files


def check_size(save: str, name: str, size: int) -> None:
    """Rejects a file of another size; the checksums of the parts cover all its bytes."""
    try:
        read_size = os.path.getsize(os.path.join(save, name))
    except OSError as error:
        raise BrokenSaveError(f"{name} cannot be read ({error.strerror or error})") from error
    if read_size != size:
        raise BrokenSaveError(f"{name} has {read_size} bytes, expected {size}")


def read_part(save: str, name: str, part: Mapping[str, Any], dtype: str) -> np.ndarray:
    """Reads one part of an array.

    Args:
        save: the folder of the save.
        name: name of the array, for messages.
        part: the part's entry in the manifest.
        dtype: name of the array's dtype.

    Raises:
        BrokenSaveError: if the file cannot be read, or the checksum differs.
    """
    data = np.empty(part["shape"], dtype_of(dtype))
    try:
        with open(os.path.join(save, part["file"]), "rb") as file:
            file.seek(part["offset"])
            count = file.readinto(_bytes_of(data))
    except OSError as error:
        reason = error.strerror or error
        raise BrokenSaveError(f"{part['file']} cannot be read ({reason})") from error
    value = f"{array_checksum(data):08x}"
    if count != data.nbytes or value != part["crc32"]:
        raise BrokenSaveError(
            f"{part['file']} has the checksum {value} in the array {name} from byte "
            f"{part['offset']}, expected {part['crc32']}"
        )
    return data


def _bytes_of(array: np.ndarray) -> Any:
    """Returns a view of the bytes of a C-ordered array."""
    return array.reshape(-1).view(np.uint8)
