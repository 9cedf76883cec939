"""Arrays cut into batches: kept on the device where they fit, otherwise sent in chunks.

Every batch has the full size, so that one program serves all. The rows that fill up the last one
come from the beginning of the same order and count nowhere: not in the loss, not in a gradient,
not in a metric. In training a BatchNormalization sees them as it sees other rows of the epoch;
where rows are shuffled they are a random choice, so its statistics stay unbiased.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from fkeras.engine.values.arrays import computed_dtype
from fkeras.training.data import host_arrays

#: how many batches a chunk of host rows has at most, and how many bytes
CHUNK, CHUNK_BYTES = 32, 1 << 22
#: the device memory that is counted on where the device does not say how much it has
MEMORY = 1 << 32
#: how many bytes of NumPy arrays a call of a compiled step takes along at most
SENT_BYTES = 1 << 16


def device_bytes() -> int:
    """The bytes of memory of the device that computations run on."""
    try:
        stats = jax.local_devices()[0].memory_stats() or {}
    except jax.errors.JaxRuntimeError:  # a device that counts none
        stats = {}
    return stats.get("bytes_limit", MEMORY)


def capacity_of(row_bytes: int, size: int) -> int:
    """How many batches a chunk has room for; it follows from the bytes of a row alone."""
    most = max(CHUNK_BYTES // max(row_bytes * size, 1), 1)
    return min(CHUNK, 1 << (most.bit_length() - 1))


@dataclasses.dataclass(frozen=True)
class Feed:
    """Arrays in batches of `size` rows.

    Attributes:
        tree: arrays with the same number of rows, on the host.
        size: the number of rows of a batch.
        steps: how many batches an epoch has.
        resident: the same arrays as a compiled step gathers from them, on the device but for a single
            small batch; None where they do not fit.
        exact: whether the last batch has its own size, in a call of its own, because objectives
            and losses of layers cannot leave out rows that fill a batch up.
        sums: empty sums of the losses and metrics that are computed on these rows.

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

    def __len__(self) -> int:
        return host_arrays.length(self.tree)

    def rows(self, steps: int) -> int:
        """How many rows the first batches have."""
        return min(steps * self.size, len(self))

    @property
    def capacity(self) -> int:
        """How many batches one call may take at most."""
        if self.resident is not None:
            return 1 << 20
        row = sum(a[:1].nbytes for a in jax.tree.leaves(self.tree))
        return capacity_of(row, self.size)

    def counts(self, start: int, number: int) -> np.ndarray:
        """How many rows are real in each of `number` batches from batch `start` on."""
        left = len(self) - self.size * np.arange(start, start + number)
        return np.clip(left, 0, self.size).astype("int32")

    def order(self, run: Any, step: Any = None) -> Any:
        """The order of an epoch, filled up; by number where no run decides it.

        Args:
            run: a `TrainState`, whose key decides; None for no order.
            step: the step that the epoch begins with.
        """
        room = order_room(len(self), self.size)
        if run is None:
            order = np.arange(room, dtype="int32") % np.int32(len(self))
            return order if self.resident is None else jax.device_put(order)
        count, step = np.int32(len(self)), np.int32(step)
        order = host_arrays.compiled_order(count, room, run.key_data, step, run.impl)
        return order if self.resident is not None else np.asarray(order)

    def epoch(self, run: Any, step: Any = None, begin: int = 0) -> Epoch:
        """The batches of an epoch, from batch `begin` on."""
        return Epoch(self, self.order(run, step), begin)

    def go_on(self, state: Any, batches: int, skip: int = 0, rows: int = 0) -> None:
        """A saved training goes on: rows are found by their number, nothing is to be done."""

    def example(self, step: int = 0) -> Any:
        """The specs of a batch, whatever the step."""

        def spec(array: Any) -> jax.ShapeDtypeStruct:
            dtype = computed_dtype(array.dtype)
            return jax.ShapeDtypeStruct((self.size, *array.shape[1:]), dtype)

        return jax.tree.map(spec, self.tree)

    def batch(self, number: int) -> Any:
        """One batch on the host in the rows' own order; the last is filled from the beginning."""
        start, stop = number * self.size, (number + 1) * self.size
        rows = slice(start, stop) if stop <= len(self) else np.arange(start, stop) % len(self)
        return jax.tree.map(host_arrays.canonical, host_arrays.take(self.tree, rows))


