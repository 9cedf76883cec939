"""Weights of equal blocks side by side in the memory of a CPU, where decoding reads them as one array."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.host.memory import placed_in, room_for

_NUMBER = re.compile(r"\d+")


class Rooms:
    """Places weights whose paths differ in numbers alone side by side, in the order of the numbers.

    Args:
        shapes: shape, dtype and sharding of each weight by path. Weights with a sharding have no room.

    Example:
        >>> shapes = {f"block_{n}/kernel": jax.ShapeDtypeStruct((4, 4), "float32") for n in range(3)}
        >>> rooms = Rooms(shapes)
        >>> weights = [rooms.placed(path, np.eye(4, dtype="float32")) for path in shapes]
        >>> weights[1].unsafe_buffer_pointer() - weights[0].unsafe_buffer_pointer()
        64
    """

    def __init__(self, shapes: Mapping[str, Any]):
        groups: dict[Any, list[str]] = {}
        is_host = jax.default_backend() == "cpu"
        for path, spec in shapes.items():
            if is_host and getattr(spec, "sharding", None) is None:
                key = (_NUMBER.sub("#", path), spec.shape, spec.dtype)
                groups.setdefault(key, []).append(path)
        self._groups = {
            path: (sorted(paths, key=_numbers), shape, dtype)
            for (_, shape, dtype), paths in groups.items()
            for path in paths
            if len(paths) > 1
        }
        self._rooms: dict[str, np.ndarray | None] = {}

    def placed(self, path: str, array: np.ndarray) -> jax.Array | None:
        """Returns the array in its place beside the weights of other blocks; None for a weight without a room.

        Args:
            path: the path of the weight.
            array: the weight with its shape and dtype.
        """
        if path not in self._groups:
            return None
        paths, shape, dtype = self._groups[path]
        # memory is taken with the first weight of a group
        if paths[0] not in self._rooms:
            self._rooms[paths[0]] = room_for(len(paths), shape, dtype)
        room = self._rooms[paths[0]]
        if room is None:
            return None
        if not array.flags.c_contiguous:
            # JAX copies a transposed view much faster than NumPy
            array = np.asarray(jax.device_put(array))
        return placed_in(room[paths.index(path)], array)


def _numbers(path: str) -> list[int]:
    return [*map(int, _NUMBER.findall(path))]
