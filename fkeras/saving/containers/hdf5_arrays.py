"""Reads one array of an HDF5 file, provided that all its numbers are stored.

The HDF5 library reads plain arrays in one copy. Compressed arrays are decompressed here, chunk by
chunk: the library would decompress a chunk to any size that its data claims.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.hdf5_types import load_h5py
from fkeras.saving.containers.limits import Limits

_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
# jax takes an array as it is where it lies on such a boundary
_ALIGNMENT = 64

Take = Callable[[int, int], None]


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an uninitialized array whose memory starts at a multiple of `_ALIGNMENT` bytes.

    Example:
        >>> aligned((3, 5), np.dtype("float32")).ctypes.data % 64
        0
    """
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def read_array(
    item: Any, dims: tuple[int, ...], dtype: np.dtype, size: int, limits: Limits, take: Take
) -> np.ndarray:
    """Returns the numbers of an open HDF5 array.

    Args:
        item: the array, opened.
        dims: the shape that it claims.
        dtype: the type of its numbers here.
        size: the size of the whole file.
        limits: how far packed numbers may expand.
        take: called with place and length of the bytes that are read.

    Raises:
        FileError: where the file does not hold them all.
    """
    h5d = load_h5py("Reading an HDF5 file").h5d
    plan = item.get_create_plist()
    layout = plan.get_layout()
    if plan.get_external_count():
        raise FileError(
            "its numbers are in another file, and no file may send its reader to another. Save "
            "the model again."
        )
    if layout not in (h5d.CONTIGUOUS, h5d.CHUNKED, h5d.COMPACT):
        raise FileError(
            "a virtual array, put together from other places. Save the model again with the "
            "numbers themselves."
        )
    claimed = math.prod(dims) * dtype.itemsize
    if layout == h5d.CHUNKED and claimed:
        return _read_pieces(item, plan, dims, dtype, size, limits, take)
    stored = item.get_storage_size()
    if claimed and layout == h5d.CONTIGUOUS:
        offset = item.get_offset()
        if offset is None:
            stored = 0
        else:
            take(offset, stored)
    if stored != claimed or claimed > size:
        raise FileError(
            f"claims an array of shape {dims} and {claimed} bytes, and {stored} bytes are stored "
            f"in a file of {size}. It is cut off, or made to fill the memory."
        )
    out = aligned(dims, dtype)
    if claimed:
        _read_into(item, out)
    return out


def _read_into(item: Any, out: np.ndarray) -> None:
    h5py = load_h5py("Reading an HDF5 file")
    kind = item.get_type()
    # bytes of a type that HDF5 does not know are taken as they are
    memory = kind if kind.get_class() == h5py.h5t.OPAQUE else h5py.h5t.py_create(out.dtype)
    raw = out.view(f"V{out.dtype.itemsize}") if memory is kind else out
    item.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, memory)


