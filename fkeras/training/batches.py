"""Batches that come one by one: from an iterable, a generator, a loader or a function of the step.

Batches of one chunk are stacked, so that one call of the device takes several. A batch with fewer
rows than the first is filled up with copies of its first row, which count nowhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from fkeras.training import data, feeds


def is_batches(x: Any) -> bool:
    """Whether `x` yields batches: an iterator, an iterable that is no tree of arrays, a function."""
    if isinstance(x, list) and x and all(isinstance(batch, tuple) for batch in x):
        return True
    if isinstance(x, dict | list | tuple | str | bytes) or hasattr(x, "shape"):
        return False
    return callable(x) or hasattr(x, "__iter__") or hasattr(x, "__getitem__")


@dataclasses.dataclass
class Batches:
    """Batches out of a source; what an epoch leaves is the next one's, where the source goes on.

    Attributes:
        source: an iterable of batches `(x, y)` or `(x, y, sample_weight)`, or a function of the
            number of the step.
        steps: how many batches an epoch has; None for all that come.
        what: the call's name in messages.
        check: called with every batch; returns it with its weights.
        first: the first batch that came, on the host: it fixes shapes and dtypes.
        running: the iterator that the next batch comes from.
        seen: how many batches came.
        positioned: whether a saved training put the iterator where it was left.
    """

    source: Any
    steps: int | None
    what: str
    check: Callable[[Any], Any]
    first: Any = None
    running: Iterator | None = None
    seen: int = 0
    positioned: bool = False

    def __post_init__(self) -> None:
        if self._by_step and self.steps is None:
            raise ValueError(
                f"Trainer.{self.what}: expected steps_per_epoch beside a function of the step, "
                "received none. A function has no end: say how many batches an epoch has."
            )

    @property
    def _by_step(self) -> bool:
        return callable(self.source) and not hasattr(self.source, "__iter__")

    @property
    def size(self) -> int:
        """The number of rows of a batch; 0 before the first one came."""
        return 0 if self.first is None else data.length(self.first)

    def rows(self, steps: int) -> int:
        """How many rows that many batches have."""
        return steps * self.size

    def epoch(self, run: Any, step: Any = 0, begin: int = 0) -> BatchEpoch:
        """The batches of an epoch that began with a step, from batch `begin` on."""
        if self._by_step:
            return BatchEpoch(self, None, int(step or 0), begin)
        if self.running is None:
            self.running = iter(self.source)
        elif self.steps is None and not self.positioned:
            if self._once:
                raise ValueError(
                    f"Trainer.{self.what}: the iterator is used up after the first epoch. Pass "
                    "something that can be iterated again, such as a list of batches or an object "
                    "with __iter__, or steps_per_epoch for an iterator that goes on."
                )
            self.running = iter(self.source)
        self.positioned = False
        return BatchEpoch(self, self.running, 0, begin)

    @property
    def _once(self) -> bool:
        return hasattr(self.source, "__next__") and iter(self.source) is self.source

    def go_on(self, state: Any, batches: int) -> None:
        """Begins where a run was left: at a loader's own `state`, or after so many batches."""
        if self._by_step:
            return
        self.running, self.positioned = iter(self.source), True
        if state is not None and hasattr(self.running, "set_state"):
            self.running.set_state(state)
            return
        for _ in range(batches):
            if next(self.running, None) is None and self.again() is None:
                return

    def again(self) -> Any:
        """The first batch of a new pass, where there is one; None for an iterator at its end."""
        if self._once:
            return None
        self.running = iter(self.source)
        return next(self.running, None)

    def read(self, batch: Any, number: int) -> Any:
        """The batch as host arrays, checked against the first one."""
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            found = len(batch) if isinstance(batch, tuple | list) else type(batch).__name__
            raise TypeError(
                f"Trainer.{self.what}, batch {number + 1}: expected (x, y) or (x, y, "
                f"sample_weight), received {found}. Let the source yield such tuples."
            )
        x, y, *rest = batch
        what = f"{self.what}, batch {number + 1}"
        weights = data.as_host(rest[0], f"{what}: sample_weight") if rest else None
        if weights is not None:
            weights = jax.tree.map(lambda w: w.astype("float32"), weights)
        host = (data.as_host(x, f"{what}: x"), data.as_host(y, f"{what}: y"), weights)
        host = jax.tree.map(data.canonical, host)
        if self.first is not None:
            self._compare(host, what)
        try:
            batch = self.check(host)
        except Exception as error:
            error.add_note(f"in batch {number + 1} of Trainer.{self.what}")
            raise
        self.first = host if self.first is None else self.first
        return batch

    def _compare(self, batch: Any, what: str) -> None:
        old, structure = jax.tree_util.tree_flatten_with_path(self.first)
        if jax.tree.structure(batch) != structure:
            raise ValueError(
                f"Trainer.{what}: expected the structure of the first batch, {structure}, received "
                f"{jax.tree.structure(batch)}. Every batch needs the same arrays."
            )
        rows = data.length(batch)
        for (path, first), array in zip(old, jax.tree.leaves(batch), strict=True):
            name = ("x", "y", "sample_weight")[path[0].idx] + jax.tree_util.keystr(path[1:])
            fits = array.shape[1:] == first.shape[1:] and array.dtype == first.dtype
            if not fits or len(array) != rows or not 0 < rows <= len(first):
                raise ValueError(
                    f"Trainer.{what}: expected {name} of shape {first.shape} and dtype "
                    f"{first.dtype} as in the first batch (the rows may be fewer, in all arrays "
                    f"alike), received {array.shape} and {array.dtype}. Batches of another shape "
                    "need a program of their own: pad them, or go on with trainer.step."
                )


