"""Files that are whole or not there: written beside their place and then put there."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any, BinaryIO


def as_path(value: Any) -> str:
    """The converter of an argument that is a path."""
    try:
        return os.fsdecode(os.fspath(value))
    except TypeError:
        raise TypeError(
            f"expected a path, a string or a pathlib.Path, received {value!r}."
        ) from None


def write_whole(path: str, write: Callable[[BinaryIO], Any]) -> None:
    """Calls `write` with a temporary file in the folder of `path` and gives it that name.

    Args:
        path: where the file shall be; its folder is made.
        write: writes into a binary file.

    Raises:
        OSError: where that cannot be; what stood at `path` still stands there.

    Example:
        >>> import pathlib, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> write_whole(f"{folder}/a/b.txt", lambda file: file.write(b"whole"))
        >>> pathlib.Path(f"{folder}/a/b.txt").read_text()
        'whole'
    """
    place = pathlib.Path(path)
    if place.is_dir():
        raise IsADirectoryError(f"{path}: expected a file's name, and a folder stands there.")
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        # a temporary file is readable by its owner alone
        os.chmod(temporary, 0o666 & ~_mask())
        os.replace(temporary, path)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def require_folder(where: str, argument: str, folder: str) -> None:
    """Makes a folder and raises where nothing can be written into it.

    Args:
        where: the callback, for the message.
        argument: its argument that names the folder.
        folder: the folder.

    Raises:
        OSError: where it cannot be made or written into.
    """
    try:
        os.makedirs(folder or ".", exist_ok=True)
        with tempfile.TemporaryFile(dir=folder or "."):
            pass
    except OSError as error:
        raise OSError(
            f"{where}: expected {argument} as a folder that can be written into, and "
            f"{folder or '.'!r} cannot: {error.strerror or error}. Give another {argument}."
        ) from error