def _read_pieces(
    item: Any,
    plan: Any,
    dims: tuple[int, ...],
    dtype: np.dtype,
    size: int,
    limits: Limits,
    take: Take,
) -> np.ndarray:
    piece = tuple(int(n) for n in plan.get_chunk())
    filters = [plan.get_filter(i) for i in range(plan.get_nfilters())]
    kinds = [f[0] for f in filters]
    unknown = next((f for f in filters if f[0] not in (_DEFLATE, _SHUFFLE, _FLETCHER32)), None)
    if unknown is not None or len(set(kinds)) != len(kinds):
        name = unknown[3].decode("latin-1")[:40] if unknown else "the same filter twice"
        raise FileError(
            f"packed with a filter that is not read here ({name!r}). Save it unpacked, or with "
            "gzip."
        )
    if len(piece) != len(dims) or min(piece) < 1:
        raise FileError(f"pieces of shape {piece} in an array of shape {dims}. It is damaged.")
    counts = [-(-n // m) for n, m in zip(dims, piece, strict=True)]
    number, length = math.prod(counts), math.prod(piece) * dtype.itemsize
    ratio = limits.ratio if _DEFLATE in kinds else 1
    # each piece has at least an entry of 16 bytes in the file
    if number * 16 > size or number * length > size * ratio:
        raise FileError(
            f"claims an array of shape {dims} in {number} pieces of {length} bytes, and the whole "
            f"file has {size} bytes. It is cut off, or made to fill the memory; if you trust it, "
            "pass limits=fk.Limits(ratio=...)."
        )
    entries = []
    for index in itertools.product(*(range(n) for n in counts)):
        place = tuple(i * m for i, m in zip(index, piece, strict=True))
        entries.append((place, _entry(item, place, dims, take)))
    stored = sum(entry.size for _, entry in entries)
    if number * length > max(stored, 64) * ratio:
        raise FileError(
            f"{stored} bytes that become {number * length}, more than {ratio} times as much. If "
            "you trust the file, pass limits=fk.Limits(ratio=...)."
        )
    out = aligned(dims, dtype)
    source = item.dtype if dtype.kind not in "V" else dtype
    source = dtype if source.itemsize != dtype.itemsize or source.kind == "V" else source
    for place, _ in entries:
        mask, raw = item.read_direct_chunk(place)
        data = _unpack(raw, filters, mask, length, dtype.itemsize)
        block = np.frombuffer(data, source).reshape(piece)
        inside = tuple(slice(p, p + m) for p, m in zip(place, piece, strict=True))
        target = out[inside]
        target[...] = block[tuple(slice(0, n) for n in target.shape)]
    return out


def _entry(item: Any, place: tuple[int, ...], dims: tuple[int, ...], take: Take) -> Any:
    try:
        entry = item.get_chunk_info_by_coord(place)
    except Exception:
        entry = None
    if entry is None or entry.byte_offset is None or not entry.size:
        raise FileError(
            f"claims an array of shape {dims}, and the numbers from {place} on are not stored. It "
            "is cut off, or made to fill the memory."
        )
    take(entry.byte_offset, entry.size)
    return entry


def _unpack(raw: bytes, filters: list, mask: int, length: int, itemsize: int) -> bytes:
    """The bytes of one piece; the last filter that was put on comes off first."""
    for number in reversed(range(len(filters))):
        if mask >> number & 1:
            continue
        kind = filters[number][0]
        if kind == _FLETCHER32:
            if len(raw) < 4 or _fletcher32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
                raise FileError("its checksum is wrong. It is damaged.")
            raw = raw[:-4]
        elif kind == _DEFLATE:
            # the checksum of another filter may follow the numbers
            engine = zlib.decompressobj()
            raw = engine.decompress(raw, length + 16)
            if not engine.eof:
                raise FileError(
                    f"packed numbers that do not end after {length} bytes. It is damaged, or made "
                    "to fill the memory."
                )
        elif kind == _SHUFFLE and itemsize > 1:
            values = np.frombuffer(raw, np.uint8)
            whole = len(raw) // itemsize * itemsize
            mixed = values[:whole].reshape(itemsize, -1).T.reshape(-1)
            raw = mixed.tobytes() + raw[whole:]
    if len(raw) != length:
        raise FileError(f"a piece of {len(raw)} bytes, expected {length}. It is damaged.")
    return raw


def _fletcher32(data: bytes) -> int:
    """The checksum of HDF5's filter, over words of two bytes with the first one high."""
    words = np.frombuffer(data[: len(data) // 2 * 2], ">u2").astype(np.uint64)
    if len(data) % 2:
        words = np.append(words, np.uint64(data[-1] << 8))
    first = second = 0
    for start in range(0, len(words), 1 << 16):
        part = words[start : start + (1 << 16)]
        n = len(part)
        weights = np.arange(n, 0, -1, dtype=np.uint64)
        second += n * first + int((part * weights).sum())
        first += int(part.sum())
    # sums are kept as 1 to 65535, as repeated folding of the carry leaves them
    low = first % 65535 or (65535 if first else 0)
    high = second % 65535 or (65535 if second else 0)
    return high << 16 | low
