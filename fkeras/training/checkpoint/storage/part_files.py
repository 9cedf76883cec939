"""Folders with parts of arrays, of a save that several processes write.

Each process writes one folder in orbax's format, with its parts as arrays. The manifest has folder,
name, position, shape and checksum of each part. A process without parts writes no folder.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fkeras.training.checkpoint.storage import disk
from fkeras.training.checkpoint.storage.arrays import array_checksum
from fkeras.training.checkpoint.storage.errors import BrokenSaveError
from fkeras.training.checkpoint.storage.orbax_files import write_arrays


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


def folder_name(index: int) -> str:
    """Returns the name of the folder of a process."""
    return f"arrays-{index}" if index else "arrays"


def part_name(part: Part, shape: Sequence[int]) -> str:
    """Returns the name of a part: the array's name, with the slices if the part is not the whole."""
    if tuple(shape) == part.data.shape:
        return part.name
    pairs = zip(part.start, part.data.shape, strict=True)
    return f"{part.name}[{','.join(f'{start}:{start + size}' for start, size in pairs)}]"


def write_parts(path: str, arrays: Mapping[str, Any], parts: Iterable[Part]) -> dict[str, Any]:
    """Writes parts into a new folder, flushes it to disk, and returns the facts of parts and files.

    Args:
        parts: the parts; none is empty.
    """
    folder, named_parts, facts = os.path.basename(path), {}, []
    for part in parts:
        name = part_name(part, arrays[part.name]["shape"])
        while name in named_parts:  # another array has a name like this part
            name += "'"
        named_parts[name] = part.data
        place = {"folder": folder, "name": name}
        position = {"start": list(part.start), "shape": list(part.data.shape)}
        value = f"{array_checksum(part.data):08x}"
        facts.append({"array": part.name, **place, **position, "crc32": value})
    files = {}
    if named_parts:
        write_arrays(path, named_parts)
        disk.flush_all(path)
        files = {f"{folder}/{name}": entry for name, entry in disk.checksums(path).items()}
    return {"files": files, "parts": facts}


def write_facts(path: str, arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Writes the facts of a folder, for process 0, beside the save.

    Args:
        facts: the result of `write_parts`.
    """
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"arrays": arrays, **facts}, file)


def join_facts(save: str, paths: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arrays and the files of a save, for the manifest.

    Args:
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
        for name, entry in facts["files"].items():
            size = os.path.getsize(os.path.join(save, *name.split("/")))
            if size != entry["bytes"]:
                raise OSError(f"{name} has {size} bytes, expected {entry['bytes']}")
        files |= facts["files"]
        for part in facts["parts"]:
            arrays[part.pop("array")]["parts"].append(part)
    for name, entry in arrays.items():
        if sum(math.prod(part["shape"]) for part in entry["parts"]) != math.prod(entry["shape"]):
            raise ValueError(
                f"no process has all parts of {name}. Place the array on devices of process 0, or "
                "on devices of all processes"
            )
    return arrays, files


def check_files(save: str, files: Mapping[str, Any], folder: str) -> None:
    """Rejects a folder of a save whose files differ from those that were written.

    Raises:
        BrokenSaveError: with the file and the reason.
    """
    for name, facts in files.items():
        if name.split("/")[0] == folder:
            path = os.path.join(save, *name.split("/"))
            disk.check_file(path, name, facts["bytes"], int(facts["crc32"], 16))


def check_sizes(save: str, files: Mapping[str, Any]) -> None:
    """Rejects a save with a file that is missing or has another size; reads no file.

    Raises:
        BrokenSaveError: with the file and the reason.
    """
    for name, facts in files.items():
        try:
            size = os.path.getsize(os.path.join(save, *name.split("/")))
        except OSError as error:
            raise BrokenSaveError(f"{name} cannot be read ({error.strerror or error})") from error
        if size != facts["bytes"]:
            raise BrokenSaveError(f"{name} has {size} bytes, expected {facts['bytes']}")
