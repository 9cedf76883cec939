"""Reads an array of an HDF5 file after checking that the file stores all its values.

The HDF5 library reads contiguous arrays in one copy. This module decompresses chunked arrays, chunk
by chunk: the library would decompress a chunk to any size that the compressed data expands to.
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

# filters of chunks, as the HDF5 library numbers them
_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
# on CPU, JAX uses a NumPy array without a copy if its memory has this alignment
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
    """Returns the values of an open HDF5 array.

    Args:
        item: the open array, as h5py's low-level object.
        dims: shape that the file claims for the array.
        dtype: dtype of the result, in native byte order.
        size: size of the whole file in bytes.
        limits: limits; `ratio` bounds the expansion of compressed chunks.
        take: called with the offset and length of each range of bytes that is read.

    Raises:
        FileError: for data in another file, a virtual array, an unknown filter, or values that the
            file does not store.
    """
    h5d = load_h5py("Reading an HDF5 file").h5d
    plan = item.get_create_plist()
    layout = plan.get_layout()
    # external storage would read any file that the process may read
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
    # HDF5 returns fill values for an array whose storage was never allocated: such an array of
    # any size takes a few bytes in the file
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
    # HDF5 cannot convert opaque types (bfloat16): read raw bytes
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
    # two checks before the loop over chunks: the index needs at least 16 bytes per chunk, and the
    # decompressed size is bounded by the size of the file times the ratio
    if number * 16 > size or number * length > size * ratio:
        raise FileError(
            f"claims an array of shape {dims} in {number} pieces of {length} bytes, and the whole "
            f"file has {size} bytes. It is cut off, or made to fill the memory; if you trust it, "
            "pass limits=fk.Limits(ratio=...)."
        )
    # HDF5 returns fill values for a missing chunk: all chunks must be stored, and their sizes in
    # the file bound the array, before the array is allocated
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
    # raw chunks are in the byte order of the file; the assignment to `target` converts
    source = item.dtype if dtype.kind not in "V" else dtype
    source = dtype if source.itemsize != dtype.itemsize or source.kind == "V" else source
    for place, _ in entries:
        mask, raw = item.read_direct_chunk(place)
        data = _unpack(raw, filters, mask, length, dtype.itemsize)
        block = np.frombuffer(data, source).reshape(piece)
        inside = tuple(slice(p, p + m) for p, m in zip(place, piece, strict=True))
        # chunks at the edge extend beyond the array
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
    """Returns the decoded bytes of a chunk: undoes the filters in reverse order."""
    for number in reversed(range(len(filters))):
        if mask >> number & 1:  # this chunk was written without the filter
            continue
        kind = filters[number][0]
        if kind == _FLETCHER32:
            if len(raw) < 4 or _fletcher32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
                raise FileError("its checksum is wrong. It is damaged.")
            raw = raw[:-4]
        elif kind == _DEFLATE:
            # max_length bounds the memory, with space for a checksum that another filter appended;
            # a bomb has not reached its end at that length
            engine = zlib.decompressobj()
            raw = engine.decompress(raw, length + 16)
            if not engine.eof:
                raise FileError(
                    f"packed numbers that do not end after {length} bytes. It is damaged, or made "
                    "to fill the memory."
                )
        elif kind == _SHUFFLE and itemsize > 1:
            # shuffled data holds the first bytes of all values, then all second bytes, and so on
            values = np.frombuffer(raw, np.uint8)
            whole = len(raw) // itemsize * itemsize
            mixed = values[:whole].reshape(itemsize, -1).T.reshape(-1)
            raw = mixed.tobytes() + raw[whole:]
    if len(raw) != length:
        raise FileError(f"a piece of {len(raw)} bytes, expected {length}. It is damaged.")
    return raw


def _fletcher32(data: bytes) -> int:
    """Returns HDF5's Fletcher-32 checksum, over big-endian words of two bytes."""
    words = np.frombuffer(data[: len(data) // 2 * 2], ">u2").astype(np.uint64)
    if len(data) % 2:
        words = np.append(words, np.uint64(data[-1] << 8))
    first = second = 0
    # blocks of this length keep the weighted sum of words within uint64
    for start in range(0, len(words), 1 << 16):
        part = words[start : start + (1 << 16)]
        n = len(part)
        weights = np.arange(n, 0, -1, dtype=np.uint64)
        second += n * first + int((part * weights).sum())
        first += int(part.sum())
    # HDF5 folds carries instead of taking the remainder: a nonzero multiple of 65535 gives 65535
    low = first % 65535 or (65535 if first else 0)
    high = second % 65535 or (65535 if second else 0)
    return high << 16 | low
