"""Readers of untrusted files: `.npz` archives, IDX files of MNIST, JSON, and archives of CIFAR."""

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

from fkeras.atomic_files import npz
from fkeras.datasets.readers.pickles import PickleError, read_pickle
from fkeras.datasets.readers.rows import Pair
from fkeras.engine.messages.errors import describe_value
from fkeras.host.containers import strict_json
from fkeras.host.containers.archive import open_archive
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.file_type import open_regular
from fkeras.host.containers.limits import Limits

# resource limits: several times the sizes of the largest datasets
_LIMITS = Limits(member_bytes=1 << 31, members=100)
_MAX_UNPACKED = 1 << 29
# code of the element type in the header of an IDX file
_UNSIGNED_BYTES = 0x08
# of an image of CIFAR
_PIXELS = 3 * 32 * 32


def read_npz(path: str, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Reads arrays of an `.npz` file: numbers, or arrays of lists of numbers.

    Args:
        names: names of the arrays, inputs and targets alternately: (x, y) or (x, y, x, y).
    """
    with open_archive(path, _LIMITS) as archive:
        arrays = tuple(_read_member(path, name, archive.read(f"{name}.npy")) for name in names)
    for index in range(0, len(names), 2):
        x, y = arrays[index : index + 2]
        if x.ndim == 0 or y.ndim != 1 or len(x) != len(y) or y.dtype == object:
            raise FileError(
                f"expected one target for each row, received {names[index]} of shape {x.shape} and "
                f"{names[index + 1]} of shape {y.shape}. Download the file again.",
                file=path,
            )
    return arrays


def _read_member(path: str, name: str, data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    try:
        if _has_object_dtype(data):
            _skip_header(file)
            value = read_pickle(file.read())
            if not isinstance(value, np.ndarray):
                raise PickleError("an object that is not an array")
            if value.dtype == object:
                _check_integer_lists(value)
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


def _check_integer_lists(rows: np.ndarray) -> None:
    for row in rows.ravel():
        if type(row) is not list or not set(map(type, row)) <= {int}:
            raise PickleError("rows that are not lists of integers")


def _skip_header(file: io.BytesIO) -> None:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        np.lib.format.read_array_header_1_0(file)
    elif version in ((2, 0), (3, 0)):
        np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"an array in version {version} of the .npy format")


def _has_object_dtype(data: bytes) -> bool:
    # the header of an `.npy` file is the text of a dictionary: {'descr': '|O', ...}
    return b"'|O'" in data[:128]


def read_idx(path: str) -> np.ndarray:
    """Reads a compressed IDX file of unsigned bytes, the format of MNIST."""
    with open_regular(path) as source:
        data = _decompress(source, path)
    # header: two zeros, the element type, the number of axes, and 4 bytes for the size of each axis
    axes = data[3] if len(data) > 3 else 0
    begin = 4 + 4 * axes
    shape = tuple(int(size) for size in np.frombuffer(data[4:begin], ">u4"))
    if (
        data[:3] != bytes((0, 0, _UNSIGNED_BYTES))
        or len(data) != begin + math.prod(shape)
        or not axes
    ):
        raise FileError(
            f"expected an IDX file of unsigned bytes, received {len(data)} bytes that begin with "
            f"{data[:4]!r}. Download the file again.",
            file=path,
        )
    return np.frombuffer(data, "u1", offset=begin).reshape(shape).copy()


def _decompress(source: Any, path: str) -> bytes:
    try:
        with gzip.GzipFile(fileobj=source) as file:
            # one byte more than the limit tells a file at the limit from a larger file
            data = file.read(_MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(
            f"expected a gzip file, received another or a damaged file ({error}). Download the file "
            "again.",
            file=path,
        ) from None
    if len(data) > _MAX_UNPACKED:
        raise FileError(
            f"expected at most {_MAX_UNPACKED} bytes after decompression, received more. Download the "
            "file again.",
            file=path,
        )
    return data


def read_json(path: str) -> dict[str, int]:
    """Reads a JSON object from words to numbers."""
    with open_regular(path) as source:
        value = strict_json.parse(source.read(_LIMITS.config_bytes + 1), path, limits=_LIMITS)
    if not isinstance(value, dict) or not all(type(n) is int for n in value.values()):
        raise FileError(
            "expected a JSON object from words to numbers, received another value. Download the file "
            "again.",
            file=path,
        )
    return value


def read_pickles(path: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Reads pickled dictionaries from a `.tar.gz` archive, or from the unpacked folder.

    The archive is read in memory. No file is written, so a member's name such as `../train` is harmless.

    Returns:
        The dictionaries in the order of `names`.
    """
    files = _folder_files(path, names) if os.path.isdir(path) else _archive_files(path, names)
    dictionaries = {}
    for name, data in files:
        try:
            value = read_pickle(data)
            if not isinstance(value, dict):
                raise PickleError("an object that is not a dictionary")
        except PickleError as error:
            raise FileError(
                f"expected a pickled dictionary of lists and arrays, received {error}. Download "
                "the file again.",
                file=path,
                member=name,
            ) from None
        # Python 2 wrote the keys as bytes
        keys = (key.decode("latin1") if isinstance(key, bytes) else str(key) for key in value)
        dictionaries[name] = dict(zip(keys, value.values(), strict=True))
    missing = [name for name in names if name not in dictionaries]
    if missing:
        raise FileError(
            f"expected the files {', '.join(names)}; missing are {', '.join(missing)}. Download the "
            "archive again.",
            file=path,
        )
    return [dictionaries[name] for name in names]


def _folder_files(path: str, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        file_path = os.path.join(path, name)
        if os.path.isfile(file_path):
            with open_regular(file_path) as file:
                yield name, file.read(_MAX_UNPACKED)


def _archive_files(path: str, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    with open_regular(path) as source:
        # decompressed within the limit first: tarfile trusts the sizes that the archive declares
        data = _decompress(source, path)
    remaining_names = set(names)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                name = os.path.basename(member.name)
                if member.isreg() and name in remaining_names:
                    remaining_names.remove(name)
                    file = archive.extractfile(member)
                    assert file is not None  # `extractfile` returns None only for other members
                    yield name, file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise FileError(
            f"expected a .tar.gz archive, received another or a damaged file ({error}). Download the "
            "archive again.",
            file=path,
        ) from None


def images_and_labels(batch: dict[str, Any], key: str, path: str) -> Pair:
    """Returns the images (n, 32, 32, 3) and labels (n, 1) of a batch.

    Args:
        batch: the dictionary in a pickle; "data" has 1,024 red, green and blue bytes for each image.
    """
    data: Any = batch.get("data")
    labels: Any = batch.get(key)
    has_images = (
        isinstance(data, np.ndarray) and data.shape[1:] == (_PIXELS,) and data.dtype == "u1"
    )
    has_labels = isinstance(labels, list) and all(type(n) is int and 0 <= n < 256 for n in labels)
    if not has_images or not has_labels or len(data) != len(labels):
        raise FileError(
            f"expected data as uint8 rows of {_PIXELS} bytes and {key} as a list of one number for each "
            f"row, received data {describe_value(data)} and {key} {describe_value(labels)}. Download "
            "the archive again.",
            file=path,
        )
    x = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(x), np.asarray(labels, "uint8")[:, None]
