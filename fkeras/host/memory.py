"""Arrays side by side in the memory of a CPU, which a stack shares without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

# JAX copies arrays that begin elsewhere
_ALIGNMENT = 64


def room_for(count: int, shape: Sequence[int], dtype: Any) -> np.ndarray | None:
    """Returns memory for arrays side by side, (count, *shape); None if not all of them would begin at a multiple of 64 bytes.

    Example:
        >>> room = room_for(3, (16, 4), "float32")
        >>> room.shape, room_for(3, (5,), "float32")
        ((3, 16, 4), None)
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size == 0 or size % _ALIGNMENT:
        return None
    memory = np.empty(count * size + _ALIGNMENT, "uint8")
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + count * size].view(dtype).reshape(count, *shape)


def placed_in(room: np.ndarray, array: Any) -> jax.Array:
    """Copies an array to its place in a room and returns the place as an array of JAX.

    Args:
        room: a member of `room_for`.
        array: an array with the shape and dtype of the room.
    """
    room[...] = array
    room.flags.writeable = False
    return jax.device_put(room)


def lie_side_by_side(first: jax.Array, second: jax.Array) -> bool:
    """Returns whether the second of two equal arrays on a CPU begins where the first ends.

    Example:
        >>> room = room_for(2, (16,), "float32")
        >>> first, second = (placed_in(part, np.ones(16, "float32")) for part in room)
        >>> lie_side_by_side(first, second), lie_side_by_side(second, first)
        (True, False)
    """
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return False
    return second.unsafe_buffer_pointer() - first.unsafe_buffer_pointer() == first.nbytes


def as_one(arrays: Sequence[jax.Array]) -> jax.Array | None:
    """Returns arrays that lie side by side as a stack that shares their memory; None for other arrays.

    The memory belongs to the arrays: the caller keeps them until computations with the result have ended.

    Example:
        >>> room = room_for(2, (16,), "float32")
        >>> arrays = [placed_in(part, np.full(16, n, "float32")) for n, part in enumerate(room)]
        >>> as_one(arrays)[:, 0]
        Array([0., 1.], dtype=float32)
    """
    # addresses first: most arrays do not lie side by side
    start, size = arrays[0].unsafe_buffer_pointer(), arrays[0].nbytes
    places = enumerate(array.unsafe_buffer_pointer() for array in arrays)
    if start % _ALIGNMENT or any(place != start + n * size for n, place in places):
        return None
    shape, dtype = arrays[0].shape, arrays[0].dtype
    if any(a.shape != shape or a.dtype != dtype for a in arrays):
        return None
    first = np.asarray(arrays[0])
    whole_shape, strides = (len(arrays), *shape), (size, *first.strides)
    view = np.lib.stride_tricks.as_strided(first, whole_shape, strides, writeable=False)
    whole = jax.device_put(view)
    return whole if whole.unsafe_buffer_pointer() == start else None


def stacked(arrays: Sequence[jax.Array]) -> jax.Array:
    """Returns a stack of arrays on a CPU, which shares their memory if they lie side by side and is a copy otherwise."""
    whole = as_one(arrays)
    return jax.device_put(np.stack([*map(np.asarray, arrays)])) if whole is None else whole


def apart(stack: jax.Array) -> list[jax.Array]:
    """Returns the members of a stack on a CPU, which share its memory if all of them begin at a multiple of 64 bytes.

    Example:
        >>> one, two = apart(jax.numpy.arange(32).reshape(2, 16))
        >>> lie_side_by_side(one, two), int(two[0])
        (True, 16)
    """
    return jax.device_put([*np.asarray(stack)])
