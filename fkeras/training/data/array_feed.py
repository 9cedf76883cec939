"""Splits arrays into batches: resident on the device if they fit, otherwise sent in chunks.

Every batch has the full size, so that one compiled program serves all batches: copies of the last row
fill up the last batch. If these rows would change a result, the last batch is a call of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fkeras.engine.values.arrays import computed_dtype
from fkeras.host.processes.arrays import put
from fkeras.training.data import host_arrays
from fkeras.training.data.features import Cached
from fkeras.training.records.state import TrainState

#: largest number of batches, and of bytes, of a chunk of host rows
CHUNK, CHUNK_BYTES = 32, 1 << 22
#: assumed device memory in bytes, if the device does not report its memory (CPUs)
MEMORY = 1 << 32
#: largest size in bytes of NumPy arrays that a call of a compiled step transfers as arguments
SENT_BYTES = 1 << 16
# largest number of rows that the host shuffles, in about 20 ms; the program takes 600 ms to compile
_HOST_ROWS = 1 << 17


def device_bytes() -> int:
    """Returns the memory of the default device in bytes."""
    try:
        stats = jax.local_devices()[0].memory_stats() or {}
    except jax.errors.JaxRuntimeError:  # the backend has no memory statistics
        stats = {}
    return stats.get("bytes_limit", MEMORY)


def capacity_of(row_bytes: int, size: int) -> int:
    """Returns the number of batches in a chunk, from the bytes of a row and the batch size."""
    # Rounded down to a power of two: the shape of a chunk is a part of the compiled program, and
    # rows of similar size then share one program.
    limit = max(CHUNK_BYTES // max(row_bytes * size, 1), 1)
    return min(CHUNK, 1 << (limit.bit_length() - 1))


@dataclasses.dataclass(frozen=True)
class Feed:
    """Feed of arrays in batches of `size` rows.

    Attributes:
        tree: arrays with the same number of rows, on the host.
        size: number of rows of a batch.
        steps: number of batches of an epoch.
        resident: the padded arrays from which a compiled step gathers rows, on the device (on the
            host for a single small batch); None if the arrays do not fit.
        exact: whether the last batch has only the remaining rows, in a call of its own.
        sums: empty sums of the losses and metrics of these rows.
        send: moves stacked batches to the devices of several processes; None for one process.
        cached: the origin of features in the place of inputs; None for a feed of inputs.

    Example:
        >>> feed = feed_of(np.arange(5), 2)
        >>> feed.steps, feed.rows(3)
        (3, 5)
    """

    tree: Any
    size: int
    steps: int
    resident: Any = None
    exact: bool = False
    sums: Any = None
    send: Callable[[Any], Any] | None = None
    cached: Cached | None = None

    def __len__(self) -> int:
        return host_arrays.length(self.tree)

    def rows(self, steps: int) -> int:
        """Returns the number of real rows in the first `steps` batches."""
        return min(steps * self.size, len(self))

    @property
    def capacity(self) -> int:
        """Largest number of batches of one call."""
        if self.resident is not None:
            return 1 << 20
        row_bytes = sum(a[:1].nbytes for a in jax.tree.leaves(self.tree))
        return capacity_of(row_bytes, self.size)

    def counts(self, start: int, number: int) -> np.ndarray:
        """Returns the number of real rows in each of `number` batches, from batch `start` on."""
        remaining = len(self) - self.size * np.arange(start, start + number)
        return np.clip(remaining, 0, self.size).astype("int32")

    def order(self, run: TrainState | None, step: int = 0) -> Any:
        """Returns the order of the rows of an epoch, padded.

        Args:
            run: a `TrainState` whose key shuffles the rows, or whose keys, for an order of each
                member of a population; None for the original order.
        """
        padded_count = order_room(len(self), self.size)
        if run is None:
            order = np.minimum(np.arange(padded_count, dtype="int32"), np.int32(len(self) - 1))
            return order if self.resident is None else jax.device_put(order)
        config: Any = jax.config  # JAX declares its flags at run time
        by_position = run.impl == "threefry2x32" and config.jax_threefry_partitionable
        if by_position and len(self) <= _HOST_ROWS:
            order = host_arrays.host_order(len(self), padded_count, run.key_data, int(step))
        else:
            order = host_arrays.compiled_order(
                np.int32(len(self)), padded_count, run.key_data, np.int32(step), run.impl
            )
        return np.asarray(order) if self.resident is None else jax.device_put(order)

    def epoch(self, run: TrainState | None, step: int = 0, begin: int = 0) -> Epoch:
        """Returns the batches of an epoch, from batch `begin` on."""
        return Epoch(self, self.order(run, step), begin)

    def go_on(
        self, state: object, batches: int, skip: int = 0, rows: int = 0, step: int = 0
    ) -> None:
        """Does nothing: a resumed epoch finds its rows by their index in the order."""

    def example(self, step: int = 0) -> Any:
        """Returns the specs of a batch, which are the same for all steps."""

        def spec(array: np.ndarray) -> jax.ShapeDtypeStruct:
            dtype = computed_dtype(array.dtype)
            return jax.ShapeDtypeStruct((self.size, *array.shape[1:]), dtype)

        return jax.tree.map(spec, self.tree)

    def batch(self, number: int) -> Any:
        """Returns a batch on the host in the original order; the last batch as in an epoch."""
        start, stop = number * self.size, (number + 1) * self.size
        rows = slice(start, stop)
        if stop > len(self) and not self.exact:
            rows = np.minimum(np.arange(start, stop), len(self) - 1)
        return jax.tree.map(host_arrays.canonical, host_arrays.take(self.tree, rows))

    def batches(self) -> Iterator[tuple[Any, int]]:
        """Yields `(batch, count)`: each batch from `batch`, and its row count without filling."""
        for number in range(self.steps):
            yield self.batch(number), int(self.counts(number, 1)[0])


class Epoch:
    """Remaining batches of an epoch; `take` returns the next batches."""

    def __init__(self, feed: Feed, order: jax.Array | np.ndarray, done: int):
        self.feed, self.order, self.done = feed, order, done
        self.is_at_state = True  # as of `BatchEpoch`; an order of rows has no state

    def take(self, number: int) -> tuple[tuple, int] | None:
        """Returns `(rows, taken)` for `step.batch_at`, or None at the end of the epoch."""
        feed, start = self.feed, self.done
        number = min(number, feed.steps - start, feed.capacity)
        if number <= 0:
            return None
        full_batches = len(feed) // feed.size - start if feed.exact else number
        number = max(min(number, full_batches), 1)
        self.done += number
        if full_batches <= 0:
            return self._rest(start), 1
        if feed.resident is not None:
            # `batch_at` reads the batch size from the shape of `offsets`.
            offsets = np.arange(feed.size, dtype="int32")
            total = np.int32(len(feed))
            return (feed.resident, self.order, offsets, np.int32(start), total), number
        # Always the full capacity: a chunk of fewer batches would compile another program.
        counts = np.zeros(feed.capacity, "int32")
        counts[:number] = feed.counts(start, number)
        return (self._sent(self._chunk(start, number)), counts), number

    def inputs_of(self, number: int) -> Any:
        """Returns the real rows of a batch of features, as they were before."""
        feed = self.feed
        assert feed.cached is not None
        stop = min((number + 1) * feed.size, len(feed))
        rows = np.asarray(self.order)[number * feed.size : stop]
        return jax.tree.map(host_arrays.canonical, host_arrays.take(feed.cached.rows, rows))

    def state(self) -> Any:
        """Returns None: the index in the order is all that a resumed training needs."""
        return None

    def _rest(self, start: int) -> tuple:
        """Returns the last batch of an exact feed, with the remaining rows only."""
        rows = np.asarray(self.order)[start * self.feed.size : len(self.feed)]
        batch = jax.tree.map(host_arrays.canonical, host_arrays.take(self.feed.tree, rows))
        batches = jax.tree.map(lambda a: a[None], batch)
        return self._sent(batches), np.asarray([len(rows)], "int32")

    def _sent(self, batches: object) -> Any:
        return batches if self.feed.send is None else self.feed.send(batches)

    def _chunk(self, start: int, number: int) -> Any:
        feed, capacity = self.feed, self.feed.capacity
        rows = self.order[start * feed.size : (start + number) * feed.size]

        def gather(array: np.ndarray) -> np.ndarray:
            dtype = computed_dtype(array.dtype)
            # The rows after the last batch stay uninitialized: no step of the call reads them.
            out = np.empty((capacity * feed.size, *array.shape[1:]), dtype)
            if array.dtype == dtype:
                # `mode="clip"` writes into `out` without the buffer that the default mode needs.
                np.take(array, rows, axis=0, out=out[: len(rows)], mode="clip")
            else:
                out[: len(rows)] = array[rows]
            return out.reshape(capacity, feed.size, *array.shape[1:])

        return jax.tree.map(gather, feed.tree)


def order_room(count: int, size: int) -> int:
    """Returns the length of an order: the padded rows and one batch, to fill up the last batch."""
    return host_arrays.room_for(count) + size


def feed_of(tree: object, size: int, steps: int | None = None) -> Feed:
    """Returns the feed of arrays in batches of `size` rows, or of all rows if these are fewer."""
    count = host_arrays.length(tree)
    size = min(size, count)
    total = -(-count // size)
    return Feed(tree, size, total if steps is None else min(steps, total))


def placed(feed: Feed, mesh: Mesh | None = None) -> Feed:
    """Returns the feed with its arrays on every device, if they take at most a quarter of memory."""
    if not is_small(feed):
        return feed
    resident = jax.tree.map(_with_room, feed.tree)
    # The call of the step transfers a single small batch: a separate `device_put` costs more than
    # a step of a small model.
    if mesh is not None:
        layout = NamedSharding(mesh, PartitionSpec())
        resident = jax.tree.map(lambda array: put(array, layout), resident)
    elif feed.steps > 1 or _bytes(feed) > SENT_BYTES:
        resident = jax.device_put(resident)
    return dataclasses.replace(feed, resident=resident)


def is_small(feed: Feed) -> bool:
    """Returns whether the arrays take at most a quarter of the memory of a device."""
    return _bytes(feed) <= device_bytes() // 4


def _bytes(feed: Feed) -> int:
    return sum(array.nbytes for array in jax.tree.leaves(feed.tree))


def _with_room(array: np.ndarray) -> np.ndarray:
    # The padding is never gathered: an order holds indices below `count` only.
    count = len(array)
    padded_count = host_arrays.room_for(count)
    array = host_arrays.canonical(np.asarray(array))
    if padded_count > count:
        padded = np.zeros((padded_count, *array.shape[1:]), array.dtype)
        padded[:count] = array
        array = padded
    return array
