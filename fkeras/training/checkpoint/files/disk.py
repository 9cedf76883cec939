"""Files that are there whole or not at all: checksums, flushing, one rename."""

from __future__ import annotations

import errno
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from fkeras.training.checkpoint.files.errors import BrokenSaveError

_BLOCK = 1 << 22
_NAME = re.compile(r"(\d+)(?:\.(\d+))?")


class Save(NamedTuple):
    """A save in a folder, in the order in which saves are newer.

    Attributes:
        step: the step that it was made after.
        again: how many saves of the same step there were before it.
        path: its folder.
    """

    step: int
    again: int
    path: str


def saves(folder: str) -> list[Save]:
    """The saves in a folder, the newest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = ((_NAME.fullmatch(name), name) for name in names)
    listed = (
        Save(int(match[1]), int(match[2] or 0), os.path.join(folder, name))
        for match, name in found
        if match
    )
    return sorted(listed, reverse=True)


def checksum(data: Any, start: int = 0) -> int:
    """The CRC-32 of some bytes, after those that gave `start`.

    What it guards against is accident: bits that flip, blocks that are lost, files cut short. It
    finds every error within 32 bits in a row and all but one in 4 billion of the others, at 3.6 GB
    a second where blake2b does 0.8.

    Example:
        >>> checksum(b"12345", checksum(b"abc")) == checksum(b"abc12345")
        True
    """
    return zlib.crc32(data, start)


def files_of(folder: str) -> Iterator[tuple[str, str]]:
    """`(name within the folder, path)` of every file in it, in the order of their names."""
    for where, inner, names in os.walk(folder):
        inner.sort()
        for name in sorted(names):
            path = os.path.join(where, name)
            yield os.path.relpath(path, folder).replace(os.sep, "/"), path


def file_checksum(path: str) -> tuple[int, int]:
    """`(number of bytes, checksum)` of a file."""
    size, value = 0, 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            value = checksum(block, value)
    return size, value


def check_file(path: str, name: str, size: int, value: int) -> None:
    """Raises where a file is not what was written.

    Args:
        path: where it is.
        name: its name, for the message.
        size: how many bytes it had.
        value: their checksum.

    Raises:
        BrokenSaveError: with the file and the reason.
    """
    try:
        found_size, found = file_checksum(path)
    except OSError as error:
        raise BrokenSaveError(f"{name} cannot be read ({error.strerror or error})") from error
    if found_size != size:
        raise BrokenSaveError(f"{name} has {found_size} bytes, and {size} were written")
    if found != value:
        raise BrokenSaveError(f"{name} has the checksum {found:08x}, and {value:08x} was written")


def flush(path: str) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    try:
        file = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network folders
            raise
    finally:
        os.close(file)


def flush_all(folder: str) -> None:
    """Waits until a folder with everything in it is on the disk."""
    for where, _, names in os.walk(folder, topdown=False):
        for name in names:
            flush(os.path.join(where, name))
        flush(where)


def publish(source: str, folder: str, step: int) -> Save:
    """Moves a save that is written out to its place in a folder, by one rename.

    Where the folder has a save of that step already the new one stands beside it and counts as
    the newer one, so that there is no moment without.
    """
    same = [save.again for save in saves(folder) if save.step == step]
    again = same[0] + 1 if same else 0
    path = os.path.join(folder, f"{step}.{again}" if again else str(step))
    os.rename(source, path)
    flush(folder)
    return Save(step, again, path)


def twin(source: str, target: str) -> None:
    """A second folder with the same files: no file is ever changed, so they are shared."""
    for where, _, names in os.walk(source):
        there = os.path.join(target, os.path.relpath(where, source))
        os.makedirs(there, exist_ok=True)
        for name in names:
            pair = os.path.join(where, name), os.path.join(there, name)
            try:
                os.link(*pair)
            except OSError:  # a file system without links
                shutil.copyfile(*pair)
    flush_all(target)


def set_aside(save: Save, folder: str) -> None:
    """Moves a save out of its place by one rename, so that nobody sees half of it removed."""
    kind = os.path.basename(os.path.dirname(save.path))
    os.rename(save.path, os.path.join(folder, f"{kind}-{os.path.basename(save.path)}"))


def empty(folder: str) -> None:
    """Removes everything in a folder, and makes it where it is missing."""
    os.makedirs(folder, exist_ok=True)
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.remove(entry.path)
