"""Atomic writing of files: a temporary file in the same directory replaces the target."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO


def as_path(value: Any) -> str:
    """Converts an argument to a path.

    Raises:
        TypeError: for a value that is not a path.
        ValueError: for a path with a null byte, which no file system has.
    """
    try:
        path = os.fsdecode(os.fspath(value))
    except TypeError:
        raise TypeError(
            f"expected a path, a string or a pathlib.Path, received {value!r:.80}."
        ) from None
    if "\0" in path:
        raise ValueError(
            f"expected a path, received {path!r} with a null byte. Remove the null byte."
        )
    return path


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Adds the path to an `OSError` of the block that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a new binary file that replaces `path` atomically at the end of the block.

    The block writes a temporary file in the same directory, which is renamed if the block raises
    no exception. After a crash at any moment, `path` is either the complete old file or the
    complete new file.

    Args:
        path: the path of the file; missing directories are created. For a symbolic link, the
            target of the link is replaced.

    Returns:
        A context manager whose file can be written, read and seeked.

    Raises:
        OSError: if the file cannot be written; `path` is unchanged.
    """
    path = as_path(path)
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise IsADirectoryError(
            f"{path}: expected the path of a file, received a folder. Append a file name."
        )
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    # a random name for each writer: concurrent writers leave one complete file; the same directory,
    # since a rename is atomic only within a file system
    temporary = os.path.join(folder, f".{name[:128]}.{secrets.token_hex(8)}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with naming(path), os.fdopen(descriptor, "w+b") as file:
            yield file
            # data must reach the disk before the rename does, or a power loss leaves an empty file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _flush_folder(folder)


def _flush_folder(folder: str) -> None:
    """Flushes a directory to the disk, so that a rename in the directory survives a power loss."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open directories
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # unsupported by some network file systems
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
