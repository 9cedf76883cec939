"""Zip archives written whole: entries as they are, none packed, and no times in them."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from fkeras import files

_STEP = 1 << 18
_LARGE = 0xFFFFFFFF
_UTF8 = 0x800
# the first day that the format knows
_DATE = (1 << 5) | 1
# data begins on such a boundary, so that it can be mapped into memory
_ALIGNMENT = 64
_PADDING, _ZIP64 = 0xD935, 1
_SIZES = struct.calcsize("<2H2Q")
_MODE = 0o100644 << 16


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
    with files.replacing(path) as file:
        listed = [_write(file, name, content) for name, content in members.items()]
        begin = file.tell()
        for entry in listed:
            file.write(_central(*entry))
        end = file.tell()
        file.write(_end(len(listed), begin, end))


def _write(file: Any, name: str, content: Any) -> tuple[bytes, int, int, int, bytes]:
    header = file.tell()
    encoded = name.encode()
    # room for sizes beyond four bytes, which are not known yet, and up to the boundary
    fixed = header + 30 + len(encoded)
    room = _SIZES + 4
    room += -(fixed + room) % _ALIGNMENT
    start = fixed + room
    file.write(bytes(start - header))
    if callable(content):
        part = Part(file, start)
        content(part)
        size = part.seek(0, os.SEEK_END)
        crc = _checksum(file, start, size)
    else:
        size, crc = len(content), zlib.crc32(content)
        file.write(content)
    file.seek(header)
    file.write(_local(encoded, size, crc, room) + encoded + _extra(size, room))
    file.seek(start + size)
    return encoded, size, crc, header, b""


def _extra(size: int, room: int) -> bytes:
    sizes = struct.pack("<2H2Q", _ZIP64, 16, size, size) if size >= _LARGE else b""
    left = room - len(sizes)
    return sizes + struct.pack("<2H", _PADDING, left - 4) + bytes(left - 4)


def _local(name: bytes, size: int, crc: int, room: int) -> bytes:
    shown = min(size, _LARGE)
    version = 45 if size >= _LARGE else 20
    return struct.pack(
        "<4s5H3I2H",
        b"PK\x03\x04", version, _UTF8, 0, 0, _DATE, crc, shown, shown, len(name), room,
    )  # fmt: skip


def _central(name: bytes, size: int, crc: int, header: int, comment: bytes) -> bytes:
    large = [size, size] if size >= _LARGE else []
    large += [header] if header >= _LARGE else []
    extra = struct.pack(f"<2H{len(large)}Q", _ZIP64, 8 * len(large), *large) if large else b""
    shown = min(size, _LARGE)
    version = 45 if large else 20
    fields = struct.pack(
        "<4s6H3I5H2I",
        b"PK\x01\x02", 3 << 8 | version, version, _UTF8, 0, 0, _DATE, crc, shown, shown,
        len(name), len(extra), len(comment), 0, 0, _MODE, min(header, _LARGE),
    )  # fmt: skip
    return fields + name + extra + comment


def _end(count: int, begin: int, end: int) -> bytes:
    size = end - begin
    large = b""
    if begin >= _LARGE or size >= _LARGE or count >= 0xFFFF:
        large = struct.pack(
            "<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, begin
        ) + struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
    shown = min(count, 0xFFFF)
    return large + struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, shown, shown, min(size, _LARGE), min(begin, _LARGE), 0
    )


def _checksum(file: Any, start: int, length: int) -> int:
    file.seek(start)
    found = 0
    while length:
        block = file.read(min(length, _STEP))
        found = zlib.crc32(block, found)
        length -= len(block)
    return found


class Part(io.RawIOBase):
    """The rest of a binary file, from one place on, as a file of its own to write and read."""

    def __init__(self, file: Any, start: int):
        super().__init__()
        self._file = file
        self._start = start

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell() - self._start

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:
            offset += self._start
        return self._file.seek(offset, whence) - self._start

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer)

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def truncate(self, size: int | None = None) -> int:
        place = None if size is None else size + self._start
        return self._file.truncate(place) - self._start

    def close(self) -> None:
        # the file itself goes on after this part
        with contextlib.suppress(ValueError):
            self._file.flush()
        super().close()
