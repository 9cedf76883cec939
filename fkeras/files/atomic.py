"""Files that are whole or not there: written beside their place and then put there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO


def as_path(value: Any) -> str:
    """The converter of an argument that is a path.

    Raises:
        TypeError: for anything else.

    Example:
        >>> import pathlib
        >>> as_path(pathlib.PurePosixPath("runs/one"))
        'runs/one'
    """
    try:
        return os.fsdecode(os.fspath(value))
    except TypeError:
        raise TypeError(
            f"expected a path, a string or a pathlib.Path, received {value!r}."
        ) from None


@contextlib.contextmanager
def replacing(path: Any) -> Iterator[BinaryIO]:
    """A new binary file that stands at `path`, whole, once the block has ended without an error.

    It is written under another name in the same folder and renamed, so that whoever opens `path`,
    and whoever comes after a kill at any moment, finds the old file or the new one.

    Args:
        path: where the file shall be; its folder is made. Where it is a link to a file, that file
            is replaced.

    Returns:
        A context manager that gives a file to write, read and seek in.

    Raises:
        OSError: where that cannot be; what stood at `path` still stands there.

    Example:
        >>> import pathlib, tempfile
        >>> place = pathlib.Path(tempfile.mkdtemp(), "a", "b.txt")
        >>> with replacing(place) as file:
        ...     _ = file.write(b"whole")
        >>> place.read_text()
        'whole'
    """
    place = os.path.realpath(as_path(path))
    if os.path.isdir(place):
        raise IsADirectoryError(
            f"{path}: expected a file's name, and a folder stands there. Give a name inside it."
        )
    folder, name = os.path.split(place)
    os.makedirs(folder, exist_ok=True)
    # a name of its own for each writer: two that save at once leave one whole file
    temporary = os.path.join(folder, f".{name[:128]}.{secrets.token_hex(8)}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _keep_name(folder)


def _keep_name(folder: str) -> None:
    """Writes a folder to the disk, so that a rename in it outlives a loss of power."""
    if not hasattr(os, "O_DIRECTORY"):  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some network file systems do not know it
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
