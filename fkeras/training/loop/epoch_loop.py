"""Runs one epoch of training as calls of a compiled function, and tracks the newest valid run.

The host prepares the next batches while the device computes the previous batches. The loop registers
a call before the dispatch, and settles the call after checking that its results are finite. The
newest valid run is therefore available at any moment, including after an exception.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fkeras.engine.network.stacking import Stacking
from fkeras.training.data import array_feed
from fkeras.training.loop.batch_loops import CallSize, as_floats
from fkeras.training.loop.rescue import Point, is_usable
from fkeras.training.nonfinite import recovery
from fkeras.training.processes.alone import ALONE, Alone
from fkeras.training.records.progress import Progress
from fkeras.training.records.state import TrainState, join, own_copy, split, strong
from fkeras.training.step import objective, outputs, step
from fkeras.training.step.blocks import stacked, stacking_of, unstacked


@dataclasses.dataclass
class Call:
    """Device call of a compiled function; the call may still be running.

    Attributes:
        before: arrays of the run before the call; donated for large runs.
        rows: the rows, in the form that `step.batch_at` reads.
        number: number of batches in the call.
        done: number of batches of the epoch that are done after the call.
        cursor: position in the data source after the call: `(state, skip)`, the loader's state and the
            number of batches to skip from this state.
        result: `(leaves, logs, finite)`, or None before the dispatch.
    """

    before: tuple
    rows: tuple
    number: int
    done: int
    cursor: tuple[Any, int]
    result: tuple[tuple, dict[str, Any], Any] | None = None

    @property
    def outcome(self) -> tuple[tuple, dict[str, Any], Any]:
        """Result of a dispatched call."""
        assert self.result is not None
        return self.result


@dataclasses.dataclass(frozen=True)
class Settled:
    """State of an epoch after settled calls, whose arrays are valid.

    Attributes:
        structure: tree structure of the run.
        leaves: arrays of the run.
        outer: run with the callback memory and the epoch number for these arrays.
        stacking: how the arrays hold repeated blocks; None for single blocks.
        done: number of batches of the epoch that are done.
        cursor: position in the data source after these batches, as in `Call`.
        hooked: False if the hooks of the last batch still have to be called.
        stopping: whether a callback has requested the end of the training after the epoch.
        fresh: whether the state is that of the beginning: no call settled, no hook called.
    """

    structure: Any
    leaves: tuple
    outer: TrainState
    stacking: Stacking | None
    done: int
    cursor: tuple[Any, int]
    hooked: bool
    stopping: bool
    fresh: bool = False

    def run(self) -> TrainState:
        """Returns the run with the position in the epoch."""
        position = np.asarray([self.outer.position[0], self.done], "int32")
        run = join(self.structure, self.leaves, self.outer).replace(position=position)
        return unstacked(self.stacking, run)


class LoopHooks:
    """Hooks between device calls (callbacks, checkpoints); the default does nothing."""

    hooks: bool = False  # whether `visit` has an effect
    group: Alone = ALONE  # the processes that train together
    interrupts: Any = None  # an `Interrupts`, which delays signals while a call donates a run

    def agreed_number(self, number: int) -> int:
        """Returns the number of batches of the next call; all processes receive the same number."""
        return number

    def until(self, done: int) -> int | None:
        """Returns the number of batches from batch `done` to the next visit; None if none is due."""
        return None

    def wanted(self) -> bool:
        """Returns whether a visit is due now; the loop asks after each call."""
        return False

    def visit(self, run: TrainState, logs: Callable[[], Mapping[str, Any]]) -> tuple[Any, bool]:
        """Returns `(run, stop)`: the run to continue with, and whether to stop after the epoch."""
        return run, False

    def end_visit(self, point: Point) -> None:
        """Receives the point of the visit, after `visit`."""


class EpochLoop:
    """Trains one epoch as a sequence of device calls.

    Args:
        trainer: the trainer.
        run: the state before the epoch; the loop may donate its buffers.
        epoch: source of the batches.
        call_size: chooses the number of batches of each call.
        progress: the progress bar.
        loop_hooks: hooks between calls.
        begin: the point at which the epoch begins or resumes.
    """

    def __init__(
        self,
        trainer: Any,
        run: TrainState,
        epoch: Any,
        call_size: CallSize,
        progress: Progress,
        loop_hooks: LoopHooks,
        begin: Point,
    ):
        self.trainer, self.form = trainer, step.training_form(trainer)
        self.epoch = epoch
        self.call_size = call_size
        self.progress = progress
        self.loop_hooks = loop_hooks
        self.begin = begin
        self.names = objective.log_names(outputs.heads(trainer, run.model), run.metrics)
        self.stacking = stacking_of(self.form, run)
        self.structure, leaves = split(stacked(self.stacking, run))
        self.logs: Mapping[str, Any] = {}
        self.left_out: list[int] = []
        # Repeating a call after a NaN needs the arrays before the call, which donation destroys:
        # donate only runs that take a large part of the device's memory.
        large = sum(map(_bytes, leaves)) > array_feed.device_bytes() // 16
        self.large = loop_hooks.group.agree(large, "the size of the run")[0]
        if self.large:
            # Set before the first `take`: in mode "once" a call has one batch, so a large run never
            # has to repeat a part of a call.
            call_size.mode = "once"
        self.leaves = self._owned_leaves(leaves)
        # Counted on the host: reading `run.step` from the device would wait for the last call.
        self.next_step = int(run.step) if self.large else 0
        # Invariant: the calls in `waiting` follow the state `settled`, and the calls in `opened` follow
        # those in `waiting`. `point` goes through them in this order, up to the first call without a
        # valid result.
        self.waiting: list[Call] = []
        self.opened: list[Call] = []
        self.cursor = (begin.loader, begin.skip)
        hooked = not (begin.pending and loop_hooks.hooks)
        self.settled = Settled(
            self.structure,
            self.leaves,
            run,
            self.stacking,
            epoch.done,
            self.cursor,
            hooked,
            begin.stopping,
            True,
        )
        self.visit_point = begin

    def _owned_leaves(self, leaves: tuple) -> tuple:
        if self.large:
            return tuple(own_copy(leaves))
        # NumPy arrays stay as they are: the dispatch of a compiled step transfers them faster
        # than `device_put`. JAX arrays become strongly typed: a weak type would recompile.
        return tuple(leaf if type(leaf) is np.ndarray else strong(leaf) for leaf in leaves)

    def train(self) -> dict[str, Any]:
        """Trains the epoch and returns the logs; `point` then returns the end of the epoch."""
        self.call_size.start()
        if not self.settled.hooked:
            # The training was resumed at a step whose `on_batch_end` had raised: call the hook again.
            self._call_hooks()
        remaining = self.loop_hooks.until(self.epoch.done)
        while True:
            number = self.loop_hooks.agreed_number(self.call_size.batches)
            chunk = self.epoch.take(number if remaining is None else min(number, remaining))
            if chunk is None:
                break
            call = self._call(*chunk)
            remaining = None if remaining is None else remaining - call.number
            pause = remaining == 0 or self.loop_hooks.wanted()
            if not pause and not self.call_size.fresh and len(self.opened) < self._group_size():
                continue
            # Settle the previous group only: the newest group stays in the queue of the device, which
            # is not idle while the host waits.
            self._settle_waiting()
            self.waiting, self.opened = self.opened, []
            # Hooks need the newest run, and the time of the first call includes the compilation: in
            # both cases also wait for the call that was just dispatched.
            if pause or self.call_size.fresh:
                self._settle_waiting()
            if pause:
                self._call_hooks()
                remaining = self.loop_hooks.until(call.done)
        # Twice, because settling `waiting` may repeat the calls in `opened`.
        self._settle_waiting()
        self.waiting, self.opened = self.opened, []
        self._settle_waiting()
        return self._floats()

    def _group_size(self) -> int:
        """Returns the number of calls that the host waits for as one group."""
        # In mode "once" a call is a single step, and waiting for every call would take longer than a
        # small step. A group has as many calls as one call of mode "loop" has steps.
        return self.call_size.number if self.call_size.mode == "once" and not self.large else 1

    def point(self) -> Point:
        """Returns the newest valid point; waits for calls that still run.

        The method changes nothing, so any thread may call it at any moment.
        """
        # The thread that watches signals calls this method while the main thread trains. Reading
        # `settled` once is enough: the assignment of a frozen value is atomic.
        newest = self.settled
        for call in (*self.waiting, *self.opened):
            if call.result is None:  # registered, but the dispatch raised or is under way
                break
            leaves, _, finite = call.result
            # the computation of several processes may wait for a process that has ended
            if not self.loop_hooks.group.is_computed(finite):
                break
            try:
                finite = bool(finite) or self._applies_nonfinite
            except Exception:  # the computation failed on the device: the arrays have no contents
                break
            if not finite:
                # A large run: the call donated the arrays of `newest`. The guarded step returned
                # the same numbers in new arrays, so only the leaves change.
                newest = dataclasses.replace(newest, leaves=leaves) if self.large else newest
                break
            newest = self._after(newest, call)
        # Arrays may be donated or deleted at any time (large runs, user code). The fallback is the
        # point of the last visit, whose arrays are a copy, and then the beginning of the epoch.
        if not newest.fresh:
            point = self._point(newest)
            if is_usable(point.run):
                return point
        return self.visit_point if is_usable(self.visit_point.run) else self.begin

    @property
    def _applies_nonfinite(self) -> bool:
        """Whether the training continues with the arrays that a non-finite step returned."""
        # With "skip", a large run's guarded step already returned the arrays from before the step.
        mode = self.trainer.on_nonfinite
        return mode == "ignore" or (mode == "skip" and self.large)

    def _after(self, before: Settled, call: Call) -> Settled:
        leaves, cursor, hooked = call.outcome[0], call.cursor, not self.loop_hooks.hooks
        return dataclasses.replace(
            before, leaves=leaves, done=call.done, cursor=cursor, hooked=hooked, fresh=False
        )

    def _point(self, settled: Settled, run: TrainState | None = None) -> Point:
        return dataclasses.replace(
            self.begin,
            run=settled.run() if run is None else run,
            stopping=settled.stopping,
            loader=settled.cursor[0],
            skip=settled.cursor[1],
            pending=not settled.hooked,
        )

    def dispatched(self) -> tuple[int, Any]:
        """Returns the number of batches whose calls are dispatched, and the results of these calls."""
        calls = [call for call in (*self.waiting, *self.opened) if call.result is not None]
        done = calls[-1].done if calls else self.settled.done
        return done, [call.outcome[2] for call in calls]

    def _floats(self) -> dict[str, Any]:
        # A training that resumes after the last batch of an epoch has no call and no logs. The run
        # holds the sums from which the logs are computed.
        logs = self.logs or step.compiled_logs(self.form, self.structure, self.leaves)
        return as_floats(self.names, logs)

    def _call_hooks(self) -> None:
        settled = self.settled
        # Callbacks may keep the run, and the next call of a large run donates the arrays.
        run = own_copy(settled.run()) if self.large else settled.run()
        new_run, stop = self.loop_hooks.visit(run, self._floats)
        structure, leaves = settled.structure, settled.leaves
        if new_run is not run:
            self.stacking = stacking_of(self.form, new_run)
            structure, leaves = split(stacked(self.stacking, new_run))
            leaves = self._owned_leaves(leaves)
            self.next_step = int(new_run.step) if self.large else 0
        self.structure, self.leaves = structure, leaves
        self.settled = dataclasses.replace(
            settled,
            structure=structure,
            leaves=leaves,
            outer=new_run,
            stacking=self.stacking,
            hooked=True,
            stopping=settled.stopping or stop,
            fresh=False,
        )
        self.visit_point = self._point(self.settled, new_run)
        self.loop_hooks.end_visit(self.visit_point)

    def _call(self, rows: tuple, number: int, repeated_call: Call | None = None) -> Call:
        if self.call_size.fresh:
            self.progress.compile_starts()
        before, batches = self.leaves, np.int32(number)
        arguments = (before, rows, batches)
        static = (self.form, self.structure, "loop")
        mode = self.call_size.choose(self.large, step.compiled_train, static, arguments)
        if mode != "loop":
            arguments = (before, rows, np.int32(0))
        if self.large and self.trainer.on_nonfinite == "skip":
            mode = "guarded"
        elif self.large and self.trainer.on_nonfinite == "raise":
            # The next step is dispatched before the result of this one is known. A skipped step
            # does not increase the run's step number, so the later steps see a number other than
            # the expected number and change nothing: the arrays remain those before the NaN.
            mode, arguments = "halting", (before, rows, np.int32(self.next_step))
            self.next_step += 1
        call_arguments = (self.form, self.structure, mode, *arguments)
        function = self.call_size.function(self.large, *call_arguments)
        call = self._open_call(rows, number) if repeated_call is None else repeated_call
        call.before = before
        # Registered before the dispatch: an exception during the dispatch then leaves a call
        # without a result, and `point` stops before it.
        self.opened.append(call)
        if self.large and self.loop_hooks.interrupts is not None:
            # Ctrl-C between the donation and the assignment would lose the runs before and after.
            with self.loop_hooks.interrupts.held():
                call.result = function(*call_arguments)
        else:
            call.result = function(*call_arguments)
        self.leaves = call.outcome[0]
        # The cursor of a repeated call stays: the loader has already passed the batches of the call.
        if repeated_call is None and self.epoch.is_at_state:
            self.cursor = call.cursor = (self.epoch.state(), 0)
        return call

    def _open_call(self, rows: tuple, number: int) -> Call:
        # If the loader raised or has been read further, its state after these batches is unknown:
        # count the batches from the last known state instead, and skip them when resuming.
        self.cursor = (self.cursor[0], self.cursor[1] + number)
        return Call((), rows, number, self.epoch.done, self.cursor)

    def _settle_waiting(self) -> None:
        if not self.waiting:
            return
        invalid = self._settle(self.waiting)
        self.waiting = []
        if invalid:
            # The later calls began from arrays that `_leave_out_steps` replaced: dispatch them again.
            calls, self.opened = self.opened, []
            for call in calls:
                self._call(call.rows, call.number, dataclasses.replace(call, result=None))

    def _settle(self, calls: list[Call]) -> bool:
        """Waits for calls; returns True if steps were left out, which invalidates later calls."""
        last, number = calls[-1], sum(call.number for call in calls)
        self.loop_hooks.group.wait(last.outcome[2])
        _, logs, last_finite = last.outcome
        # NaN and infinity never disappear from the weights or the sum of the loss, so the result of
        # the last call is valid for the group: one transfer of a boolean per group.
        finite = bool(last_finite) or self.trainer.on_nonfinite == "ignore"
        fresh = self.call_size.fresh
        self.call_size.measured(number)
        if fresh:
            self.progress.compiled()
        self.logs = logs
        if finite:
            self.settled = self._after(self.settled, last)
        else:
            self._leave_out_steps(calls)
        self.progress.step(last.done, self.epoch.feed.rows(last.done), self._floats)
        return not finite and not self.large

    def _leave_out_steps(self, calls: list[Call]) -> None:
        batches = [(call.rows, index) for call in calls for index in range(call.number)]
        settled, last = self.settled, calls[-1]
        if self.large:  # the call is one guarded step, which the device has already left out
            failed, leaves_before = (0,), self.leaves
            settled_after = self._after(settled, last)
        else:
            # The group only shows that a step has failed: repeat the steps one by one to find it.
            before = calls[0].before
            repetition = recovery.again(
                self.trainer, self.structure, before, batches, self.loop_hooks.group
            )
            self.leaves, self.logs = repetition.leaves, repetition.logs
            failed, leaves_before = repetition.wrong, repetition.first
            settled_after = dataclasses.replace(
                self._after(settled, last), leaves=repetition.leaves
            )
        first_batch = last.done - len(batches)
        self.left_out.extend(first_batch + number for number in failed)
        if failed and self.trainer.on_nonfinite == "raise":
            # `error.run` is the run before the first non-finite step, so that resuming and `find_nan`
            # compute exactly this step again.
            state, skip = settled.cursor
            self.waiting, self.opened = [], []
            self.settled = dataclasses.replace(
                settled,
                leaves=leaves_before,
                done=first_batch + failed[0],
                cursor=(state, skip + failed[0]),
                hooked=settled.hooked or failed[0] > 0,
                fresh=settled.fresh and failed[0] == 0,
            )
            batch = recovery.batch_of(*batches[failed[0]], self.loop_hooks.group)
            epoch = int(settled.outer.position[0])
            raise recovery.error(self.point().run, batch, epoch, first_batch + failed[0])
        self.settled = settled_after


def _bytes(leaf: Any) -> int:
    # `nbytes` of a JAX array takes ten times as long, and each call of `fit` sums over all leaves.
    return math.prod(leaf.shape) * leaf.dtype.itemsize
