"""The loops over chunks of batches: what happens between two calls of a compiled function.

A chunk is prepared on the host while the device works on the one before it. How many batches a
chunk holds follows the time that a step takes, so that the screen and the keyboard get their turn;
the program is the same for any number.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fkeras.training import objective, step
from fkeras.training.data import Feed
from fkeras.training.progress import Progress
from fkeras.training.state import TrainState

_DISPATCH = 0.1  # seconds that a call of a compiled function shall take at most


class Pace:
    """How many batches the next call takes: one at first, then as many as fit into the time.

    Args:
        feed: what is fed.
    """

    def __init__(self, feed: Feed):
        self.feed = feed
        self.number, self.calls, self.waiting = 1, 0, None
        self.began = time.perf_counter()

    @property
    def fresh(self) -> bool:
        """Whether no call was made yet."""
        return self.calls == 0

    def start(self) -> None:
        """A row of calls begins."""
        self.began, self.waiting = time.perf_counter(), None

    def plan(self) -> Iterator[tuple[int, int]]:
        """The first batch and the number of batches of every call."""
        done = 0
        while done < self.feed.steps:
            number = min(self.number, self.feed.steps - done)
            yield done, number
            done += number

    def called(self, number: int, result: Any) -> None:
        """A call of `number` batches was made; waits for the one before it.

        One call runs while the next is prepared, never more: they would pile up. The first call
        is waited for and left out of the time, since it may have compiled.
        """
        self.calls += 1
        if self.calls == 1:
            jax.block_until_ready(result)
            self.start()
            return
        if self.waiting is not None:
            before, pending = self.waiting
            jax.block_until_ready(pending)
            now = time.perf_counter()
            each = max((now - self.began) / before, 1e-9)
            self.number = int(np.clip(_DISPATCH / each, 1, self.feed.capacity))
            self.began = now
        self.waiting = (number, result)


def train_epoch(
    trainer: Any, run: TrainState, order: np.ndarray, progress: Progress, pace: Pace
) -> tuple[TrainState, dict[str, Any]]:
    """`(run, logs)` after an epoch. The buffers of `run` are used up."""
    leaves, structure = jax.tree.flatten(run)
    names = objective.log_names(objective.heads(trainer, run.model), run.metrics)
    leaves, logs = tuple(leaves), {}
    pace.start()
    for start, number in pace.plan():
        fresh = pace.fresh
        if fresh:
            progress.compile_starts()
            first = (trainer, structure, leaves, *_arguments(pace.feed, order, 0, 1))
            pace.feed = _without_loop(pace.feed, step.compiled_train, first)
        leaves, logs = step.compiled_train(
            trainer, structure, leaves, *_arguments(pace.feed, order, start, number)
        )
        pace.called(number, logs)
        if fresh:
            progress.compiled()
        progress.step(start + number, pace.feed.rows(start + number), _reader(names, logs))
    return jax.tree.unflatten(structure, leaves), as_floats(names, logs)


def _arguments(feed: Feed, order: np.ndarray, start: int, number: int) -> tuple:
    counts = np.zeros(feed.capacity, "int32")
    counts[:number] = feed.counts(start, number)
    return feed.chunk(order, start, number), counts, np.int32(number)


def _without_loop(feed: Feed, function: Any, arguments: tuple) -> Feed:
    """The feed with one batch a call where the program is one that a loop makes slow."""
    if feed.capacity == 1 or jax.default_backend() != "cpu":
        return feed
    # the trace is kept by JAX: the call that follows does not make it again
    slow = step.convolves(function.trace(*arguments).jaxpr)
    return dataclasses.replace(feed, capacity=1) if slow else feed


def _reader(names: tuple[str, ...], logs: Mapping[str, Any]) -> Any:
    return lambda: as_floats(names, logs)


def evaluate(
    trainer: Any, run: TrainState, sums: Any, feed: Feed, progress: Progress | None = None
) -> dict[str, Any]:
    """The logs of the model on a feed, from empty `sums`; `run` stays as it is."""
    leaves, structure = jax.tree.flatten(run.model)
    names = objective.log_names(objective.heads(trainer, run.model), sums)
    leaves, carry, order = tuple(leaves), (run.state, sums), np.arange(len(feed))
    first = (trainer, structure, leaves, carry, *_arguments(feed, order, 0, 1))
    pace, logs = Pace(_without_loop(feed, step.compiled_test, first)), {}
    for start, number in pace.plan():
        fresh = pace.fresh
        if fresh and progress is not None:
            progress.compile_starts()
        carry, logs = step.compiled_test(
            trainer, structure, leaves, carry, *_arguments(pace.feed, order, start, number)
        )
        pace.called(number, logs)
        if progress is not None:
            if fresh:
                progress.compiled()
            progress.step(start + number, feed.rows(start + number), _reader(names, logs))
    return as_floats(names, logs)


def predict(run: TrainState, feed: Feed) -> Any:
    """The model's outputs on a feed, as NumPy arrays."""
    state, pending, parts = run.state, [], []
    for start in range(feed.steps):
        leaves, structure = jax.tree.flatten((run.model, state))
        updates, value = step.compiled_predict(structure, tuple(leaves), feed.batch(start))
        state = {**state, **updates}
        pending.append((value, int(feed.counts(start, 1)[0])))
        if len(pending) > 2:
            parts.append(_fetch(*pending.pop(0)))
    parts.extend(_fetch(*one) for one in pending)
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def _fetch(value: Any, count: int) -> Any:
    return jax.tree.map(lambda array: np.asarray(array)[:count], value)


def as_floats(names: tuple[str, ...], logs: Mapping[str, Any]) -> dict[str, Any]:
    """Logs on the host, in order; a metric of several numbers becomes a list."""
    arrays = jax.device_get({name: logs[name] for name in names})
    return {name: arrays[name].tolist() for name in names}
