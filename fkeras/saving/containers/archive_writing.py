"""Writes zip archives with uncompressed entries and without timestamps.

Equal entries give equal files. Uncompressed entries can be read without a copy.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.engine.values.argument_types import FilePath
from fkeras.files import atomic

_STEP = 1 << 20


def write_archive(path: FilePath, members: Mapping[str, bytes | Callable[[Any], Any]]) -> None:
    """Writes a zip archive atomically: `path` holds the complete archive or its old content.

    Equal entries give equal bytes.

    Args:
        path: path of the archive.
        members: `{name: content}`; the content is bytes, or a function that writes the content
            into the binary file that it receives. The function may seek and read in that file.

    Raises:
        OSError: if the file cannot be written; the old content of `path` is unchanged.

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
            # a temporary file, since h5py seeks back and an entry of an archive cannot seek.
            # It has no name, so a killed process leaves nothing behind
            with tempfile.TemporaryFile(dir=folder) as part:
                content(part)
                entry = _entry(name, part.seek(0, os.SEEK_END))
                part.seek(0)
                with archive.open(entry, "w") as target:
                    shutil.copyfileobj(part, target, _STEP)


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # the date is the default, 1980-01-01, in every file
    entry.file_size = size  # zipfile chooses zip64 headers by this size
    entry.create_system = 3  # Unix, so that all systems write the same bytes
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry
