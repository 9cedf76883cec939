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

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.hdf5_types import load_h5py
from fkeras.host.containers.limits import Limits

# filters of chunks, as the HDF5 library numbers them
_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
# on CPU, JAX uses a NumPy array without a copy if its memory has this alignment
_ALIGNMENT = 64

Take = Callable[[int, int], None]


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an uninitialized array whose memory starts at a multiple of `_ALIGNMENT` bytes."""
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
        limits: limits; `ratio` bounds the expansion of compressed chunks.
    """
    h5d = load_h5py("Reading an HDF5 file").h5d
    properties = item.get_create_plist()
    layout = properties.get_layout()
    # external storage would read any file that the process may read
    if properties.get_external_count():
        raise FileError(
            "expected an array stored in this file, received a reference to another file. Save the "
            "model again."
        )
    if layout not in (h5d.CONTIGUOUS, h5d.CHUNKED, h5d.COMPACT):
        raise FileError(
            "expected a stored array, received a virtual array. Save the model again with stored "
            "arrays."
        )
    claimed = math.prod(dims) * dtype.itemsize
    if layout == h5d.CHUNKED and claimed:
        return _read_chunks(item, properties, dims, dtype, size, limits, take)
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
            f"claims an array of shape {dims} and {claimed} bytes, but {stored} bytes are stored "
            f"in a file of {size}. The file is truncated, or crafted to exhaust memory."
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


def _read_chunks(
    item: Any,
    properties: Any,
    dims: tuple[int, ...],
    dtype: np.dtype,
    size: int,
    limits: Limits,
    take: Take,
) -> np.ndarray:
    chunk_shape = tuple(int(n) for n in properties.get_chunk())
    filters = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    kinds = [f[0] for f in filters]
    unknown = next((f for f in filters if f[0] not in (_DEFLATE, _SHUFFLE, _FLETCHER32)), None)
    if unknown is not None or len(set(kinds)) != len(kinds):
        name = unknown[3].decode("latin-1")[:40] if unknown else "the same filter twice"
        raise FileError(
            f"unsupported compression filter ({name!r}). Save the model uncompressed, or with gzip."
        )
    if len(chunk_shape) != len(dims) or min(chunk_shape) < 1:
        raise FileError(
            f"received chunks of shape {chunk_shape} in an array of shape {dims}. The file is "
            "damaged."
        )
    counts = [-(-n // m) for n, m in zip(dims, chunk_shape, strict=True)]
    chunk_count, chunk_bytes = math.prod(counts), math.prod(chunk_shape) * dtype.itemsize
    ratio = limits.ratio if _DEFLATE in kinds else 1
    # two checks before the loop over chunks: the index needs at least 16 bytes per chunk, and the
    # decompressed size is bounded by the size of the file times the ratio
    if chunk_count * 16 > size or chunk_count * chunk_bytes > size * ratio:
        raise FileError(
            f"claims an array of shape {dims} in {chunk_count} chunks of {chunk_bytes} bytes, but "
            f"the file has {size} bytes. The file is truncated, or crafted to exhaust memory; if "
            "you trust it, pass limits=fk.Limits(ratio=...)."
        )
    # HDF5 returns fill values for a missing chunk: all chunks must be stored, and their sizes in
    # the file bound the array, before the array is allocated
    entries = []
    for index in itertools.product(*(range(n) for n in counts)):
        offset = tuple(i * m for i, m in zip(index, chunk_shape, strict=True))
        entries.append((offset, _chunk_info(item, offset, dims, take)))
    stored = sum(entry.size for _, entry in entries)
    if chunk_count * chunk_bytes > max(stored, 64) * ratio:
        raise FileError(
            f"expands from {stored} to {chunk_count * chunk_bytes} bytes, more than {ratio}-fold. "
            "If you trust the file, pass limits=fk.Limits(ratio=...)."
        )
    out = aligned(dims, dtype)
    # raw chunks are in the byte order of the file; the assignment to `target` converts
    source = item.dtype if dtype.kind not in "V" else dtype
    source = dtype if source.itemsize != dtype.itemsize or source.kind == "V" else source
    for offset, _ in entries:
        mask, raw = item.read_direct_chunk(offset)
        data = _unpack(raw, filters, mask, chunk_bytes, dtype.itemsize)
        block = np.frombuffer(data, source).reshape(chunk_shape)
        region = tuple(slice(p, p + m) for p, m in zip(offset, chunk_shape, strict=True))
        # chunks at the edge extend beyond the array
        target = out[region]
        target[...] = block[tuple(slice(0, n) for n in target.shape)]
    return out


def _chunk_info(item: Any, offset: tuple[int, ...], dims: tuple[int, ...], take: Take) -> Any:
    try:
        info = item.get_chunk_info_by_coord(offset)
    except Exception:
        info = None
    if info is None or info.byte_offset is None or not info.size:
        raise FileError(
            f"claims an array of shape {dims}, but the chunk at {offset} is not stored. The file is "
            "truncated, or crafted to exhaust memory."
        )
    take(info.byte_offset, info.size)
    return info


def _unpack(raw: bytes, filters: list, mask: int, length: int, itemsize: int) -> bytes:
    """Returns the decoded bytes of a chunk: undoes the filters in reverse order."""
    for number in reversed(range(len(filters))):
        if mask >> number & 1:  # this chunk was written without the filter
            continue
        kind = filters[number][0]
        if kind == _FLETCHER32:
            if len(raw) < 4 or _fletcher32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
                raise FileError("the checksum of a chunk is wrong. The file is damaged.")
            raw = raw[:-4]
        elif kind == _DEFLATE:
            # max_length bounds the memory, with space for a checksum that another filter appended;
            # a bomb has not reached its end at that length
            decompressor = zlib.decompressobj()
            raw = decompressor.decompress(raw, length + 16)
            if not decompressor.eof:
                raise FileError(
                    f"a compressed chunk expands beyond {length} bytes. The file is damaged, or "
                    "crafted to exhaust memory."
                )
        elif kind == _SHUFFLE and itemsize > 1:
            # shuffled data holds the first bytes of all values, then all second bytes, and so on
            values = np.frombuffer(raw, np.uint8)
            aligned_length = len(raw) // itemsize * itemsize
            unshuffled = values[:aligned_length].reshape(itemsize, -1).T.reshape(-1)
            raw = unshuffled.tobytes() + raw[aligned_length:]
    if len(raw) != length:
        raise FileError(
            f"expected a chunk of {length} bytes, received {len(raw)}. The file is damaged."
        )
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
