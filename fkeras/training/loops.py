"""The loops over batches: what happens between two calls of a compiled function.

The next batches are prepared on the host while the device works on the ones before. How many
batches a call takes follows the time that a step takes, so that the screen, the keyboard and the
callbacks get their turn; the program is the same for any number.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fkeras.training import feeds, objective, recovery, step
from fkeras.training.donation import donates
from fkeras.training.progress import Progress
from fkeras.training.state import TrainState, join, own_copy, split, strong

_DISPATCH = 0.1  # seconds that a call of a compiled function shall take at most


class Pace:
    """How many batches the next call takes: one at first, then as many as fit into the time.

    Args:
        fixed: the number, where the user chose it.
    """

    def __init__(self, fixed: int | None = None):
        self.number, self.calls, self.fixed = fixed or 1, 0, fixed
        self.mode: str | None = None
        self.overwrites: bool | None = None
        self.began = time.perf_counter()

    @property
    def batches(self) -> int:
        """How many batches the next call takes at most."""
        return 1 if self.mode == "once" else self.number

    @property
    def fresh(self) -> bool:
        """Whether no call is over yet."""
        return self.calls == 0

    def start(self) -> None:
        """A row of calls begins."""
        self.began = time.perf_counter()

    def measured(self, number: int) -> None:
        """A call of `number` batches is over; the first one may have compiled and says nothing."""
        now = time.perf_counter()
        if self.calls and self.fixed is None:
            each = max((now - self.began) / number, 1e-9)
            self.number = int(np.clip(_DISPATCH / each, 1, 1 << 20))
        self.calls += 1
        self.began = now

    def choose(self, large: bool, function: Any, *arguments: Any) -> str:
        """The mode of `step.compiled_train`: single steps where a loop would make them slow."""
        if self.mode is None:
            # the trace is kept by JAX: the call that follows does not make it again
            slow = (
                self.fixed is None
                and jax.default_backend() == "cpu"
                and step.convolves(function.trace(*arguments).jaxpr)
            )
            single = slow or large or self.fixed == 1
            self.mode = "once" if single else "loop"
        return self.mode

    def function(self, large: bool, *arguments: Any) -> Any:
        """The compiled step; for large runs the one that overwrites what it is given, if it may."""
        if large and self.overwrites is None:
            self.overwrites = donates(step.compiled_train, step.donating_train, *arguments)
        return step.donating_train if large and self.overwrites else step.compiled_train


@dataclasses.dataclass
class Call:
    """A call of a compiled function that may still run: what went in and what comes out."""

    before: tuple
    rows: tuple
    number: int
    done: int
    logs: Mapping[str, Any]
    fine: Any


class Visits:
    """What looks at a run in the middle of an epoch; this one never does."""

    def until(self, done: int) -> int | None:
        """How many batches after batch `done` it must look; None where it need not."""
        return None

    def wanted(self) -> bool:
        """Whether it wants to look now, asked after each call."""
        return False

    def look(
        self, run: TrainState, done: int, logs: Callable[[], Mapping[str, Any]], state: Any
    ) -> tuple[TrainState, bool]:
        """`(run, stop)`: the run to go on with after `done` batches, and whether to end here."""
        return run, False


class EpochLoop:
    """One epoch of training, call after call.

    Args:
        trainer: the trainer.
        run: the state at its beginning; its buffers may be used up.
        epoch: what hands out the batches.
        pace: how many of them a call takes.
        progress: the line on the screen.
        visits: what looks at the run between calls.
    """

    def __init__(
        self,
        trainer: Any,
        run: TrainState,
        epoch: Any,
        pace: Pace,
        progress: Progress,
        visits: Visits,
    ):
        self.trainer, self.epoch, self.pace, self.progress = trainer, epoch, pace, progress
        self.visits, self.outer, self.stopped = visits, run, False
        self.names = objective.log_names(objective.heads(trainer, run.model), run.metrics)
        self.structure, self.leaves = split(run)
        self.logs: Mapping[str, Any] = {}
        self.left_out: list[int] = []
        # a call that is made again needs what it began with, so only large runs are donated
        self.large = sum(leaf.nbytes for leaf in self.leaves) > feeds.device_bytes() // 16
        self.leaves = tuple(own_copy(self.leaves) if self.large else map(strong, self.leaves))

    def train(self) -> tuple[TrainState, dict[str, Any]]:
        """`(run, logs)` after the epoch, or where a visit ended it."""
        self.pace.start()
        waiting: list[Call] = []  # calls that ran before the open ones; their result is not known
        opened: list[Call] = []
        due = self.visits.until(self.epoch.done)
        while not self.stopped:
            number = self.pace.batches
            taken = self.epoch.take(number if due is None else min(number, due))
            if taken is None:
                break
            call, state = self._call(*taken), self.epoch.state()
            opened.append(call)
            due = None if due is None else due - call.number
            pause = due == 0 or self.visits.wanted()
            if not pause and not self.pace.fresh and len(opened) < self._together():
                continue
            if waiting and self._settle(waiting):
                opened = [self._call(one.rows, one.number, one.done) for one in opened]
            waiting, opened = opened, []
            if pause or self.pace.fresh:
                self._settle(waiting)
                waiting = []
            if pause:
                self._visit(call.done, state)
                due = self.visits.until(call.done)
        if waiting and self._settle(waiting):
            opened = [self._call(one.rows, one.number, one.done) for one in opened]
        if opened:
            self._settle(opened)
        return self.current(), self._floats()

    def _together(self) -> int:
        """How many calls are waited for at once."""
        return self.pace.number if self.pace.mode == "once" and not self.large else 1

    def current(self) -> TrainState:
        """The run as it stands."""
        return join(self.structure, self.leaves, self.outer)

    def _floats(self) -> dict[str, Any]:
        # a training that goes on after the last batch of an epoch makes no call
        logs = self.logs or step.compiled_logs(self.trainer, self.structure, self.leaves)
        return as_floats(self.names, logs)

    def _visit(self, done: int, state: Any) -> None:
        position = np.asarray([self.outer.position[0], done], "int32")
        run = self.current().replace(position=position)
        run = own_copy(run) if self.large else run
        new, self.stopped = self.visits.look(run, done, self._floats, state)
        if new is not run:
            self.structure, self.leaves = split(new)
        self.outer = new

    def _call(self, rows: tuple, number: int, done: int | None = None) -> Call:
        if self.pace.fresh:
            self.progress.compile_starts()
        before, batches = self.leaves, np.int32(number)
        arguments = (before, rows, batches)
        mode = self.pace.choose(
            self.large, step.compiled_train, self.trainer, self.structure, "loop", *arguments
        )
        if mode != "loop":
            arguments = (before, rows, np.int32(0))
        if self.large and self.trainer.on_nonfinite != "ignore":
            mode = "guarded"
        given = (self.trainer, self.structure, mode, *arguments)
        self.leaves, logs, fine = self.pace.function(self.large, *given)(*given)
        done = self.epoch.done if done is None else done
        return Call(before, rows, number, done, logs, fine)

    def _settle(self, calls: list[Call]) -> bool:
        """Waits for calls; True where steps of them were left out: what followed is void."""
        last, number = calls[-1], sum(call.number for call in calls)
        # weights and sums that are not finite stay so: the last call tells of all
        fine = bool(last.fine) or self.trainer.on_nonfinite == "ignore"
        fresh = self.pace.fresh
        self.pace.measured(number)
        if fresh:
            self.progress.compiled()
        self.logs = last.logs
        if not fine:
            self._left_out(calls)
        self.progress.step(last.done, self.epoch.feed.rows(last.done), self._floats)
        return not fine and not self.large

    def _left_out(self, calls: list[Call]) -> None:
        batches = [(call.rows, place) for call in calls for place in range(call.number)]
        if self.large:  # its only step was left out as it ran
            wrong, run = (0,), self.current()
        else:
            before = calls[0].before
            found = recovery.again(self.trainer, self.structure, before, batches)
            self.leaves, self.logs = found.leaves, found.logs
            wrong, run = found.wrong, join(self.structure, found.first, self.outer)
        begun = calls[-1].done - len(batches)
        self.left_out.extend(begun + number for number in wrong)
        if wrong and self.trainer.on_nonfinite == "raise":
            batch = recovery.batch_of(*batches[wrong[0]])
            raise recovery.error(run, batch, int(self.outer.position[0]), begun + wrong[0])


def evaluate(
    trainer: Any,
    run: TrainState,
    sums: Any,
    feed: Any,
    progress: Progress | None = None,
    pace: Pace | None = None,
) -> tuple[dict[str, Any], int]:
    """`(logs, batches)` of the model on a feed, from empty `sums`; `run` stays as it is."""
    leaves, structure = jax.tree.flatten(run.model)
    names = objective.log_names(objective.heads(trainer, run.model), sums)
    leaves, carry = tuple(leaves), (run.state, sums)
    pace = Pace() if pace is None else pace
    epoch, logs, waiting = feed.epoch(None), {}, None
    pace.start()
    while (taken := epoch.take(pace.batches)) is not None:
        rows, number = taken
        if pace.fresh and progress is not None:
            progress.compile_starts()
        static = (trainer, structure)
        arguments = (leaves, carry, rows, np.int32(number))
        mode = pace.choose(False, step.compiled_test, *static, "loop", *arguments)
        steps = np.int32(number if mode == "loop" else 0)
        carry, logs = step.compiled_test(*static, mode, leaves, carry, rows, steps)
        if waiting is not None or pace.fresh:
            fresh = pace.fresh
            jax.block_until_ready(logs if fresh else waiting[1])
            pace.measured(number if fresh else waiting[0])
            if fresh and progress is not None:
                progress.compiled()
        waiting = (number, logs)
        if progress is not None:
            progress.step(epoch.done, feed.rows(epoch.done), _reader(names, logs))
    return as_floats(names, logs), epoch.done


def _reader(names: tuple[str, ...], logs: Mapping[str, Any]) -> Any:
    return lambda: as_floats(names, logs)


def predict(run: TrainState, feed: Any, put: Callable[[Any], Any]) -> Any:
    """The model's outputs on a feed, as NumPy arrays; `put` takes each batch to the devices."""
    state, pending, parts = run.state, [], []
    for start in range(feed.steps):
        leaves, structure = jax.tree.flatten((run.model, state))
        batch = put(feed.batch(start))
        updates, value = step.compiled_predict(structure, tuple(leaves), batch)
        state = {**state, **updates}
        pending.append((value, int(feed.counts(start, 1)[0])))
        if len(pending) > 2:
            parts.append(_fetch(*pending.pop(0)))
    parts.extend(_fetch(*one) for one in pending)
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def predict_batch(run: TrainState, x: np.ndarray) -> Any:
    """The model's outputs on one batch, as NumPy arrays."""
    leaves, structure = jax.tree.flatten((run.model, run.state))
    _, value = step.compiled_predict(structure, tuple(leaves), x)
    return np.asarray(value) if isinstance(value, jax.Array) else jax.tree.map(np.asarray, value)


def _fetch(value: Any, count: int) -> Any:
    return jax.tree.map(lambda array: np.asarray(array)[:count], value)


def as_floats(names: tuple[str, ...], logs: Mapping[str, Any]) -> dict[str, Any]:
    """Logs on the host, in order; a metric of several numbers becomes a list."""
    arrays = jax.device_get({name: logs[name] for name in names})
    return {name: arrays[name].tolist() for name in names}
