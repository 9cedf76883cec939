"""Arrays in `.npz` files, gzip files of MNIST's form, JSON, and the archives of CIFAR."""

from __future__ import annotations

import gzip
import io
import math
import os
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fkeras.datasets.files.pickles import PickleError, read_pickle
from fkeras.files import npz
from fkeras.saving.containers import strict_json
from fkeras.saving.containers.archive import open_archive
from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.file_type import open_regular
from fkeras.saving.containers.limits import Limits

# sizes of the largest datasets, several times
_LIMITS = Limits(member_bytes=1 << 31, members=100)
_UNPACKED = 1 << 29
# magic numbers of MNIST's form: unsigned bytes with one or three axes
_IDX = 0x08


def read_npz(path: str, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Reads arrays of an `.npz` file: numbers, or arrays of lists of numbers.

    Args:
        path: path of the file.
        names: names of inputs and targets in turn; a pair has the same number of rows.

    Raises:
        FileError: for a file without these arrays, a damaged file, and other pickled objects.
    """
    with open_archive(path, _LIMITS) as archive:
        arrays = tuple(_member(path, name, archive.read(f"{name}.npy")) for name in names)
    for place in range(0, len(names), 2):
        x, y = arrays[place : place + 2]
        if x.ndim == 0 or y.ndim != 1 or len(x) != len(y) or y.dtype == object:
            raise FileError(
                f"expected one target for each row, received {names[place]} of shape {x.shape} and "
                f"{names[place + 1]} of shape {y.shape}. Download the file again.",
                file=path,
            )
    return arrays


def _member(path: str, name: str, data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    try:
        if _begins_with_objects(data):
            value = read_pickle(file.read()) if _skip_header(file) else None
            if not isinstance(value, np.ndarray):
                raise PickleError("an object that is no array")
            if value.dtype == object:
                _check_lists(value)
            return value
        array = npz.read_array(file, len(data))
        if array.dtype.kind not in "biuf":
            raise ValueError(f"an array of dtype {array.dtype}")
        return array
    except (ValueError, EOFError) as error:
        raise FileError(
            f"expected an array of numbers or of lists of numbers, received {error}. Download the "
            "file again.",
            file=path,
            member=name,
        ) from None


def _check_lists(rows: np.ndarray) -> None:
    for row in rows.ravel():
        if type(row) is not list or not set(map(type, row)) <= {int}:
            raise PickleError("rows that are no lists of integers")


def _skip_header(file: io.BytesIO) -> bool:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        np.lib.format.read_array_header_1_0(file)
    elif version in ((2, 0), (3, 0)):
        np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"an array in version {version}")
    return True


def _begins_with_objects(data: bytes) -> bool:
    # the header of a `.npy` file is a text: {'descr': '|O', ...}
    return b"'|O'" in data[:128]


def read_idx(path: str) -> np.ndarray:
    """Reads a gzip file of unsigned bytes in MNIST's form.

    Args:
        path: path of the file.

    Raises:
        FileError: for a file of another form, and for one whose size contradicts its header.
    """
    with open_regular(path) as source:
        data = _unpacked(source, path)
    axes = data[3] if len(data) > 3 else 0
    begin = 4 + 4 * axes
    shape = tuple(int(n) for n in np.frombuffer(data[4:begin], ">u4"))
    if data[:3] != bytes((0, 0, _IDX)) or len(data) != begin + math.prod(shape) or not axes:
        raise FileError(
            f"expected unsigned bytes in MNIST's form, received {len(data)} bytes that begin with "
            f"{data[:4]!r}. Download the file again.",
            file=path,
        )
    return np.frombuffer(data, "u1", offset=begin).reshape(shape).copy()


def _unpacked(source: Any, path: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=source) as file:
            data = file.read(_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(
            f"expected a gzip file, received a file that is none or is damaged ({error}). Download "
            "the file again.",
            file=path,
        ) from None
    if len(data) > _UNPACKED:
        raise FileError(
            f"expected at most {_UNPACKED} bytes when unpacked, received more. Download the file "
            "again.",
            file=path,
        )
    return data


def read_json(path: str) -> dict[str, int]:
    """Reads a JSON object of numbers by words.

    Args:
        path: path of the file.

    Raises:
        FileError: for another content.
    """
    with open_regular(path) as source:
        value = strict_json.parse(source.read(_LIMITS.config_bytes + 1), path, limits=_LIMITS)
    if not isinstance(value, dict) or not all(type(n) is int for n in value.values()):
        raise FileError(
            "expected a JSON object of numbers by words, received another content. Download the "
            "file again.",
            file=path,
        )
    return value


def read_pickles(path: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Reads pickled dictionaries out of a `.tar.gz` archive, or of the unpacked folder.

    The archive is read in memory: no file is written, so that its names cannot name other places.

    Args:
        path: path of the archive or folder.
        names: names of the files without their folder.

    Returns:
        The dictionaries in the order of `names`.

    Raises:
        FileError: for a missing or damaged file, and for pickles of other objects.
    """
    pairs = _folder_files(path, names) if os.path.isdir(path) else _archive_files(path, names)
    dictionaries = {}
    for name, data in pairs:
        try:
            value = read_pickle(data)
            if not isinstance(value, dict):
                raise PickleError("an object that is no dictionary")
        except PickleError as error:
            raise FileError(
                f"expected a pickled dictionary of lists and arrays, received {error}. Download "
                "the file again.",
                file=path,
                member=name,
            ) from None
        keys = (key.decode("latin1") if isinstance(key, bytes) else str(key) for key in value)
        dictionaries[name] = dict(zip(keys, value.values(), strict=True))
    missing = [name for name in names if name not in dictionaries]
    if missing:
        raise FileError(
            f"expected the files {', '.join(names)}, received none with the name "
            f"{', '.join(missing)}. Download the archive again.",
            file=path,
        )
    return [dictionaries[name] for name in names]


def _folder_files(path: str, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        place = os.path.join(path, name)
        if os.path.isfile(place):
            with open_regular(place) as file:
                yield name, file.read(_UNPACKED)


def _archive_files(path: str, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with open_regular(path) as source:
        # unpacked with a limit before tarfile reads, which trusts the sizes in the archive
        data = _unpacked(source, path)
    wanted = set(names)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                name = os.path.basename(member.name)
                if member.isreg() and name in wanted:
                    wanted.remove(name)
                    file = archive.extractfile(member)
                    assert file is not None  # a regular file
                    yield name, file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise FileError(
            f"expected a .tar.gz archive, received a file that is none or is damaged ({error}). "
            "Download the archive again.",
            file=path,
        ) from None
