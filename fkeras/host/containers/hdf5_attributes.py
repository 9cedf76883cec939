"""Reads attributes of HDF5 objects: strings, numbers, and lists of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fkeras.host.containers.errors import FileError
from fkeras.host.containers.file_type import BinaryFile
from fkeras.host.containers.hdf5_types import array_dtype, load_h5py
from fkeras.host.containers.limits import Limits

# signature and version of a global heap, which holds strings of variable length
_HEAP = b"GCOL\x01"
_STEP = 1 << 22


def read_attributes(
    item: Any, heap: Callable[[], int], size: int, limits: Limits
) -> dict[str, Any]:
    """Returns all attributes of an open group or array by name.

    Args:
        item: the open object, as h5py's low-level object.
        heap: returns the size of the largest heap of strings in the file; checks all heaps.
        limits: limits; `attribute_bytes` bounds the size of one attribute.

    Returns:
        Strings as `str`, scalars as `int`, `float` or `bool`, lists of strings as tuples, lists of
        numbers as arrays, and None for an empty attribute.
    """
    h5a = load_h5py("Reading an HDF5 file").h5a
    # no attribute takes less than 8 bytes, so a larger count is damage
    count = h5a.get_num_attrs(item)
    if count * 8 > size or count > limits.objects:
        raise FileError(
            f"claims {count} attributes in a file of {size} bytes. The file is damaged."
        )
    values = {}
    for number in range(count):
        attribute = h5a.open(item, index=number)
        name = _text(attribute.name, "the name of an attribute")
        if name in values:
            raise FileError(f"the attribute {name!r} occurs twice. The file is damaged.")
        values[name] = _value(attribute, name, heap, size, limits)
    return values


def _text(value: str | bytes, what: str) -> str:
    if isinstance(value, str):
        # h5py decodes invalid UTF-8 to lone surrogates; encode back, to report an error below
        value = value.encode("utf-8", "surrogateescape")
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(
            f"expected {what} in UTF-8, received other bytes. The file is damaged."
        ) from None


def _value(attribute: Any, name: str, heap: Callable[[], int], size: int, limits: Limits) -> Any:
    h5py = load_h5py("Reading an HDF5 file")
    h5s, h5t = h5py.h5s, h5py.h5t
    space = attribute.get_space()
    if space.get_simple_extent_type() == h5s.NULL:
        return None
    dims = tuple(int(n) for n in space.get_simple_extent_dims())
    kind = attribute.get_type()
    # compare the claimed size with the file before allocating `out`
    element_count = math.prod(dims)
    claimed = element_count * kind.get_size()
    if claimed > min(size, limits.attribute_bytes):
        raise FileError(
            f"the attribute {name!r} claims {claimed} bytes; the file has {size}, and "
            f"{limits.attribute_bytes} are allowed. The file is damaged; if you trust it, pass "
            "limits=fk.Limits(attribute_bytes=...)."
        )
    if kind.get_class() != h5t.STRING:
        dtype = array_dtype(kind)
        out = np.empty(dims, dtype)
        attribute.read(out, h5t.py_create(dtype))
        return out if dims else out.item()
    if len(dims) > 1:
        raise FileError(
            f"expected a string or a list of strings as the attribute {name!r}, received "
            f"{len(dims)} axes."
        )
    if kind.is_variable_str():
        # the claimed size above counts pointers, not the strings that they refer to
        _check_heap(name, element_count, heap(), limits)
        out = np.empty(dims, object)
        attribute.read(out, h5t.py_create(h5t.string_dtype()))
    else:
        out = np.empty(dims, f"S{kind.get_size()}")
        attribute.read(out, kind)
    texts = tuple(_text(value or b"", f"the attribute {name!r}") for value in out.reshape(-1))
    return texts if dims else texts[0]


def _check_heap(name: str, string_count: int, longest: int, limits: Limits) -> None:
    """Rejects a list of many strings that may all refer to one long string.

    A string of variable length is a pointer into a heap, so a list of n strings can request n times
    the memory of the longest string of the file.
    """
    if (
        string_count * longest > 16 * limits.attribute_bytes
        and longest * 2 > limits.attribute_bytes // 8
    ):
        raise FileError(
            f"the attribute {name!r} lists {string_count} strings of up to {longest} bytes. The "
            "file is crafted to exhaust memory; if you trust it, pass "
            "limits=fk.Limits(attribute_bytes=...)."
        )


def longest_heap(source: BinaryFile, size: int) -> int:
    """Returns the size of the largest heap of strings in a file; searches for heap signatures.

    Raises:
        FileError: for a heap whose entries do not fill the heap, on which the HDF5 library would
            loop forever.
    """
    longest = position = 0
    tail = b""
    while position < size:
        source.seek(position)
        block = tail + source.read(_STEP)
        block_start = position - len(tail)
        at = block.find(_HEAP)
        while at >= 0:
            longest = max(longest, _heap_size(source, block_start + at, size))
            at = block.find(_HEAP, at + 1)
        # keep the last bytes: a signature may cross the boundary of two blocks
        position += _STEP
        tail = block[-len(_HEAP) + 1 :]
    return longest


def _heap_size(source: BinaryFile, start: int, size: int) -> int:
    source.seek(start + 8)
    length = int.from_bytes(source.read(8), "little")
    if length < 16 or start + length > size:
        return min(length, size - start)  # not a heap, or one that the library rejects
    source.seek(start)
    heap = source.read(length)
    # walk the entries as the HDF5 library does: each must advance, and end within the heap
    at = 16
    while at + 16 <= len(heap):
        index = int.from_bytes(heap[at : at + 2], "little")
        entry_size = int.from_bytes(heap[at + 8 : at + 16], "little")
        if index:  # index 0 is free space, whose size includes its header
            entry_size = 16 + -(-entry_size // 8) * 8
        if entry_size < 16 or at + entry_size > len(heap):
            raise FileError(
                f"the entry at byte {start + at} of a heap of strings exceeds the heap. The file is "
                "damaged; save or download it again."
            )
        at += entry_size
    return length
