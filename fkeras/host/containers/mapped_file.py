"""Files that are mapped into memory, whose pages are released once their numbers are copied."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable

import numpy as np


def map_file(file: io.FileIO) -> tuple[np.ndarray, Callable[[], None]]:
    """Returns the bytes of an open file as an array, and a function that releases their memory.

    The system reads pages when they are used. Released pages are read again at the next use. Without
    a release, the pages of a large file count as memory of the process until the system needs them.

    Args:
        file: an open file with at least one byte; may be closed afterwards.
    """
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def release() -> None:
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            mapped.madvise(mmap.MADV_DONTNEED)

    return np.frombuffer(mapped, np.uint8), release
