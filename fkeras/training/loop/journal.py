"""The journal of a training: the newest point from which the training continues exactly.

The loop writes each device call and each finished epoch into the journal. Exceptions, signals and
checkpoints ask the journal for the newest point, at any moment.

All hooks of one event belong to the step or epoch of the event: if one hook raises, the newest point is
the point before the event, and a resumed training calls all hooks of the event again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.engine.messages.errors import add_note
from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.service import ProcessError
from fkeras.training.loop.interrupts import Interrupted, Interrupts
from fkeras.training.records.annotations import Saver
from fkeras.training.records.state import TrainState, without_arrays
from fkeras.training.step.blocks import FlatRun


@dataclasses.dataclass(frozen=True)
class Point:
    """State from which a training continues exactly.

    Attributes:
        base: the run; in an epoch, the run whose memory and epoch number the point has.
        finished: number of epochs that this call of `fit` finished.
        stopped: whether a callback ended the training.
        stopping: whether a callback asked to end the training after the current epoch.
        loader: the state of the data source, if the source has a state.
        skip: number of batches of the source from that state to the position.
        pending: whether `on_batch_end` of the last step is still due.
        done: in an epoch, number of its finished batches.
        arrays: in an epoch, the arrays of the run; None if `base` has them.
        fresh: whether the point is the beginning of an epoch: no call settled, no hook called.
    """

    base: TrainState
    finished: int = 0
    stopped: bool = False
    stopping: bool = False
    loader: Any = None
    skip: int = 0
    pending: bool = False
    done: int = 0
    arrays: FlatRun | None = None
    fresh: bool = False

    @functools.cached_property
    def run(self) -> TrainState:
        """The run, with its position."""
        if self.arrays is None:
            return self.base
        return self.arrays.joined(self.base.replace(position=self._position))

    @property
    def _position(self) -> np.ndarray:
        if self.arrays is None:
            return np.asarray(self.base.position)
        return np.asarray([self.base.position[0], self.done], "int32")

    @property
    def is_usable(self) -> bool:
        """Whether no array of the run was overwritten or deleted."""
        return is_usable(self.base if self.arrays is None else self.arrays[1:3])

    @property
    def order(self) -> tuple[int, int, bool]:
        """Sort key for the points of one training: later points are larger."""
        epoch, batch = map(int, self._position)
        return epoch, batch, not self.pending


@dataclasses.dataclass
class Call:
    """Device call of a compiled function; the call may still be running.

    Attributes:
        base: a point at which the callbacks of the calls before were called.
        before: arrays of the run before the call; donated for large runs.
        rows: the rows, in the form that `step.batch_at` reads.
        number: number of batches in the call.
        done: number of batches of the epoch that are done after the call.
        cursor: position in the data source after the call: `(state, skip)`, the loader's state and the
            number of batches to skip from this state.
        result: `(leaves, logs, finite)`, or None before the dispatch.
    """

    base: Point
    before: tuple
    rows: tuple
    number: int
    done: int
    cursor: tuple[Any, int]
    result: tuple[tuple, dict[str, Any], jax.Array] | None = None

    @property
    def outcome(self) -> tuple[tuple, dict[str, Any], jax.Array]:
        """Result of a dispatched call."""
        assert self.result is not None
        return self.result

    def point(self, leaves: tuple | None = None) -> Point:
        """Returns the point after the call, with its results or with other arrays."""
        assert self.base.arrays is not None
        arrays = self.base.arrays._replace(leaves=self.outcome[0] if leaves is None else leaves)
        state, skip = self.cursor
        return dataclasses.replace(
            self.base, arrays=arrays, done=self.done, loader=state, skip=skip, fresh=False
        )


class _Hooked:
    """Undoes the hooks at the beginning of an epoch, as they are called again after an exception.

    Args:
        before: the point before the hooks.
        run: the run after the hooks.
    """

    def __init__(self, before: Point, run: TrainState):
        (old, self.structure), (new, structure) = map(
            jax.tree.flatten, map(_bare, (before.run, run))
        )
        is_same = self.structure == structure
        pairs = zip(old, new, strict=True) if is_same else [(leaf, None) for leaf in old]
        self.replaced = [None if a is b else a for a, b in pairs]
        self.position, self.memory = before.run.position, before.run.memory
        self.point = dataclasses.replace(before, base=without_arrays(run))

    def undone(self, point: Point) -> Point:
        """Returns the point before the hooks; the other arrays are those of a point after them."""
        new = jax.tree.leaves(_bare(point.run))
        if len(new) == len(self.replaced):
            new = [b if a is None else a for a, b in zip(self.replaced, new, strict=True)]
        else:
            new = self.replaced
        run = self.structure.unflatten(new)
        run = run.replace(metrics=point.run.metrics, position=self.position, memory=self.memory)
        return dataclasses.replace(self.point, base=run, fresh=True)


def _bare(run: TrainState) -> TrainState:
    return run.replace(metrics={}, position=None, memory={})


# A dataclass: its constructor has no statement at which an interrupt could lose the run.
@dataclasses.dataclass(eq=False)
class Journal:
    """The newest point of a training, its logs, and the saves and signals that depend on the point.

    Args:
        received: the run that `fit` received.
        settled: the newest point whose arrays are known to be valid.
        visited: the newest point whose arrays no call donates.
        begin: the point before the current epoch.
        interrupts: the signals of the training.
        group: the processes that train together.
        saver: writes checkpoints; None without.
        final: the run after the last step, which hooks at the end of the training may change.
    """

    received: Any
    settled: Point
    visited: Point
    begin: Point
    interrupts: Interrupts
    group: Alone = ALONE
    saver: Saver | None = None
    final: TrainState | None = None
    # Calls in the order of their dispatch, the first after `settled`. A call is registered before the
    # dispatch: an exception during the dispatch then leaves a call without a result.
    calls: list[Call] = dataclasses.field(default_factory=list)
    _donates: bool = False
    _keeps_nonfinite: bool = False
    # While no step was taken and no callback changed the run, exceptions carry the very object that
    # `fit` received, not a copy that was placed on devices.
    _untouched: Point | None = None
    # in the first epoch of calls that overwrite arrays: whether nothing had changed the run before
    _is_first: bool = False
    _hooked: _Hooked | None = None
    _history: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    _epochs: list[int] = dataclasses.field(default_factory=list)
    _finished: list[tuple[int, Mapping[str, Any]]] = dataclasses.field(default_factory=list)
    # signal and elapsed interval that the processes of a group have agreed on
    _agreed: tuple[int | None, bool] = (None, False)

    # The newest point

    def newest(self) -> Point:
        """Returns the newest valid point; waits for calls that still run.

        The method changes nothing, so any thread may call it at any moment.
        """
        # The thread that watches signals calls this method while the main thread trains. Reading
        # `settled` once is enough: the assignment of a frozen value is atomic.
        newest = self.settled
        for call in tuple(self.calls):
            if call.result is None:  # the dispatch raised or is under way
                break
            leaves, _, finite = call.result
            # the computation of several processes may wait for a process that has ended
            if not self.group.is_computed(finite):
                break
            try:
                # explicit: another thread may call, in which JAX_TRANSFER_GUARD holds
                valid = bool(jax.device_get(finite)) or self._keeps_nonfinite
            except Exception:  # the computation failed on the device: the arrays have no contents
                break
            if not valid:
                # The call donated the arrays of `newest`. The guarded step returned the same numbers
                # in new arrays, so only the arrays change.
                if self._donates and newest.arrays is not None:
                    arrays = newest.arrays._replace(leaves=leaves)
                    newest = dataclasses.replace(newest, arrays=arrays)
                break
            newest = call.point()
        if newest.fresh and self._donates and self._hooked is not None and newest.is_usable:
            return self._hooked.undone(newest)
        # Arrays may be donated or deleted at any time (large runs, user code).
        for point in (self.visited,) if newest.fresh else (newest, self.visited):
            if point.is_usable:
                return point
        return self.begin

    def run(self) -> TrainState:
        """Returns the newest run with usable arrays; before the first step, the run given to `fit`.

        A run is not usable if a call donated its arrays.
        """
        if self.final is not None and is_usable(self.final):
            return self.final
        point = self.newest()
        is_received = point is self._untouched or (point.fresh and self._is_first)
        is_received = is_received or not point.is_usable
        return self.received if is_received else point.run

    def dispatched(self) -> tuple[int, list[jax.Array]]:
        """Returns the number of batches whose calls are dispatched, and the results of these calls."""
        calls = [call for call in self.calls if call.result is not None]
        done = calls[-1].done if calls else self.settled.done
        return done, [call.outcome[2] for call in calls]

    def history(self, point: Point) -> tuple[dict[str, list[Any]], list[int]]:
        """Returns `(history, epochs)` up to a point: logs by name, and the epochs' numbers."""
        history = {name: list(values) for name, values in self._history.items()}
        epochs = list(self._epochs)
        for epoch, logs in self._finished[: point.finished]:
            epochs.append(epoch)
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
        return history, epochs

    # Events of the training, in their order

    def stand(self, point: Point) -> None:
        """Makes a point outside of device calls the newest point."""
        self.settled = point
        self.visited = point
        self.begin = point

    def start(self, point: Point, changed: bool) -> None:
        """Makes the point before the first step the newest point.

        Args:
            changed: whether a callback changed the run.
        """
        self._untouched = None if changed else point
        self.stand(point)

    def restore(self, point: Point, history: Mapping[str, list[Any]], epochs: list[int]) -> None:
        """Makes the point of a checkpoint the newest point, with its history."""
        self._history, self._epochs = dict(history), list(epochs)
        self.stand(point)

    def begin_epoch(
        self, point: Point, run: TrainState, donates: bool, keeps_nonfinite: bool
    ) -> None:
        """Begins the device calls of an epoch.

        Args:
            run: the run of the point, after the hooks of the epoch's beginning.
            donates: whether a call donates the arrays of the call before.
            keeps_nonfinite: whether the training continues with the arrays of a non-finite step.
        """
        if self.saver is not None:
            self.saver.begin(run)
        self._donates, self._keeps_nonfinite = donates, keeps_nonfinite
        if not donates:
            self.settled = point
            return
        # The calls overwrite the arrays of the point before the hooks, too: only the arrays that the
        # hooks have replaced are kept.
        self._hooked = _Hooked(self.begin, run)
        self._is_first = self.begin is self._untouched
        self.stand(point)

    def take_over(self, arrays: FlatRun) -> None:
        """Makes arrays those of all points, which then refer to no others; calls may overwrite them."""
        self.stand(dataclasses.replace(self.settled, arrays=arrays))

    def settle(self, point: Point, number: int) -> None:
        """Makes the valid result of the first `number` calls the settled point."""
        self.settled = point
        del self.calls[:number]

    def retract(self) -> list[Call]:
        """Removes and returns the calls after the settled point, whose results are not valid."""
        calls, self.calls = self.calls, []
        return calls

    def agreed_number(self, number: int) -> int:
        """Returns the number of batches of the next call; all processes receive the same number."""
        if self.group.count == 1:
            return number
        self._agree()
        return self.group.agree(number, "the batches of a call")[0]

    def until_save(self, done: int) -> int | None:
        """Returns the number of batches from batch `done` to the next save by step count, or None."""
        return None if self.saver is None else self.saver.until(done)

    def wants_visit(self) -> bool:
        """Returns whether a save or a signal is due between two calls."""
        if self.group.count > 1:  # the processes have agreed on this before the call
            signal_number, late = self._agreed
            return self.saver is not None and (signal_number is not None or late)
        return self.interrupts.wanted() or (self.saver is not None and self.saver.late())

    def visit(self, settled: Point, visited: Point) -> None:
        """Records that the hooks between two calls have ended; saves if due, raises after a signal.

        Args:
            settled: the point with the arrays that the next call takes.
            visited: the point with the arrays that the hooks received.
        """
        self.settled = settled
        self.visited = visited
        self.interrupts.deliver()
        if self.saver is not None:
            self._leave(visited)
            if self._is_late(self.saver) or self.saver.is_due(int(visited.run.step)):
                self._save(visited)

    def end_epoch(self, point: Point, epoch: int, logs: Mapping[str, Any]) -> None:
        """Makes the point after an epoch the newest point, and saves if due."""
        # The logs are recorded before the point: `history(point)` reads `point.finished` entries.
        del self._finished[point.finished - 1 :]
        self._finished.append((epoch, logs))
        self.stand(point)
        # Delivered here, where the newest point includes the epoch, its logs and its hooks.
        self.interrupts.deliver()
        if self.saver is not None:
            self.leave_after_signal(point)
            is_best = self.saver.is_better(logs)
            if is_best or self.saver.saves_epochs or self._is_late(self.saver):
                self._save(point, is_best)

    def leave_after_signal(self, point: Point) -> None:
        """Saves the run and raises `Interrupted` if a signal arrived in any process."""
        self._agree()
        self._leave(point)

    def end(self, point: Point) -> None:
        """Saves the end of the training, and waits until all files are written."""
        if self.saver is not None:
            self.saver.wait()
            self._save_newer(point)
            self.saver.wait()

    # Signals and failures

    def _agree(self) -> None:
        """Lets all processes of a group agree on a signal, and on a save that is due.

        A signal that one process receives then ends the training in all processes, at the same step.
        """
        if self.saver is not None and self.group.count > 1:
            own = [self.interrupts.received, self.saver.late()]
            signals, due = zip(*self.group.agree(own, "signals and intervals"), strict=True)
            received = next((number for number in signals if number is not None), None)
            self._agreed = received, any(due)

    def _is_late(self, saver: Saver) -> bool:
        return saver.late() if self.group.count == 1 else self._agreed[1]

    def _leave(self, point: Point) -> None:
        assert self.saver is not None
        alone = self.group.count == 1
        number = self.interrupts.received if alone else self._agreed[0]
        if number is not None:
            self._save_newer(point)
            self.saver.wait()  # the process may end right after the exception
            raise Interrupted(
                f"Trainer.fit: ended by signal {number} after step {int(point.run.step)}, saved in "
                f"{self.saver.folder}. The same call resumes from there.",
                point.run,
                number,
            )

    def rescue(self, error: BaseException) -> None:
        """Saves the newest finished step before an exception leaves; adds a note on failure."""
        assert self.saver is not None
        self.interrupts.hold()  # a second Ctrl-C would interrupt the save
        self.group.report_failure(error)  # the other processes then come here, too
        group = self.group.channel("rescue")
        try:
            self.saver.wait()
        except Exception:  # an earlier save failed in the background: its point is not on disk
            self.saver.saved = None
        try:
            self._require_same_step(group)
            self._save_newer(self.newest(), group)
            self.saver.wait()
        except BaseException as failure:  # never hide the exception that ends the training
            add_note(
                error,
                f"Trainer.fit: the last step could not be saved in {self.saver.folder}: "
                f"{type(failure).__name__}: {failure}",
            )

    def _require_same_step(self, group: Alone) -> None:
        """Raises a `ProcessError` if the processes of a group cannot save the same step together."""
        if group.count == 1:
            return
        # No process has dispatched a call that another has not: all results will be there.
        own, results = self.dispatched()
        dispatched = group.agree(own, "the last batch")
        if len(set(dispatched)) > 1:
            raise ProcessError(f"the processes had computed different batches: {dispatched}")
        group.wait(results)
        orders = group.agree(list(self.newest().order), "the last step")
        if any(order != orders[0] for order in orders):
            raise ProcessError(f"the processes are at different steps: {orders}")

    def save_newest(self) -> str:
        """Saves the newest finished step, waits for the files, and returns the folder.

        The thread that watches signals calls this method while the main thread is blocked.
        """
        assert self.saver is not None
        self.saver.wait()
        self._save_newer(self.newest())
        self.saver.wait()
        return str(self.saver.folder)

    def _save_newer(self, point: Point, group: Alone | None = None) -> None:
        assert self.saver is not None
        is_newer = self.saver.saved is None or point.order > self.saver.saved
        if is_newer and point.is_usable:
            self._save(point, group=group)

    def _save(self, point: Point, best: bool = False, group: Alone | None = None) -> None:
        assert self.saver is not None
        self.saver.save(point, *self.history(point), best=best, group=group or self.group)


def is_usable(tree: object) -> bool:
    """Returns whether no array of a tree was donated or deleted."""
    return not any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree.leaves(tree))
