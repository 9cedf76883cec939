"""Checks the memory that a population needs, before it trains."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np


def capacity() -> int | None:
    """Returns the bytes of the default device, or of the machine for CPUs; None if unknown."""
    try:
        stats = jax.local_devices()[0].memory_stats() or {}
    except jax.errors.JaxRuntimeError:  # the backend has no memory statistics
        stats = {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    if jax.default_backend() != "cpu" or not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def size_of(tree: Any) -> int:
    """Returns the bytes of arrays, or of their specs."""
    return sum(int(np.prod(a.shape)) * a.dtype.itemsize for a in jax.tree.leaves(tree))


def check(where: str, members: int, required: int, limit: int | None, what: str) -> None:
    """Raises a `MemoryError` if the members on one device need more bytes than it has."""
    if limit is not None and required > limit:
        fitting = members * limit // required
        raise MemoryError(
            f"{where}: expected at most {limit / 2**30:.1f} GiB on a device, but the {what} of "
            f"{members} members need {required / 2**30:.1f} GiB. About {fitting} members fit: use "
            "fewer members, a smaller group_size, or a mesh of more devices."
        )
