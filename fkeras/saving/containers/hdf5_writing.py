"""Writes HDF5 files as Keras does: groups, plain arrays and attributes, without times."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fkeras.saving.containers.hdf5_types import load_h5py


@contextlib.contextmanager
def new_store(target: Any) -> Iterator[Writer]:
    """A new HDF5 file, open for writing for as long as the block runs.

    Args:
        target: a binary file that can seek and be read. For one on the disk, that of
            `fkeras.files.atomic.replacing`.

    Returns:
        A context manager that gives a `Writer`.

    Raises:
        ImportError: without h5py.

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
    """Puts groups, arrays and attributes into a new HDF5 file; groups on the way are made."""

    def __init__(self, opened: Any):
        self._opened = opened

    def group(self, path: str) -> None:
        """Makes the group `path`, where it is not there yet."""
        self._opened.require_group(path or "/")

    def write(self, path: str, array: Any) -> None:
        """Stores an array at `path`; bfloat16 as its bytes with its name beside them, like Keras."""
        array = np.asarray(array)
        small = array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8"))
        stored = array.view(f"V{array.dtype.itemsize}") if small else array
        item = self._opened.create_dataset(path, data=stored, track_times=False)
        if small:
            item.attrs["dtype"] = array.dtype.name

    def attribute(self, path: str, name: str, value: Any) -> None:
        """Sets an attribute of the group or array at `path`, making the group.

        Args:
            path: the object; the root is the empty string.
            name: the attribute's name.
            value: a string, bytes, a number, a list of strings, or an array.
        """
        if path.strip("/") and path not in self._opened:
            self.group(path)
        self._opened[path or "/"].attrs[name] = value
