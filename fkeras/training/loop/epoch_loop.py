"""One epoch of training: calls of a compiled function, and the newest state that is known good.

The next batches are prepared on the host while the device works on the ones before. A call is
registered before it is made, and settled once its numbers are known to be finite, so that the
newest good state can be told at any moment, whatever raises.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fkeras.training.data import array_feed
from fkeras.training.loop.batch_loops import Pace, as_floats
from fkeras.training.loop.rescue import Point, is_usable
from fkeras.training.nonfinite import recovery
from fkeras.training.records.progress import Progress
from fkeras.training.records.state import TrainState, join, own_copy, split, strong
from fkeras.training.step import objective, outputs, step


@dataclasses.dataclass
class Call:
    """A call of a compiled function that may still run.

    Attributes:
        before: the arrays of the run before the call; donated for large runs.
        rows: the rows, as `step.batch_at` takes them.
        number: how many batches.
        done: how many batches of the epoch are done after the call.
        place: `(state, skip)`, the loader's state and the batches between it and `done`.
        result: `(leaves, logs, fine)`, or None before the call is made.
    """

    before: tuple
    rows: tuple
    number: int
    done: int
    place: tuple[Any, int]
    result: tuple[tuple, dict[str, Any], Any] | None = None

    @property
    def outcome(self) -> tuple[tuple, dict[str, Any], Any]:
        """The result of a call that was made."""
        assert self.result is not None
        return self.result


@dataclasses.dataclass(frozen=True)
class Settled:
    """A state of an epoch that is known to be good.

    Attributes:
        structure: the structure of the run.
        leaves: the arrays of the run.
        outer: a run with the position and memory that go with them.
        done: how many batches of the epoch are done.
        place: the place in the source after these, as in `Call`.
        hooked: whether the hooks of the last batch were called, or none is to be called.
        stopping: whether a callback asked to end the training after the epoch.
        fresh: whether the epoch has not moved on from its beginning.
    """

    structure: Any
    leaves: tuple
    outer: TrainState
    done: int
    place: tuple[Any, int]
    hooked: bool
    stopping: bool
    fresh: bool = False

    def run(self) -> TrainState:
        """The run, at its position."""
        position = np.asarray([self.outer.position[0], self.done], "int32")
        return join(self.structure, self.leaves, self.outer).replace(position=position)


class Visits:
    """Hooks between device calls (callbacks, checkpoints); the default does nothing."""

    hooks: bool = False  # whether `look` does something
    interrupts: Any = None  # an `Interrupts`, which delays signals while a run is overwritten

    def until(self, done: int) -> int | None:
        """Returns how many batches after batch `done` the next visit is; None for no visit."""
        return None

    def wanted(self) -> bool:
        """Whether a visit is needed now, asked after each call."""
        return False

    def look(self, run: TrainState, logs: Callable[[], Mapping[str, Any]]) -> tuple[Any, bool]:
        """`(run, stop)`: the run to continue with, and whether to stop after the epoch."""
        return run, False

    def looked(self, point: Point) -> None:
        """Receives the point of the visit, after `look`."""


class EpochLoop:
    """One epoch of training, call after call.

    Args:
        trainer: the trainer.
        run: the state at its beginning; its buffers may be used up.
        epoch: hands out the batches.
        pace: how many of them a call takes.
        progress: the line on the screen.
        visits: hooks between calls.
        begin: the point that the epoch continues from.
    """

    def __init__(
        self,
        trainer: Any,
        run: TrainState,
        epoch: Any,
        pace: Pace,
        progress: Progress,
        visits: Visits,
        begin: Point,
    ):
        self.trainer, self.epoch, self.pace, self.progress = trainer, epoch, pace, progress
        self.visits, self.begin = visits, begin
        self.names = objective.log_names(outputs.heads(trainer, run.model), run.metrics)
        self.structure, leaves = split(run)
        self.logs: Mapping[str, Any] = {}
        self.left_out: list[int] = []
        # a call that is made again needs the arrays before it, so only large runs are donated
        self.large = sum(map(_bytes, leaves)) > array_feed.device_bytes() // 16
        if self.large:
            pace.mode = "once"  # before the first batches are taken: it takes them one by one
        self.leaves = self._own(leaves)
        self.next_step = int(run.step) if self.large else 0
        # settled calls count towards `settled`; the others ran or run after it, in this order
        self.waiting: list[Call] = []
        self.opened: list[Call] = []
        self.place = (begin.loader, begin.skip)
        hooked = not (begin.pending and visits.hooks)
        self.settled = Settled(
            self.structure, self.leaves, run, epoch.done, self.place, hooked, begin.stopping, True
        )
        self.looked = begin

    def _own(self, leaves: tuple) -> tuple:
        if self.large:
            return tuple(own_copy(leaves))
        # a compiled step takes NumPy arrays faster than `device_put` does
        return tuple(leaf if type(leaf) is np.ndarray else strong(leaf) for leaf in leaves)

    def train(self) -> dict[str, Any]:
        """The logs of the epoch; `point` then is its end."""
        self.pace.start()
        if not self.settled.hooked:  # a hook raised at this point, and the training was resumed
            self._visit()
        due = self.visits.until(self.epoch.done)
        while True:
            number = self.pace.batches
            taken = self.epoch.take(number if due is None else min(number, due))
            if taken is None:
                break
            call = self._call(*taken)
            due = None if due is None else due - call.number
            pause = due == 0 or self.visits.wanted()
            if not pause and not self.pace.fresh and len(self.opened) < self._together():
                continue
            self._settle_waiting()
            self.waiting, self.opened = self.opened, []
            if pause or self.pace.fresh:
                self._settle_waiting()
            if pause:
                self._visit()
                due = self.visits.until(call.done)
        self._settle_waiting()
        self.waiting, self.opened = self.opened, []
        self._settle_waiting()
        return self._floats()

    def _together(self) -> int:
        """How many calls are waited for at once."""
        return self.pace.number if self.pace.mode == "once" and not self.large else 1

    def point(self) -> Point:
        """The newest point whose numbers are known to be good; waits for calls that still run.

        Changes nothing, so any thread may ask, and at any moment.
        """
        newest = self.settled
        for call in (*self.waiting, *self.opened):
            if call.result is None:
                break
            leaves, _, fine = call.result
            try:
                fine = bool(fine) or self._applied
            except Exception:  # the computation failed, its arrays hold nothing
                break
            if not fine:
                # a large run: the step was left out, and the arrays before it are used up
                newest = dataclasses.replace(newest, leaves=leaves) if self.large else newest
                break
            newest = self._after(newest, call)
        if not newest.fresh:
            point = self._point(newest)
            if is_usable(point.run):
                return point
        return self.looked if is_usable(self.looked.run) else self.begin

    @property
    def _applied(self) -> bool:
        """Whether the arrays of a step that is not finite are the ones to continue with."""
        mode = self.trainer.on_nonfinite
        return mode == "ignore" or (mode == "skip" and self.large)

    def _after(self, before: Settled, call: Call) -> Settled:
        leaves, place, hooked = call.outcome[0], call.place, not self.visits.hooks
        return dataclasses.replace(
            before, leaves=leaves, done=call.done, place=place, hooked=hooked, fresh=False
        )

    def _point(self, at: Settled, run: TrainState | None = None) -> Point:
        return dataclasses.replace(
            self.begin,
            run=at.run() if run is None else run,
            stopping=at.stopping,
            loader=at.place[0],
            skip=at.place[1],
            pending=not at.hooked,
        )

    def _floats(self) -> dict[str, Any]:
        # a training that is resumed after the last batch of an epoch makes no call
        logs = self.logs or step.compiled_logs(self.trainer, self.structure, self.leaves)
        return as_floats(self.names, logs)

    def _visit(self) -> None:
        at = self.settled
        run = own_copy(at.run()) if self.large else at.run()
        new, stop = self.visits.look(run, self._floats)
        structure, leaves = at.structure, at.leaves
        if new is not run:
            structure, leaves = split(new)
            leaves = self._own(leaves)
            self.next_step = int(new.step) if self.large else 0
        self.structure, self.leaves = structure, leaves
        self.settled = Settled(structure, leaves, new, at.done, at.place, True, at.stopping or stop)
        self.looked = self._point(self.settled, new)
        self.visits.looked(self.looked)

    def _call(self, rows: tuple, number: int, again: Call | None = None) -> Call:
        if self.pace.fresh:
            self.progress.compile_starts()
        before, batches = self.leaves, np.int32(number)
        arguments = (before, rows, batches)
        static = (self.trainer, self.structure, "loop")
        mode = self.pace.choose(self.large, step.compiled_train, static, arguments)
        if mode != "loop":
            arguments = (before, rows, np.int32(0))
        if self.large and self.trainer.on_nonfinite == "skip":
            mode = "guarded"
        elif self.large and self.trainer.on_nonfinite == "raise":
            # a step after one that was left out sees another number, and is left out too
            mode, arguments = "halting", (before, rows, np.int32(self.next_step))
            self.next_step += 1
        given = (self.trainer, self.structure, mode, *arguments)
        function = self.pace.function(self.large, *given)
        call = self._opened(rows, number) if again is None else again
        call.before = before
        self.opened.append(call)
        if self.large and self.visits.interrupts is not None:
            with self.visits.interrupts.held():
                call.result = function(*given)
        else:
            call.result = function(*given)
        self.leaves = call.outcome[0]
        if again is None and self.epoch.failure is None:
            self.place = call.place = (self.epoch.state(), 0)
        return call

    def _opened(self, rows: tuple, number: int) -> Call:
        # the state of a loader after these batches is unknown if the loader raised
        self.place = (self.place[0], self.place[1] + number)
        return Call((), rows, number, self.epoch.done, self.place)

    def _settle_waiting(self) -> None:
        if not self.waiting:
            return
        void = self._settle(self.waiting)
        self.waiting = []
        if void:
            again, self.opened = self.opened, []
            for call in again:
                self._call(call.rows, call.number, dataclasses.replace(call, result=None))

    def _settle(self, calls: list[Call]) -> bool:
        """Waits for calls; True where steps of them were left out: what followed is void."""
        last, number = calls[-1], sum(call.number for call in calls)
        _, logs, last_fine = last.outcome
        # weights and sums that are not finite stay so: the last call tells of all
        fine = bool(last_fine) or self.trainer.on_nonfinite == "ignore"
        fresh = self.pace.fresh
        self.pace.measured(number)
        if fresh:
            self.progress.compiled()
        self.logs = logs
        if fine:
            self.settled = self._after(self.settled, last)
        else:
            self._left_out(calls)
        self.progress.step(last.done, self.epoch.feed.rows(last.done), self._floats)
        return not fine and not self.large

    def _left_out(self, calls: list[Call]) -> None:
        batches = [(call.rows, place) for call in calls for place in range(call.number)]
        settled, last = self.settled, calls[-1]
        if self.large:  # its only step was left out as it ran
            wrong, first = (0,), self.leaves
            after = self._after(settled, last)
        else:
            before = calls[0].before
            found = recovery.again(self.trainer, self.structure, before, batches)
            self.leaves, self.logs = found.leaves, found.logs
            wrong, first = found.wrong, found.first
            after = dataclasses.replace(self._after(settled, last), leaves=found.leaves)
        begun = last.done - len(batches)
        self.left_out.extend(begun + number for number in wrong)
        if wrong and self.trainer.on_nonfinite == "raise":
            state, skip = settled.place
            self.waiting, self.opened = [], []
            self.settled = dataclasses.replace(
                settled,
                leaves=first,
                done=begun + wrong[0],
                place=(state, skip + wrong[0]),
                hooked=settled.hooked or wrong[0] > 0,
                fresh=settled.fresh and wrong[0] == 0,
            )
            batch = recovery.batch_of(*batches[wrong[0]])
            epoch = int(settled.outer.position[0])
            raise recovery.error(self.point().run, batch, epoch, begun + wrong[0])
        self.settled = after


def _bytes(leaf: Any) -> int:
    # `nbytes` of a JAX array takes ten times as long
    return math.prod(leaf.shape) * leaf.dtype.itemsize
