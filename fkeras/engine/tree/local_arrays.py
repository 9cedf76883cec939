"""Errors about arrays whose values are split over several processes."""

from __future__ import annotations

from typing import Any

import jax
from jax.core import Tracer

from fkeras.engine.values.annotations import Leaf


def check_local(array: Leaf, where: str, name: str) -> Any:
    """Returns an array that this process can read.

    Raises:
        ValueError: for an array of which this process has a part only.

    Example:
        >>> check_local(jax.numpy.ones(2), "get_weights", "dense/bias")
        Array([1., 1.], dtype=float32)
    """
    if isinstance(array, jax.Array) and not isinstance(array, Tracer):
        if not (array.is_fully_addressable or array.is_fully_replicated):
            raise ValueError(
                f"{where}: expected arrays of this process, received {name!r}, which is split over "
                "several processes. Gather the arrays first, with the same call in every process: "
                "jax.experimental.multihost_utils.process_allgather(model, tiled=True)."
            )
    return array
