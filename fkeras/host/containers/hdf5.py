"""Reads untrusted HDF5 files, checked before memory is allocated, and writes files.

An HDF5 file can redirect a reader to other files (external links and storage, virtual arrays), into
cycles (hard links to an outer group), and to huge allocations (an array of 10^12 numbers, none of
them stored). Models need none of these. `open_store` walks the file once, follows only hard links,
and collects the names of groups and arrays. A `Store` reads only objects with these names.

A `Writer` writes Keras's layout: groups, uncompressed arrays and attributes, without timestamps.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike

from fkeras.engine.values.argument_types import FilePath
from fkeras.host.containers import file_type
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.hdf5_arrays import read_array
from fkeras.host.containers.hdf5_attributes import longest_heap, read_attributes
from fkeras.host.containers.hdf5_types import array_dtype, load_h5py
from fkeras.host.containers.limits import Limits, check_limit

# types of links and of objects, as the HDF5 library numbers them
_HARD, _SOFT, _EXTERNAL = 0, 1, 64
_GROUP, _ARRAY = 0, 1


@contextlib.contextmanager
def open_store(
    source: FilePath | bytes | file_type.BinaryFile,
    file: str | None = None,
    member: str | None = None,
    limits: Limits | None = None,
) -> Iterator[Store]:
    """Opens an HDF5 file for reading during the block.

    Args:
        source: a path, the bytes of the file, or a seekable binary file.

    Raises:
        FileError: for a file that is not HDF5, or one with links, cycles or other features that no
            model needs.
        ImportError: if h5py is not installed.

    Example:
        >>> import io
        >>> target = io.BytesIO()
        >>> with new_store(target) as writer:
        ...     writer.write("layers/dense/vars/0", np.ones((2, 3), "float32"))
        >>> with open_store(target) as store:
        ...     print(store.shape("layers/dense/vars/0"), store.groups("layers"))
        (2, 3) ('dense',)
    """
    h5py = load_h5py("Reading an HDF5 file")
    with contextlib.ExitStack() as stack:
        if isinstance(source, bytes | bytearray | memoryview):
            source = io.BytesIO(source)
        elif isinstance(source, str | os.PathLike):
            file = file or os.fspath(source)
            source = stack.enter_context(file_type.open_regular(source))
        with reading(file, member):
            # the HDF5 library also finds a signature at later offsets; Keras writes it at 0
            size = source.seek(0, os.SEEK_END)
            source.seek(0)
            start = source.read(file_type.LENGTH)
            if not start.startswith(file_type.HDF5):
                raise FileError(
                    f"expected HDF5, received {file_type.describe(start, size)}.",
                    file=file,
                    member=member,
                )
            source.seek(0)
            opened = h5py.File(source, "r")
        stack.callback(_close, opened)
        with reading(file, member):
            store = Store(opened, source, size, file, member, limits or Limits())
        yield store


def _close(opened: Any) -> None:
    # closing a damaged file can fail too; the file is read-only, so nothing is lost
    with contextlib.suppress(Exception):
        opened.close()


class Store:
    """Groups, arrays and attributes of an HDF5 file whose tree has been checked.

    Paths start at the root and use slashes; the root is the empty string.
    """

    def __init__(
        self,
        opened: Any,
        source: file_type.BinaryFile,
        size: int,
        file: str | None,
        member: str | None,
        limits: Limits,
    ):
        self.file = file
        self.member = member
        self._h5py = load_h5py("Reading an HDF5 file")
        self._root = opened.id
        self._source = source
        self._size = size
        self._limits = limits
        self._groups: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._arrays: set[str] = set()
        # offset -> (length, path) of the data that was read: no two arrays may share bytes
        self._read_ranges: dict[int, tuple[int, str]] = {}
        self._total = 0
        self._heap: int | None = None
        self._walk()

    def place(self, path: str) -> str:
        """Returns the part of the file at `path`, for messages."""
        return f"{self.member}:/{path}" if self.member else f"/{path}"

    def _error(self, path: str, problem: str) -> FileError:
        return FileError(problem, file=self.file, member=self.place(path))

    def _check_limit(self, name: str, count: int, noun: str, path: str) -> None:
        check_limit(self._limits, name, count, noun, file=self.file, member=self.place(path))

    def _walk(self) -> None:
        root = self._h5py.h5o.get_info(self._root)
        # hard links to one object have one address, so an address seen twice is a cycle or an
        # alias; a walk into a cycle would not end
        seen = {root.addr: ""}
        stack = [("", 0)]
        while stack:
            path, depth = stack.pop()
            group = self._h5py.h5g.open(self._root, path.encode() or b"/")
            groups, arrays = [], []
            # `_links` has rejected all other links: `get_info` below would follow them
            for name, address in self._links(group, path):
                child_path = f"{path}/{name}" if path else name
                if address in seen:
                    raise self._error(
                        child_path,
                        f"expected a tree of groups, received a second path to the object "
                        f"/{seen[address]}. Save the model again.",
                    )
                seen[address] = child_path
                self._check_limit("objects", len(seen), "groups and arrays", child_path)
                kind = self._h5py.h5o.get_info(group, name.encode()).type
                if kind == _GROUP:
                    self._check_limit("depth", depth + 1, "levels of groups", child_path)
                    groups.append(name)
                    stack.append((child_path, depth + 1))
                elif kind == _ARRAY:
                    arrays.append(name)
                    self._arrays.add(child_path)
                else:
                    raise self._error(
                        child_path,
                        "expected a group or an array, received a stored data type. Save the "
                        "model again.",
                    )
            self._groups[path] = (tuple(groups), tuple(arrays))

    def _links(self, group: Any, path: str) -> list[tuple[str, int]]:
        links: list[tuple[bytes, int, int]] = []

        def visit(raw: bytes, info: Any) -> bool | None:
            links.append((raw, info.type, info.u))
            return True if len(links) > self._limits.objects else None  # True ends the iteration

        group.links.iterate(visit, info=True)
        self._check_limit("objects", len(links), "objects in a group", path)
        return [(self._name(raw, path, kind), address) for raw, kind, address in links]

    def _name(self, raw: bytes, path: str, kind: int) -> str:
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._error(
                path, f"expected a name in UTF-8, received {raw[:80]!r}. The file is damaged."
            ) from None
        if name in ("", ".", "..") or "/" in name or not name.isprintable():
            raise self._error(
                path, f"expected a plain name, received {name[:80]!r}. The file is damaged."
            )
        if kind != _HARD:
            link_kind = {_SOFT: "a soft link", _EXTERNAL: "a link to another file"}.get(
                kind, "a link"
            )
            raise self._error(
                f"{path}/{name}" if path else name,
                f"expected a stored group or array, received {link_kind}, which can point elsewhere. "
                "Save the model again without links.",
            )
        return name

    @staticmethod
    def _clean(path: str) -> str:
        return path.strip("/")

    def has(self, path: str) -> bool:
        """Returns whether `path` is a group or an array."""
        path = self._clean(path)
        return path in self._groups or path in self._arrays

    def groups(self, path: str = "") -> tuple[str, ...]:
        """Returns the names of the groups in `path`; an empty tuple for a missing group."""
        return self._groups.get(self._clean(path), ((), ()))[0]

    def datasets(self, path: str = "") -> tuple[str, ...]:
        """Returns the names of the arrays in `path`; an empty tuple for a missing group."""
        return self._groups.get(self._clean(path), ((), ()))[1]

    def attributes(self, path: str = "") -> dict[str, Any]:
        """Returns the attributes of a group or an array: strings, numbers, tuples of strings and
        numeric arrays.
        """
        path = self._clean(path)
        if not self.has(path):
            raise self._absent(path)
        with reading(self.file, self.place(path)):
            item = self._h5py.h5o.open(self._root, path.encode() or b"/")
            return read_attributes(item, self._longest_heap, self._size, self._limits)

    def _longest_heap(self) -> int:
        # the search reads the whole file: only when an attribute needs the result, and once
        if self._heap is None:
            self._heap = longest_heap(self._source, self._size)
        return self._heap

    def shape(self, path: str) -> tuple[int, ...]:
        """Returns the shape that the array at `path` claims."""
        item = self._open(path)
        with reading(self.file, self.place(self._clean(path))):
            return tuple(int(n) for n in item.shape)

    def dtype(self, path: str) -> np.dtype:
        """Returns the dtype of the array at `path`, in native byte order."""
        item = self._open(path)
        with reading(self.file, self.place(self._clean(path))):
            return self._dtype(item, self._clean(path))

    def _dtype(self, item: Any, path: str) -> np.dtype:
        # HDF5 has no bfloat16: Keras stores the bytes, and the name of the dtype as an attribute
        named = None
        if item.get_type().get_class() == self._h5py.h5t.OPAQUE:
            named = self.attributes(path).get("dtype")
        return array_dtype(item.get_type(), named)

    def read(self, path: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Reads the array at `path` into newly allocated memory.

        Raises:
            FileError: for a missing array, an unexpected shape, a type that weights do not have, or
                an array whose data is not completely stored in the file.
        """
        path = self._clean(path)
        item = self._open(path)
        with reading(self.file, self.place(path)):
            dims = tuple(int(n) for n in item.shape)
            if shape is not None and dims != tuple(shape):
                raise FileError(
                    f"expected an array of shape {tuple(shape)}, received {dims}. The weights "
                    "belong to another model, or the file is damaged."
                )
            dtype = self._dtype(item, path)
            claimed = math.prod(dims) * dtype.itemsize
            self._check_limit("array_bytes", claimed, "bytes of an array", path)
            return read_array(item, dims, dtype, self._size, self._limits, self._take(path))

    def _take(self, path: str) -> Any:
        """Returns a function that records which bytes of the file the array at `path` occupies."""

        def take(start: int, length: int) -> None:
            if start < 0 or start + length > self._size:
                raise FileError(
                    f"the array needs bytes {start} to {start + length} of a file of {self._size} "
                    "bytes. The file is truncated or damaged."
                )
            # reading an array again is allowed: its range is counted once
            if start not in self._read_ranges:
                self._total += length
            owner = self._read_ranges.setdefault(start, (length, path))
            # ranges that overlap at different offsets add up to more than the file when many arrays
            # share one block, which is the case that would fill the memory
            if owner != (length, path) or self._total > self._size:
                raise FileError(
                    f"the array shares bytes with the array /{owner[1]}. The file is damaged, or "
                    "crafted to exhaust memory."
                )

        return take

    def _open(self, path: str) -> Any:
        path = self._clean(path)
        if path not in self._arrays:
            raise self._absent(path)
        with reading(self.file, self.place(path)):
            return self._h5py.h5d.open(self._root, path.encode())

    def _absent(self, path: str) -> FileError:
        parent = path.rpartition("/")[0]
        siblings = ", ".join((self.groups(parent) + self.datasets(parent))[:12]) or "nothing"
        problem = "is a group" if path in self._groups else "does not exist"
        return self._error(
            path, f"expected an array, but the path {problem}; /{parent} contains {siblings}."
        )


