"""Writes zip archives: entries uncompressed and without times, so equal models give equal files."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.files import atomic

_STEP = 1 << 20


def write_archive(path: Any, members: Mapping[str, bytes | Callable[[Any], Any]]) -> None:
    """Writes a zip archive that stands at `path`, whole, or not at all.

    The same entries give the same bytes.

    Args:
        path: where it shall be.
        members: by name the bytes of each entry, or a function that writes them into the binary
            file that it is called with; it may seek and read there.

    Raises:
        OSError: where that cannot be; what stood at `path` still stands there.

    Example:
        >>> import pathlib, tempfile, zipfile
        >>> place = pathlib.Path(tempfile.mkdtemp(), "a.zip")
        >>> write_archive(place, {"a": b"1", "b": lambda file: file.write(b"22")})
        >>> zipfile.ZipFile(place).read("b")
        b'22'
    """
    folder = os.path.dirname(os.path.realpath(atomic.as_path(path)))
    with atomic.replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            if not callable(content):
                archive.writestr(_entry(name, len(content)), content)
                continue
            # a file without a name: nothing of it is left after a kill
            with tempfile.TemporaryFile(dir=folder) as part:
                content(part)
                entry = _entry(name, part.seek(0, os.SEEK_END))
                part.seek(0)
                with archive.open(entry, "w") as target:
                    shutil.copyfileobj(part, target, _STEP)


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # its date is the first that the format knows
    entry.file_size = size  # zipfile writes sizes beyond four bytes where this says so
    entry.create_system = 3  # the same bytes on every system
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry
