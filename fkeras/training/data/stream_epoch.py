"""One epoch over a source of batches: reads, copies and stacks the batches of a device call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import jax
import numpy as np

from fkeras.engine.messages.errors import add_note
from fkeras.training.data import array_feed, host_arrays
from fkeras.training.records.annotations import Batches

#: batches of one call: `((stacked arrays, rows of each batch), number of batches)`
Chunk: TypeAlias = tuple[tuple[Any, np.ndarray], int]
#: the end of a source; a batch that is None is an error
END = object()


def copied(batch: object) -> Any:
    """Returns the batch in new memory: a source may write its next batch into the same buffer."""
    return jax.tree.map(np.array, batch)


def _room(batch: object, capacity: int, size: int | None) -> Any:
    """Returns uninitialized memory for `capacity` batches of `size` rows, or of the batch's rows."""

    def room(array: np.ndarray) -> np.ndarray:
        shape = array.shape if size is None else (size, *array.shape[1:])
        return np.empty((capacity, *shape), array.dtype)

    return jax.tree.map(room, batch)


def _write(batch: object, arrays: object, index: int) -> None:
    """Writes a batch into stacked batches, filled up with copies of its first row."""
    for array, out in zip(jax.tree.leaves(batch), jax.tree.leaves(arrays), strict=True):
        out[index, : len(array)] = array
        # A copy of a real row: zeros could give NaN in a layer (a division by a norm).
        out[index, len(array) :] = array[:1]


class BatchEpoch:
    """Remaining batches of an epoch; `take` returns the next batches.

    Attributes:
        done: number of batches that are done.
        failure: exception of the source, which the next `take` raises.
        waiting: a batch that was read, but is not done: the next `take` returns it alone.
        holds: whether `take` returns None at the end of a pass even if the epoch needs more batches;
            `begin_pass` then continues.
    """

    def __init__(self, feed: Batches, iterator: Iterator | None, step: int, done: int):
        self.feed, self.iterator, self.step, self.done = feed, iterator, step, done
        self.began, self.first = time.monotonic(), done
        self.failure: BaseException | None = None
        self.waiting: Any = None
        self.holds = False

    @property
    def is_at_state(self) -> bool:
        """Whether the loader's state is that after the taken batches."""
        return self.failure is None and self.waiting is None

    def begin_pass(self) -> None:
        """Begins the next pass over the source, at the end of a pass."""
        feed = self.feed
        if self.iterator is not None and not feed.once:
            feed.begin_pass(self.step + self.done)
            self.iterator = feed.running

    def take(self, number: int) -> tuple[tuple, int] | None:
        """Returns `(rows, taken)` for `step.batch_at`, or None at the end of the epoch.

        If the source raises, the method returns the batches before; the next call raises.
        """
        # The delay lets the loop train on those batches, and the checkpoint counts them.
        if self.failure is not None:
            raise self.failure
        feed, arrays, counts, is_alone = self.feed, None, [], False
        feed.warn_if_endless(time.monotonic() - self.began, self.done - self.first)
        if feed.steps is not None:
            number = min(number, feed.steps - self.done)
        while len(counts) < number and not is_alone:
            try:
                batch, self.waiting = self.waiting, None
                batch = self._next() if batch is None else batch
                is_alone = batch is not END and feed.is_alone(batch)
            except BaseException as error:  # KeyboardInterrupt must not lose batches, either
                self.failure = error
                if not counts:
                    raise
                break
            if batch is END:
                break
            if is_alone and counts:
                self.waiting = copied(batch)
                break
            if arrays is None:
                size = None if is_alone or not host_arrays.is_even(batch) else feed.size
                batch_bytes = sum(a.nbytes for a in jax.tree.leaves(batch))
                row_bytes = -(-batch_bytes // host_arrays.length(batch))
                capacity = 1 if is_alone else array_feed.capacity_of(row_bytes, feed.size)
                # the full capacity, so that chunks of fewer batches use the same program
                arrays, number = _room(batch, capacity, size), min(number, capacity)
            # Copied at once: a source may write its next batch into the same buffer.
            _write(batch, arrays, len(counts))
            counts.append(host_arrays.length(batch))
            self.done += 1
        if arrays is None:
            return None
        unused = len(jax.tree.leaves(arrays)[0]) - len(counts)
        return (arrays, np.asarray(counts + [0] * unused, "int32")), len(counts)

    def state(self) -> Any:
        """Returns the loader's state after the taken batches; None for a source without state."""
        get_state = getattr(self.iterator, "get_state", None)
        return None if get_state is None else get_state()

    def _next(self) -> Any:
        feed = self.feed
        try:
            batch = feed.unpeek(self.step + self.done)
            if batch is not END:
                pass
            elif self.iterator is None:
                batch = feed.by_number(self.step + self.done)
            else:
                batch = next(self.iterator, END)
                if batch is END and feed.continues and feed.seen and not self.holds:
                    batch = feed.again(self.step + self.done)
                    self.iterator = feed.running
        except Exception as error:
            add_note(error, f"while batch {self.done + 1} of Trainer.{feed.what} was read")
            raise
        if batch is END:
            feed.may_be_endless = False
            if not self.holds:
                self._ended()
            return END
        feed.seen += 1
        return feed.read(batch, self.done)

    def _ended(self) -> None:
        feed = self.feed
        if self.done == 0:
            raise feed.ended()
        if feed.steps is not None and self.done < feed.steps:
            raise ValueError(
                f"Trainer.{feed.what}: expected {feed.steps} batches, but the source ended after "
                f"{self.done}. Reduce {feed.steps_name}, or pass a longer source."
            )