@contextlib.contextmanager
def new_store(target: BinaryIO) -> Iterator[Writer]:
    """Opens a new HDF5 file for writing during the block.

    Args:
        target: a seekable binary file, open for reading and writing. Use
            `fkeras.atomic_files.atomic.replacing` for a file on disk.
    """
    h5py = load_h5py("Writing an HDF5 file")
    with h5py.File(target, "w", track_order=False) as opened:
        yield Writer(opened)


class Writer:
    """Writes groups, arrays and attributes into an HDF5 file, and creates missing parent groups."""

    def __init__(self, opened: Any):
        self._opened = opened

    def group(self, path: str) -> None:
        """Creates the group `path` if the group is missing."""
        self._opened.require_group(path or "/")

    def write(self, path: str, array: ArrayLike) -> None:
        """Writes an array; stores bfloat16 as raw bytes with the dtype's name as an attribute."""
        array = np.asarray(array)
        # HDF5 has no types for these floats; this is Keras's form of storing them
        is_small_float = array.dtype.kind == "V" or array.dtype.name.startswith(
            ("bfloat", "float8")
        )
        stored = array.view(f"V{array.dtype.itemsize}") if is_small_float else array
        # without times, so that equal models give equal files
        item = self._opened.create_dataset(path, data=stored, track_times=False)
        if is_small_float:
            item.attrs["dtype"] = array.dtype.name

    def attribute(self, path: str, name: str, value: Any) -> None:
        """Sets an attribute of a group or an array; creates a missing group.

        Args:
            path: path of the group or array; the root is the empty string.
            value: a string, bytes, a number, a list of strings, or an array.
        """
        if path.strip("/") and path not in self._opened:
            self.group(path)
        self._opened[path or "/"].attrs[name] = value