class Epoch:
    """What is left of an epoch; `take` hands out the next batches.

    Args:
        feed: the feed.
        order: the order of the rows.
        done: how many batches are done.
    """

    def __init__(self, feed: Feed, order: Any, done: int):
        self.feed, self.order, self.done = feed, order, done
        self.failure: BaseException | None = None  # of a source; arrays have none

    def take(self, number: int) -> tuple[tuple, int] | None:
        """`(rows, taken)` for `step.batch_at`, or None at the end."""
        feed, start = self.feed, self.done
        number = min(number, feed.steps - start, feed.capacity)
        if number <= 0:
            return None
        whole = len(feed) // feed.size - start if feed.exact else number
        number = max(min(number, whole), 1)
        self.done += number
        if whole <= 0:
            return self._rest(start), 1
        if feed.resident is not None:
            places = np.arange(feed.size, dtype="int32")
            total = np.int32(len(feed))
            return (feed.resident, self.order, places, np.int32(start), total), number
        counts = np.zeros(feed.capacity, "int32")
        counts[:number] = feed.counts(start, number)
        return (self._chunk(start, number), counts), number

    def state(self) -> Any:
        """What must be kept to go on from here: nothing, the place in the order says it."""
        return None

    def _rest(self, start: int) -> tuple:
        """The last batch of an exact feed, without rows that fill the batch up."""
        rows = np.asarray(self.order)[start * self.feed.size : len(self.feed)]
        batch = jax.tree.map(host_arrays.canonical, host_arrays.take(self.feed.tree, rows))
        return jax.tree.map(lambda a: a[None], batch), np.asarray([len(rows)], "int32")

    def _chunk(self, start: int, number: int) -> Any:
        feed, room = self.feed, self.feed.capacity
        rows = self.order[start * feed.size : (start + number) * feed.size]

        def gather(array: np.ndarray) -> np.ndarray:
            dtype = computed_dtype(array.dtype)
            out = np.empty((room * feed.size, *array.shape[1:]), dtype)
            if array.dtype == dtype:
                np.take(array, rows, axis=0, out=out[: len(rows)], mode="clip")
            else:
                out[: len(rows)] = array[rows]
            return out.reshape(room, feed.size, *array.shape[1:])

        return jax.tree.map(gather, feed.tree)


def order_room(count: int, size: int) -> int:
    """The length of an order, so that the last batch has its full size."""
    return host_arrays.room_for(count) + size


def feed_of(tree: Any, size: int, steps: int | None = None) -> Feed:
    """The feed of some arrays in batches of `size` rows, or of all rows where there are fewer."""
    count = host_arrays.length(tree)
    size = min(size, count)
    total = -(-count // size)
    return Feed(tree, size, total if steps is None else min(steps, total))


def placed(feed: Feed, mesh: Any = None) -> Feed:
    """The feed with its arrays on every device, where they take a quarter of its memory at most."""
    size = sum(array.nbytes for array in jax.tree.leaves(feed.tree))
    if size > device_bytes() // 4:
        return feed
    layout = None if mesh is None else NamedSharding(mesh, PartitionSpec())
    resident = jax.tree.map(_with_room, feed.tree)
    # a single small batch goes along with the call of the step: `device_put` costs more than a step
    # of a small model
    if feed.steps > 1 or size > SENT_BYTES or mesh is not None:
        resident = jax.device_put(resident, layout)
    return dataclasses.replace(feed, resident=resident)


def _with_room(array: np.ndarray) -> np.ndarray:
    count = len(array)
    room = host_arrays.room_for(count)
    array = host_arrays.canonical(np.asarray(array))
    if room > count:
        filled = np.zeros((room, *array.shape[1:]), array.dtype)
        filled[:count] = array
        array = filled
    return array