class BatchEpoch:
    """What is left of an epoch; `take` hands out the next batches."""

    def __init__(self, feed: Batches, iterator: Iterator | None, step: int, done: int):
        self.feed, self.iterator, self.step, self.done = feed, iterator, step, done

    def take(self, number: int) -> tuple[tuple, int] | None:
        """`(rows, taken)` for `step.batch_at`, or None at the end."""
        feed, taken, room = self.feed, [], 1
        if feed.steps is not None:
            number = min(number, feed.steps - self.done)
        while len(taken) < number:
            batch = self._next()
            if batch is None:
                break
            taken.append(batch)
            row = sum(a[:1].nbytes for a in jax.tree.leaves(batch))
            room = feeds.capacity_of(row, feed.size)
            number = min(number, room)
            self.done += 1
        if not taken:
            return None
        counts = np.zeros(room, "int32")
        counts[: len(taken)] = [data.length(b) for b in taken]
        size = feed.size

        def stack(*arrays: np.ndarray) -> np.ndarray:
            out = np.empty((room, size, *arrays[0].shape[1:]), arrays[0].dtype)
            for place, array in enumerate(arrays):
                out[place, : len(array)] = array
                out[place, len(array) :] = array[:1]
            return out

        return (jax.tree.map(stack, *taken), counts), len(taken)

    def state(self) -> Any:
        """The loader's own state after what was taken; None where it has none."""
        get = getattr(self.iterator, "get_state", None)
        return None if get is None else get()

    def _next(self) -> Any:
        feed = self.feed
        try:
            if self.iterator is None:
                batch = feed.source(self.step + self.done)
            else:
                batch = next(self.iterator, None)
                if batch is None and feed.steps is not None and feed.seen:
                    batch = feed.again()
                    self.iterator = feed.running
        except Exception as error:
            error.add_note(f"while batch {self.done + 1} of Trainer.{feed.what} was read")
            raise
        if batch is None:
            self._ended()
            return None
        feed.seen += 1
        return feed.read(batch, self.done)

    def _ended(self) -> None:
        feed = self.feed
        if feed.seen == 0 or self.done == 0:
            raise ValueError(
                f"Trainer.{feed.what}: expected batches, the source gave none. An iterator that "
                "was used before has nothing left: make a new one."
            )
        if feed.steps is not None and self.done < feed.steps:
            raise ValueError(
                f"Trainer.{feed.what}: expected {feed.steps} batches an epoch, the source ended "
                f"after {self.done}. Pass fewer steps_per_epoch, or a source that goes on."
            )
