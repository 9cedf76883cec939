"""Reads the files of a folder as the entries of an archive."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Iterator

from fkeras.engine.values.argument_types import FilePath
from fkeras.host.containers.archive import Archive, open_archive
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.file_type import open_regular
from fkeras.host.containers.limits import Limits, check_limit


@contextlib.contextmanager
def open_entries(path: FilePath, limits: Limits | None = None) -> Iterator[Archive]:
    """Opens a zip archive, or a folder with the entries of an archive as files.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: as in `open_archive`; for a folder that contains a link to a folder.
    """
    with contextlib.ExitStack() as stack:
        if os.path.isdir(path):
            yield _Folder(os.fsdecode(os.fspath(path)), limits or Limits(), stack)
        else:
            yield stack.enter_context(open_archive(path, limits))


class _Folder(Archive):
    """The files of a folder, by their paths in the folder.

    Args:
        stack: closes the opened files.
    """

    def __init__(self, file: str, limits: Limits, stack: contextlib.ExitStack):
        self.file = file
        self._stack = stack
        self._entries = {}
        for folder, folders, names in os.walk(file, onerror=_raise):
            for name in folders:
                if os.path.islink(os.path.join(folder, name)):
                    raise FileError(
                        "expected files, received a link to a folder.", file=file, member=name
                    )
            for name in names:
                path = os.path.join(folder, name)
                entry = zipfile.ZipInfo(os.path.relpath(path, file))
                entry.file_size = os.stat(path).st_size
                self._entries[entry.filename] = entry, 0
            check_limit(limits, "members", len(self._entries), "files", file=file)
        total = sum(entry.file_size for entry, _ in self._entries.values())
        check_limit(limits, "member_bytes", total, "bytes of all files together", file=file)
        self.names = tuple(self._entries)

    def open(self, name: str) -> io.FileIO:
        self._find(name)
        return self._stack.enter_context(open_regular(os.path.join(self.file, *name.split("/"))))

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()


def _raise(error: OSError) -> None:
    raise error
