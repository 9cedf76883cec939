"""The bytes of an array in pieces, whatever the devices that hold its shards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.tree.local_arrays import check_local
from fkeras.engine.values.annotations import Leaf

#: bytes of a piece
_PIECE = 1 << 24
Box = tuple[slice, ...]


def array_bytes(
    array: Leaf,
    name: str = "the array",
    where: str = "transforms.fingerprint",
    piece: int = _PIECE,
) -> Iterator[Any]:
    """Yields the bytes of an array in C order and little-endian, in pieces.

    Only one piece is on the host at a time, so neither the array nor a shard is gathered.

    Args:
        name: the name of the array, for messages.
        where: the function of the user's call, for messages.
        piece: the largest number of bytes of a piece.

    Raises:
        ValueError: for an array of which this process has a part only.

    Example:
        >>> b"".join(array_bytes(np.arange(3, dtype="int16"), piece=2))
        b'\\x00\\x00\\x01\\x00\\x02\\x00'
    """
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    if not isinstance(array, jax.Array):
        array = np.asarray(array)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    check_local(array, where, name)
    for box in boxes(array.shape, max(1, piece // array.dtype.itemsize)):
        # as bytes: buffers of small floats have no format that Python knows
        yield np.ascontiguousarray(_read(array, box)).reshape(-1).view(np.uint8).data


def boxes(shape: Sequence[int], most: int) -> Iterator[Box]:
    """Yields slices of at most `most` elements, which follow each other in C order.

    Example:
        >>> [b[0] for b in boxes((4, 2), 6)], len(list(boxes((3, 4), 2)))
        ([slice(0, 3, None), slice(3, 4, None)], 6)
    """
    if not shape:
        yield ()
        return
    row = math.prod(shape[1:])
    if row > most:
        for index in range(shape[0]):
            for inner in boxes(shape[1:], most):
                yield (slice(index, index + 1), *inner)
        return
    step = max(1, most // max(row, 1))
    for start in range(0, shape[0], step):
        rest = tuple(slice(0, size) for size in shape[1:])
        yield (slice(start, min(start + step, shape[0])), *rest)


def _read(array: Leaf, box: Box) -> np.ndarray:
    if not isinstance(array, jax.Array):
        return array[box]
    shards = array.addressable_shards
    if array.is_fully_replicated:
        return _read_shard(shards[0].data, box)
    result = np.empty([part.stop - part.start for part in box], array.dtype)
    for shard in shards:
        if shard.replica_id != 0:
            continue
        pairs = zip(shard.index, box, array.shape, strict=True)
        bounds = [(*index.indices(size)[:2], part) for index, part, size in pairs]
        common = [
            slice(max(start, part.start), min(stop, part.stop)) for start, stop, part in bounds
        ]
        if all(part.start < part.stop for part in common):
            inside = _shifted(common, [start for start, _, _ in bounds])
            place = _shifted(common, [part.start for part in box])
            result[place] = _read_shard(shard.data, inside)
    return result


def _shifted(box: Sequence[slice], origin: Sequence[int]) -> Box:
    pairs = zip(box, origin, strict=True)
    return tuple(slice(part.start - start, part.stop - start) for part, start in pairs)


def _read_shard(data: jax.Array, box: Box) -> np.ndarray:
    on_cpu = next(iter(data.devices())).platform == "cpu"
    if on_cpu or not box:  # NumPy sees the memory of the CPU without a copy
        return np.asarray(data)[box]
    starts, sizes = [part.start for part in box], [part.stop - part.start for part in box]
    # a dynamic slice: static starts would compile a program for each piece
    return np.asarray(jax.lax.dynamic_slice(data, starts, sizes))
