"""Writes HDF5 files in Keras's layout: groups, uncompressed arrays, attributes, no timestamps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fkeras.saving.containers.hdf5_types import load_h5py


@contextlib.contextmanager
def new_store(target: Any) -> Iterator[Writer]:
    """Opens a new HDF5 file for writing during the block.

    Args:
        target: a seekable binary file, open for reading and writing. Use
            `fkeras.files.atomic.replacing` for a file on disk.

    Returns:
        A context manager that gives a `Writer`.

    Raises:
        ImportError: if h5py is not installed.

    Example:
        >>> import io
        >>> target = io.BytesIO()
        >>> with new_store(target) as writer:
        ...     writer.write("dense/vars/0", np.zeros(3))
        ...     writer.attribute("dense", "name", "dense")
        >>> target.getvalue()[1:4]
        b'HDF'
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

    def write(self, path: str, array: Any) -> None:
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
            name: name of the attribute.
            value: a string, bytes, a number, a list of strings, or an array.
        """
        if path.strip("/") and path not in self._opened:
            self.group(path)
        self._opened[path or "/"].attrs[name] = value
