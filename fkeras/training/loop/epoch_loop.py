"""Runs one epoch of training as calls of a compiled function, written into the journal.

The host prepares the next batches while the device computes the previous batches. The loop registers
a call before the dispatch, and settles the call after checking that its results are finite. The
journal therefore knows the newest valid run at any moment, including after an exception.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.engine import replace_weights
from fkeras.training import callbacks as hooks
from fkeras.training.data import array_feed
from fkeras.training.data.joint_feed import JointEpoch
from fkeras.training.data.stream_epoch import BatchEpoch
from fkeras.training.loop.batch_loops import CallSize, as_floats
from fkeras.training.loop.caching import check_unchanged
from fkeras.training.loop.journal import Call, Journal, Point
from fkeras.training.nonfinite import recovery
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.progress import Progress
from fkeras.training.records.state import TrainState, strong, without_arrays
from fkeras.training.step import objective, optimizer_state, outputs, sharding, step
from fkeras.training.step.blocks import FlatRun, flat
from fkeras.training.step.changes import changed_weights
from fkeras.training.step.donation import owned
from fkeras.training.step.masters import optimizer_of

# size in bytes of a run that trains by single steps on CPUs: XLA copies the arrays of a loop, which
# takes 9 % of a step for the 100 MB of a ResNet50 with 8 images (`benchmarks/convolutional.py`)
_COPIED = 64 << 20


class EpochLoop:
    """Trains one epoch as a sequence of device calls.

    Args:
        run: the state before the epoch.
        epoch: source of the batches.
        callbacks: the callbacks to call between device calls.
        journal: receives the calls; its newest point is the one at which the epoch begins or resumes.
    """

    def __init__(
        self,
        trainer: Trainer,
        run: TrainState,
        epoch: array_feed.Epoch | BatchEpoch | JointEpoch,
        call_size: CallSize,
        progress: Progress,
        callbacks: tuple[hooks.Callback, ...],
        journal: Journal,
    ):
        self.trainer, self.form = trainer, step.training_form(trainer)
        self.epoch, self.call_size, self.progress = epoch, call_size, progress
        # Callbacks without `on_batch_end` must not cost a synchronization per batch.
        self.callbacks = tuple(callback for callback in callbacks if callback._watches_batches)
        self.journal, self.group = journal, journal.group
        self.names = objective.log_names(outputs.heads(trainer, run.model), run.metrics)
        self.logs: Mapping[str, Any] = {}
        self.left_out: list[int] = []
        arrays = self._flat(run)
        # Repeating a call after a NaN needs the arrays before the call, and a guarded step takes longer:
        # only the calls of runs that take a large part of the device's memory overwrite the arrays.
        size = sum(map(_bytes, arrays.leaves))
        large = size > array_feed.device_bytes() // 16
        self.large = self.group.agree(large, "the size of the run")[0]
        copied = size > _COPIED and call_size.fixed is None and jax.default_backend() == "cpu"
        if self.large or copied:
            # Set before the first `take`: in mode "once" a call has one batch, so a large run never
            # has to repeat a part of a call.
            call_size.mode = "once"
        self._take(run, arrays)
        # Number of calls of the older of two groups: the loop waits for the older group, while the
        # calls of the newer group stay in the queue of the device.
        self.older = 0
        begin = journal.begin
        self.cursor = (begin.loader, begin.skip)
        point = dataclasses.replace(
            begin,
            base=self._base(run),
            arrays=self.arrays,
            done=epoch.done,
            pending=begin.pending and bool(self.callbacks),
            fresh=True,
        )
        # With "skip", the guarded step of a large run returns the arrays from before the step.
        mode = trainer.on_nonfinite
        keeps_nonfinite = mode == "ignore" or (mode == "skip" and self.large)
        journal.begin_epoch(point, run, self.large, keeps_nonfinite)
        self._continue_at(point)

    def _flat(self, run: TrainState) -> FlatRun:
        """Returns a run as arrays; checks that the cached features are those of its model."""
        cached = self.epoch.feed.cached
        check_unchanged(cached, run)
        return flat(self.form, run, None if cached is None else cached.cut)

    def _continue_at(self, point: Point) -> None:
        """Makes a point the base of the next calls, after which `on_batch_end` is due."""
        self.base = dataclasses.replace(point, pending=bool(self.callbacks))

    def _take(self, run: TrainState, arrays: FlatRun) -> None:
        """Makes the arrays of a run those of the next call."""
        # NumPy arrays stay as they are: the dispatch of a compiled step transfers them faster than
        # `device_put`, once. JAX arrays become strongly typed: a weak type would recompile.
        leaves = tuple(a if type(a) is np.ndarray else strong(a) for a in arrays.leaves)
        self.arrays = arrays._replace(leaves=leaves, fixed=tuple(map(strong, arrays.fixed)))
        # Callbacks and the caller may refer to the arrays.
        self.is_shared = True
        # Counted on the host: reading `run.step` from the device would wait for the last call.
        self.next_step = int(run.step) if self.large else 0

    def _base(self, run: TrainState) -> TrainState:
        """Returns a run for points with arrays; for a large run without arrays that a call overwrites."""
        if not self.large:
            return run
        base = without_arrays(run)
        if self.arrays.partial:  # the arrays lack the front of the model
            front = replace_weights(run.model, dict.fromkeys(changed_weights(run.model)))
            base = base.replace(model=front)
        return base

    def _own(self) -> tuple:
        """Returns the arrays of the next call, which overwrites them; copies those in other use."""
        self.journal.take_over(self.arrays)
        self.arrays = self.arrays._replace(leaves=owned(self.arrays.leaves))
        self.journal.take_over(self.arrays)
        self.base = dataclasses.replace(self.base, arrays=self.arrays)
        self.is_shared = False
        return self.arrays.leaves

    def train(self) -> dict[str, Any]:
        """Trains the epoch and returns the logs; the journal then has the end of the epoch."""
        self.call_size.start()
        if self.journal.settled.pending:
            # The training was resumed at a step whose `on_batch_end` had raised: call the hook again.
            self._call_hooks()
        remaining = self.journal.until_save(self.epoch.done)
        while True:
            number = self.journal.agreed_number(self.call_size.batches)
            chunk = self.epoch.take(number if remaining is None else min(number, remaining))
            if chunk is None:
                break
            # no name for the call: the results of a call belong to the next one alone
            done = self._call(*chunk).done
            remaining = None if remaining is None else remaining - chunk[1]
            pause = remaining == 0 or bool(self.callbacks) or self.journal.wants_visit()
            newer = len(self.journal.calls) - self.older
            if not pause and not self.call_size.fresh and newer < self._group_size():
                continue
            # Settle the previous group only: the newest group stays in the queue of the device, which
            # is not idle while the host waits.
            self._settle_older()
            # Hooks need the newest run, and the time of the first call includes the compilation: in
            # both cases also wait for the call that was just dispatched.
            if pause or self.call_size.fresh:
                self._settle_older()
            if pause:
                self._call_hooks()
                remaining = self.journal.until_save(done)
        # Twice, because settling the older group may repeat the calls of the newer group.
        self._settle_older()
        self._settle_older()
        return self._floats()

    def _group_size(self) -> int:
        """Returns the number of calls that the host waits for as one group."""
        # In mode "once" a call is a single step, and waiting for every call would take longer than a
        # small step. A group has as many calls as one call of mode "loop" has steps.
        return self.call_size.number if self.call_size.mode == "once" and not self.large else 1

    def _floats(self) -> dict[str, Any]:
        # A training that resumes after the last batch of an epoch has no call and no logs. The run
        # holds the sums from which the logs are computed.
        logs = self.logs or step.compiled_logs(self.form, *self.arrays[:3])
        return as_floats(self.names, logs)

    def _call_hooks(self) -> None:
        """Calls `on_batch_end` of the callbacks at the settled point, and records the visit."""
        settled = self.journal.settled
        run = new_run = settled.run
        self.is_shared = True
        stop = False
        if self.callbacks:
            new_run, stop = hooks.call(
                self.callbacks, "on_batch_end", run, int(run.step), self._floats(), group=self.group
            )
        if new_run is not run:
            # a callback may freeze layers, whose weights then need no optimizer state
            new_run = ready(self.trainer, new_run)
            self._take(new_run, self._flat(new_run))
        point = dataclasses.replace(
            settled,
            base=self._base(new_run),
            arrays=self.arrays,
            stopping=settled.stopping or stop,
            pending=False,
            fresh=False,
        )
        self._continue_at(point)
        visited = point if self.large else dataclasses.replace(point, arrays=None)
        self.journal.visit(point, visited)

    def _call(self, rows: tuple, number: int, repeated_call: Call | None = None) -> Call:
        if self.call_size.fresh:
            self.progress.compile_starts()
        structure, before, fixed = self.arrays[:3]
        steps = np.int32(number)
        static = (self.form, structure, "loop")
        arguments = (before, fixed, rows, steps)
        mode = self.call_size.choose(self.large, step.compiled_train.by_default, static, arguments)
        if mode != "loop":
            steps = np.int32(0)
        else:
            mode = self.call_size.length(number) or mode
        if self.large and self.trainer.on_nonfinite == "skip":
            mode = "guarded"
        elif self.large and self.trainer.on_nonfinite == "raise":
            # The next step is dispatched before the result of this one is known. A skipped step
            # does not increase the run's step number, so the later steps see a number other than
            # the expected number and change nothing: the arrays remain those before the NaN.
            mode, steps = "halting", np.int32(self.next_step)
            self.next_step += 1
        static = (self.form, structure, mode)
        function = self.call_size.function(self.large, *static, before, fixed, rows, steps)
        if self.is_shared and self.large and self.call_size.overwrites:
            before = self._own()
        call = self._open_call(rows, number) if repeated_call is None else repeated_call
        call.before = before
        self.journal.calls.append(call)
        if self.large:
            # Ctrl-C between the donation and the assignment would lose the runs before and after.
            with self.journal.interrupts.held():
                call.result = function(*static, before, fixed, rows, steps)
        else:
            call.result = function(*static, before, fixed, rows, steps)
        self.arrays = self.arrays._replace(leaves=call.outcome[0])
        # The cursor of a repeated call stays: the loader has already passed the batches of the call.
        if repeated_call is None and self.epoch.is_at_state:
            self.cursor = call.cursor = (self.epoch.state(), 0)
        return call

    def _open_call(self, rows: tuple, number: int) -> Call:
        # If the loader raised or has been read further, its state after these batches is unknown:
        # count the batches from the last known state instead, and skip them when resuming.
        self.cursor = (self.cursor[0], self.cursor[1] + number)
        return Call(self.base, (), rows, number, self.epoch.done, self.cursor)

    def _settle_older(self) -> None:
        """Settles the calls of the older group; the newer group becomes the older one."""
        calls = self.journal.calls[: self.older]
        if calls and self._settle(calls):
            # The later calls began from arrays that `_leave_out_steps` replaced: dispatch them again.
            for call in self.journal.retract():
                self._call(call.rows, call.number, dataclasses.replace(call, result=None))
        self.older = len(self.journal.calls)

    def _settle(self, calls: list[Call]) -> bool:
        """Waits for calls; returns True if steps were left out, which invalidates later calls."""
        last, number = calls[-1], sum(call.number for call in calls)
        self.group.wait(last.outcome[2])
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
            self.journal.settle(last.point(), len(calls))
        else:
            self._leave_out_steps(calls)
        self.progress.step(last.done, self.epoch.feed.rows(last.done), self._floats)
        return not finite and not self.large

    def _leave_out_steps(self, calls: list[Call]) -> None:
        batches = [(call.rows, index) for call in calls for index in range(call.number)]
        last, structure = calls[-1], self.arrays.structure
        if self.large:  # the call is one guarded step, which the device has already left out
            failed, leaves_before, after = (0,), self.arrays.leaves, last.point()
        else:
            # The group only shows that a step has failed: repeat the steps one by one to find it.
            before = calls[0].before, self.arrays.fixed
            repetition = recovery.again(self.trainer, structure, *before, batches, self.group)
            self.arrays = self.arrays._replace(leaves=repetition.leaves)
            self.logs = repetition.logs
            failed, leaves_before = repetition.wrong, repetition.first
            after = last.point(repetition.leaves)
        first_batch = last.done - len(batches)
        self.left_out.extend(first_batch + number for number in failed)
        if failed and self.trainer.on_nonfinite == "raise":
            # `error.run` is the run before the first non-finite step, so that resuming and `find_nan`
            # compute exactly this step again.
            settled = self.journal.settled
            self.journal.retract()
            stopped = dataclasses.replace(
                settled,
                arrays=self.arrays._replace(leaves=leaves_before),
                done=first_batch + failed[0],
                skip=settled.skip + failed[0],
                pending=settled.pending and failed[0] == 0,
                fresh=settled.fresh and failed[0] == 0,
            )
            self.journal.settle(stopped, 0)
            place = first_batch + failed[0]
            if isinstance(self.epoch, array_feed.Epoch) and self.epoch.feed.cached is not None:
                batch = self.epoch.inputs_of(place)
            else:
                batch = recovery.batch_of(*batches[failed[0]], self.group)
            epoch = int(settled.base.position[0])
            raise recovery.error(self.journal.newest().run, batch, epoch, place)
        self.journal.settle(after, len(calls))


def ready(trainer: Trainer, run: TrainState) -> TrainState:
    """Returns the run with an optimizer state for its trainable weights, placed on the mesh."""
    opt_state = optimizer_state.follow(optimizer_of(trainer), run.opt_state, run.model)
    return sharding.place(trainer, run.replace(opt_state=opt_state))


def _bytes(leaf: jax.Array | np.ndarray) -> int:
    # `nbytes` of a JAX array takes ten times as long, and each call of `fit` sums over all leaves.
    return math.prod(leaf.shape) * leaf.dtype.itemsize
