"""Feeds of several processes: the batches of all processes are one batch.

Each process reads its own source. The processes agree on the batches, and on the rows of each, before a
device call. A process whose source has ended contributes no rows until all sources have ended; then the
pass ends in all processes. Missing rows are filled up where this changes no result; otherwise the batch
is a call of its own with the rows that exist.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from fkeras.engine.values.arrays import computed_dtype
from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.facts import digest
from fkeras.host.processes.service import ProcessError
from fkeras.training.data import array_feed, host_arrays
from fkeras.training.data.stream_epoch import END, BatchEpoch, Chunk
from fkeras.training.data.stream_feed import Batches, specs
from fkeras.training.records.state import TrainState


@dataclasses.dataclass
class JointBatches(Batches):
    """Feed of the batches of several processes; `Batches` documents the other attributes.

    Attributes:
        group: the processes.
        share: `(index, count)`: the share of this process in the rows of a batch.
        join: makes stacked batches of all processes from those of this process.
        compared: whether the forms of the first batches are compared.
        received: whether a process has received a batch.
    """

    group: Alone = ALONE
    share: tuple[int, int] = (0, 1)
    join: Callable[[Any], Any] = jax.device_put
    compared: bool = False
    received: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        shard = getattr(self.source, "shard", None)
        if isinstance(shard, tuple) and shard != self.share:
            raise ValueError(
                f"Trainer.{self.what}: expected a dataset with the rows of this process, "
                f"shard={self.share}, received a dataset with shard={shard}. Make the dataset "
                "with shard=trainer.share."
            )

    @property
    def shares(self) -> int:
        """Number of processes with different rows."""
        return self.share[1]

    def rows(self, steps: int) -> int:
        return super().rows(steps) * self.shares

    def is_alone(self, batch: object) -> bool:
        """Returns False: the rows of all processes decide, in `JointEpoch`."""
        return False

    def fills_joint(self, count: int) -> bool:
        """Returns whether a batch of `count` rows of all processes may be filled up."""
        size = self.size * self.shares
        return count == size or self.fills(specs(self.first, size), count)

    def example(self, step: int = 0) -> Any:
        def all_rows(spec: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((spec.shape[0] * self.shares, *spec.shape[1:]), spec.dtype)

        return jax.tree.map(all_rows, super().example(step))

    def epoch(self, run: TrainState | None, step: int = 0, begin: int = 0) -> JointEpoch:
        epoch = super().epoch(run, step, begin)
        epoch.holds = True
        return JointEpoch(self, epoch)

    def go_on(
        self, state: object, batches: int, skip: int = 0, rows: int = 0, step: int = 0
    ) -> None:
        self.received = state is not None or batches > 0
        # the rows of a full batch are those of all processes, whose number may have changed
        super().go_on(state, batches, skip, rows // self.shares, step)

    def skip(self, batches: int, step: int) -> None:
        remaining = batches
        while remaining > 0:
            number = 0
            while number < remaining and next(self._current(), END) is not END:
                number += 1
            # A process whose source ends earlier waits for the longest source of the pass.
            longest = max(self.group.agree(number, "the skipped batches"))
            remaining -= longest
            if remaining > 0:
                if longest == 0 or self.once:
                    return
                self.begin_pass(step + batches - remaining)

    def _current(self) -> Any:
        assert self.running is not None
        return self.running

    def read_form(self, step: int) -> None:
        """Reads a batch of another pass, whose form the rows that count nothing need."""
        # a training that resumes in the last batches of a pass may get no batch in this process
        batch = END if self.once else next(self._pass_at(step), END)
        if batch is END:
            raise self.ended()
        self.read(batch, 0)

    def compare_first(self) -> None:
        """Raises a `ProcessError` if the first batches of the processes have different forms."""
        if self.compared:
            return
        specs = [
            f"{np.dtype(computed_dtype(a.dtype)).name}{[self.size, *a.shape[1:]]}"
            for a in jax.tree.leaves(self.first)
        ]
        facts = {"structure": str(jax.tree.structure(self.first)), "arrays": specs}
        self.group.require_equal("form of the first batch", facts)
        self.compared = True

    def compare_rows(self, shares: Sequence[int], digests: Sequence[int]) -> None:
        """Compares the rows of the next device call between the processes.

        Args:
            digests: checksum of the rows of each process; 0 for no rows.

        Raises:
            ProcessError: if processes with the same share have different rows.
        """
        first: dict[int, int] = {}
        for position, share in enumerate(shares):
            other = first.setdefault(share, position)
            if digests[other] != digests[position]:
                one, process = (self.group.members[i] for i in (other, position))
                raise ProcessError(
                    f"Trainer.{self.what}: expected the same rows from the processes {one} and "
                    f"{process}, which have the same share of each batch and split only the weights; "
                    "received different rows. Shuffle with a seed that is the same in all processes.",
                    process,
                )
        owners: dict[int, int] = {}
        for position in () if self.received else first.values():
            other = owners.setdefault(digests[position], position)
            if digests[position] and other != position and self.group.leads:
                one, process = (self.group.members[i] for i in (other, position))
                warnings.warn(
                    f"Trainer.{self.what}: the processes {one} and {process} begin with the same rows, "
                    "so examples may count several times. A source yields the rows of one share "
                    "only, trainer.share.",
                    stacklevel=2,
                )
                return


class JointEpoch:
    """Remaining batches of an epoch of several processes; `take` returns the next batches."""

    def __init__(self, feed: JointBatches, own: BatchEpoch):
        self.feed, self.own, self.done = feed, own, own.done
        #: exception of the source of a process, after which the loader's state is not known
        self.failure: BaseException | None = None
        #: calls of batches that the processes have read: `(rows, batches)`
        self.waiting: list[tuple[tuple, int]] = []

    @property
    def is_at_state(self) -> bool:
        """Whether the loader's state is that after the taken batches."""
        return self.failure is None and not self.waiting

    def state(self) -> Any:
        """Returns the state of this process's loader."""
        return self.own.state()

    def take(self, number: int) -> tuple[tuple, int] | None:
        """Returns `(rows, taken)` for `step.batch_at`, or None at the end of the epoch."""
        if not self.waiting:
            self._read(number)
        if not self.waiting:
            return None
        rows, taken = self.waiting.pop(0)
        self.done += taken
        return rows, taken

    def _read(self, number: int) -> None:
        """Reads up to `number` batches in all processes."""
        feed = self.feed
        if feed.steps is not None:
            number = min(number, feed.steps - self.done)
        if number <= 0:
            return
        self.own.done = self.done
        chunk = self.own.take(number)
        counts, limit = self._agree(chunk)
        if not any(counts.values()) and feed.continues and feed.received:
            # All sources have ended: all processes begin the next pass together.
            self.own.begin_pass()
            chunk = self.own.take(number)
            counts, limit = self._agree(chunk)
        taken = min(max(map(len, counts.values())), limit)
        if taken == 0:
            self._ended()
            return
        if feed.first is None:
            feed.read_form(self.own.step + self.done)
        feed.compare_first()
        feed.received = True
        rows = [sum(r[index] for r in counts.values() if index < len(r)) for index in range(taken)]
        self.waiting = list(self._calls(chunk, rows))

    def _agree(self, chunk: Chunk | None) -> tuple[dict[int, list[int]], int]:
        """Returns `(counts, limit)`: rows of each batch by share, and the number of usable batches."""
        feed, group = self.feed, self.feed.group
        rows = [] if chunk is None else chunk[0][1][: chunk[1]].tolist()
        # all rows of processes with one share must be equal; the others are compared once
        compares = not feed.received or feed.shares < group.count
        value = digest(_batches_of(chunk)) if compares else 0
        own = [rows, self.own.failure is not None, feed.share[0], value]
        counts, failed, shares, digests = zip(
            *group.agree(own, "the batches of a call"), strict=True
        )
        limit = max(map(len, counts))
        if any(failed):
            # The process raises in the next call. The others have read batches that nobody trains on.
            self.failure = self.own.failure or ProcessError("the source of another process raised")
            limit = min(len(rows) for rows, fails in zip(counts, failed, strict=True) if fails)
        elif compares:
            feed.compare_rows(shares, digests)
        return dict(zip(shares, counts, strict=True)), limit

    def _ended(self) -> None:
        feed = self.feed
        if self.done == 0:
            raise feed.ended()
        if feed.steps is not None:
            raise ValueError(
                f"Trainer.{feed.what}: expected {feed.steps} batches, but the sources of all "
                f"processes ended after {self.done}. Reduce {feed.steps_name}, or pass a longer "
                "source."
            )

    def _calls(self, chunk: Chunk | None, rows: list[int]) -> Iterator[tuple[tuple, int]]:
        """Yields `(rows, batches)` of the device calls for some batches."""
        feed = self.feed
        if chunk is None:
            row_bytes = sum(a[:1].nbytes for a in jax.tree.leaves(feed.first))
            capacity = array_feed.capacity_of(row_bytes, feed.size)
            arrays = jax.tree.map(lambda a: _repeated(a, capacity, feed.size), feed.first)
            counts = np.zeros(capacity, "int32")
        else:
            (arrays, counts), own = chunk
            for array in jax.tree.leaves(arrays) if own < len(rows) else ():
                array[own : len(rows)] = array[:1]
        stacked = arrays, np.arange(feed.size) < counts[:, None]
        start = 0
        for fills, group in itertools.groupby(rows, feed.fills_joint):
            numbers = list(group)
            if fills:
                batches = jax.tree.map(lambda a, n=start: np.roll(a, -n, axis=0), stacked)
                yield feed.join(batches), len(numbers)
            for index, number in enumerate(() if fills else numbers, start):
                batch = jax.tree.map(lambda a, n=index: a[n : n + 1], stacked)
                yield (*feed.join(batch), np.arange(number, dtype="int32")), 1
            start += len(numbers)


def _batches_of(chunk: Chunk | None) -> Any:
    """Returns the arrays of a chunk without the places that no batch has filled."""
    if chunk is None:
        return ()
    (arrays, _), taken = chunk
    return jax.tree.map(lambda array: array[:taken], arrays)


def _repeated(array: np.ndarray, capacity: int, size: int) -> np.ndarray:
    first = host_arrays.canonical(array[:1])
    return np.broadcast_to(first, (capacity, size, *array.shape[1:]))
