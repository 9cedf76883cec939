"""Reads untrusted zip archives without unpacking them to disk, and writes archives.

A zip archive describes each entry twice: in the directory at the end of the file, and in a header
before the data. Readers differ in the description that they use, so a crafted archive can show two
readers different contents. `Archive` requires that both descriptions agree, that each entry is
listed once under a plain name, overlaps no other entry, and has the listed size and checksum.

`write_archive` stores entries without compression, so that they can be read without a copy, and without
timestamps, so that equal entries give equal files.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fkeras.atomic_files import atomic
from fkeras.engine.values.argument_types import FilePath
from fkeras.host.containers import file_type
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.limits import Limits, check_limit

# header before the data of an entry: signature, fixed fields, lengths of name and extra field
_LOCAL = struct.Struct("<4s5H3I2H")
# signature of the record that ends the directory
_END = b"PK\x05\x06"
_STEP = 1 << 18
# flags: encryption, strong encryption, encrypted directory
_ENCRYPTED = 0x1 | 0x40 | 0x2000
# entries up to this size are exempt from the compression ratio: short JSON compresses well
_SMALL = 1 << 16


@contextlib.contextmanager
def open_archive(path: FilePath, limits: Limits | None = None) -> Iterator[Archive]:
    """Opens a zip archive for reading during the block.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: for a file that is not a zip archive, an archive whose directory contradicts its
            entries, or one that exceeds a limit.
    """
    file = os.fsdecode(os.fspath(path))
    limits = limits or Limits()
    with contextlib.closing(file_type.open_regular(path)) as source:
        with reading(file):
            archive = Archive(file, source, limits)
        yield archive


class Archive:
    """Entries of a zip archive whose directory agrees with the entries' headers.

    Attributes:
        names: names of the entries in the order of the directory, without folders.
    """

    def __init__(self, file: str, source: io.FileIO, limits: Limits):
        self.file = file
        self._source = source
        self._limits = limits
        self._checked: set[str] = set()
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        start = source.read(file_type.LENGTH)
        if not start.startswith(file_type.ZIP):
            raise FileError(
                f"expected a zip archive, received {file_type.describe(start, size)}.", file=file
            )
        infos, directory_start = self._read_directory(size)
        self._check_end(directory_start, size)
        self._entries: dict[str, tuple[zipfile.ZipInfo, int]] = {}
        # sorted by offset, so that comparing each entry with the end of the previous one finds
        # every overlap: zip bombs list one block of compressed data as many entries
        previous_end = 0
        total = 0
        for info in sorted(infos, key=lambda i: i.header_offset):
            name = info.orig_filename
            self._check_entry(info, name)
            if name in self._entries:
                raise self._error(name, "occurs twice in the archive. Save the model again.")
            data = self._data_start(info, name, size)
            if info.header_offset < previous_end or data + info.compress_size > directory_start:
                raise self._error(
                    name,
                    "overlaps another entry of the archive. The file is damaged, or crafted to "
                    "exhaust memory.",
                )
            previous_end = data + info.compress_size
            total += info.file_size
            self._entries[name] = (info, data)
        # many entries below the limit could fill the memory together
        check_limit(limits, "member_bytes", total, "bytes of all entries together", file=file)
        self.names = tuple(i.orig_filename for i in infos if not i.orig_filename.endswith("/"))

    def _error(self, name: str, problem: str) -> FileError:
        return FileError(problem, file=self.file, member=ascii(name[:100])[1:-1])

    def _read_directory(self, size: int) -> tuple[list[zipfile.ZipInfo], int]:
        try:
            # not closed: ZipFile does not own a file object that it received
            opened = zipfile.ZipFile(self._source)
        except Exception as error:
            raise FileError(
                f"cannot read the directory of the zip archive ({error}). The file is truncated or "
                "damaged; save or download it again.",
                file=self.file,
            ) from error
        infos = opened.infolist()
        if len(infos) > min(self._limits.members, size):
            raise FileError(
                f"expected at most {self._limits.members} entries, received {len(infos)}. If you "
                "trust the file, pass limits=fk.Limits(members=...).",
                file=self.file,
            )
        return infos, opened.start_dir

    def _check_end(self, directory_start: int, size: int) -> None:
        """Rejects a second end record: another reader might use the other directory."""
        # the end record must be the only one, and its comment must end with the file
        self._source.seek(directory_start)
        tail = self._source.read(size - directory_start)
        at = tail.find(_END)
        comment = int.from_bytes(tail[at + 20 : at + 22], "little") if at >= 0 else 0
        if at < 0 or tail.count(_END) != 1 or at + 22 + comment != len(tail):
            raise FileError(
                "expected a single directory at the end of the zip archive, received an ambiguous "
                "end. Save the model again.",
                file=self.file,
            )

    def _check_entry(self, info: zipfile.ZipInfo, name: str) -> None:
        parts = name.removesuffix("/").split("/")
        # nothing is unpacked here, but users and other tools join such names to a folder
        escapes = any(part in ("", ".", "..") for part in parts)
        if escapes or "\\" in name or ":" in name or not name.isprintable() or len(name) > 1024:
            raise self._error(
                name,
                "expected a plain relative name such as 'assets/words.txt'. Save the model again.",
            )
        # the upper half holds the Unix mode, or 0 if the writer set none
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR) > name.endswith(
            "/"
        ):
            raise self._error(
                name, "expected a plain file, received a link or a device. Save the model again."
            )
        if info.flag_bits & _ENCRYPTED:
            raise self._error(
                name, "the entry is encrypted. Unpack the archive with its password first."
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._error(
                name,
                "expected a stored or deflated entry, received the compression method "
                f"{info.compress_type}. Save the model again.",
            )
        if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
            raise self._error(
                name,
                "expected equal sizes for an uncompressed entry, received "
                f"{info.compress_size} and {info.file_size} bytes. The file is damaged.",
            )
        # deflate expands at most 1032-fold; weights and JSON of real models stay far below that
        allowed_size = max(info.compress_size * self._limits.ratio, _SMALL)
        if info.file_size > min(allowed_size, self._limits.member_bytes):
            raise self._error(
                name,
                f"the entry expands from {info.compress_size} to {info.file_size} bytes, above the "
                "limits. If you trust the file, pass limits=fk.Limits(ratio=..., member_bytes=...).",
            )

    def _data_start(self, info: zipfile.ZipInfo, name: str, size: int) -> int:
        """Returns the offset of an entry's data, and compares its header with the directory."""
        if not 0 <= info.header_offset <= size - _LOCAL.size:
            raise self._error(
                name, "the entry starts outside the archive. The file is truncated or damaged."
            )
        self._source.seek(info.header_offset)
        raw = self._source.read(_LOCAL.size)
        sign, _, flags, method, _, _, crc, packed, full, n, m = _LOCAL.unpack(raw)
        if sign != file_type.ZIP:
            raise self._error(
                name, "no entry at the offset that the directory lists. The file is damaged."
            )
        raw_name = self._source.read(n)
        header_name = raw_name.decode("utf-8" if flags & 0x800 else "cp437", "replace")
        sizes_follow = flags & 0x8  # streamed entry: zeros here, sizes and checksum follow the data
        sizes_match = (crc, packed, full) == (info.CRC, info.compress_size, info.file_size)
        # zip64: the sizes are in the extra field, which is not compared; `read` checks the length
        is_zip64 = packed == 0xFFFFFFFF or full == 0xFFFFFFFF
        if (
            header_name != name
            or method != info.compress_type
            or flags & _ENCRYPTED
            or not (sizes_match or sizes_follow or (is_zip64 and crc == info.CRC))
        ):
            raise self._error(
                name,
                f"the entry's header has the name {header_name[:100]!a}, or other sizes than the "
                "directory. The file is damaged.",
            )
        return info.header_offset + _LOCAL.size + n + m

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def size(self, name: str) -> int:
        """Returns the unpacked size of an entry in bytes."""
        return self._find(name)[0].file_size

    def _find(self, name: str) -> tuple[zipfile.ZipInfo, int]:
        if name not in self._entries:
            available = ", ".join(self.names[:12]) or "nothing"
            raise self._error(name, f"is missing; found {available}. Save the model again.")
        return self._entries[name]

    def read(self, name: str) -> bytes:
        """Returns the unpacked bytes of an entry."""
        info, start = self._find(name)
        with reading(self.file, name):
            self._source.seek(start)
            data = self._read_exactly(info.compress_size)
            if info.compress_type == zipfile.ZIP_DEFLATED:
                # max_length bounds the memory; the extra byte reveals data beyond the listed size
                data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, info.file_size + 1)
            if len(data) > info.file_size:
                raise FileError(
                    f"unpacks to more than the {info.file_size} bytes that are listed. The file is "
                    "damaged, or crafted to exhaust memory."
                )
            if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
                raise self._damaged(name)
            return data

    def open(self, name: str) -> file_type.BinaryFile:
        """Opens an entry as a seekable binary file; an uncompressed entry is not copied.

        Raises:
            FileError: as for `read`.
        """
        info, start = self._find(name)
        if info.compress_type != zipfile.ZIP_STORED:
            return io.BytesIO(self.read(name))
        with reading(self.file, name):
            # readers of the window skip parts, so the checksum is verified once before
            if name not in self._checked:
                if self._checksum(start, info.file_size) != info.CRC:
                    raise self._damaged(name)
                self._checked.add(name)
            return (
                io.BytesIO() if not info.file_size else Window(self._source, start, info.file_size)
            )

    def _damaged(self, name: str) -> FileError:
        return self._error(
            name,
            "the checksum differs. The file is damaged; save or download it again.",
        )

    def _read_exactly(self, length: int) -> bytes:
        # an unbuffered file may return fewer bytes than requested
        parts = []
        while length:
            part = self._source.read(length)
            if not part:
                raise FileError("the file is truncated; save or download it again.")
            parts.append(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _checksum(self, start: int, length: int) -> int:
        self._source.seek(start)
        block = memoryview(bytearray(min(length, _STEP) or 1))
        checksum = 0
        while length:
            count = self._source.readinto(block[: min(length, _STEP)])
            if not count:
                raise FileError("the file is truncated; save or download it again.")
            checksum = zlib.crc32(block[:count], checksum)
            length -= count
        return checksum


class Window(io.RawIOBase):
    """Read-only view of a range of bytes of a binary file, as a file object."""

    def __init__(self, source: io.RawIOBase, start: int, length: int):
        super().__init__()
        self._source = source
        self._start = start
        self._length = length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = (0, self._at, self._length)[whence]
        if base + offset < 0:
            raise ValueError(f"expected a position of 0 or more, received {base + offset}.")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        requested = max(0, min(len(view), self._length - self._at))
        received = 0
        # windows share the position of the source: seek before every read
        if requested:
            self._source.seek(self._start + self._at)
        while received < requested:
            count = self._source.readinto(view[received:requested])
            if not count:
                break
            received += count
        self._at += received
        return received


_WRITTEN_STEP = 1 << 20


def write_archive(path: FilePath, members: Mapping[str, bytes | Callable[[Any], Any]]) -> None:
    """Writes a zip archive atomically: `path` holds the complete archive or its old content.

    Equal entries give equal bytes.

    Args:
        members: `{name: content}`; the content is bytes, or a function that writes the content
            into the binary file that it receives. The function may seek and read in that file.

    Raises:
        OSError: if the file cannot be written; the old content of `path` is unchanged.
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
                    shutil.copyfileobj(part, target, _WRITTEN_STEP)


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # the date is the default, 1980-01-01, in every file
    entry.file_size = size  # zipfile chooses zip64 headers by this size
    entry.create_system = 3  # Unix, so that all systems write the same bytes
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry
