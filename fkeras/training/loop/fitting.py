"""Runs the epochs of `Trainer.fit` on prepared feeds, with callbacks, validation and checkpoints."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fkeras.host.processes.alone import ALONE, Alone
from fkeras.optimizers.updates.rates import learning_rate
from fkeras.training import callbacks as hooks
from fkeras.training.checkpoint import Checkpoint, open_store
from fkeras.training.data.array_feed import Feed
from fkeras.training.data.stream_feed import Batches
from fkeras.training.inputs import arguments
from fkeras.training.loop.agreement import compare_call, settings_of
from fkeras.training.loop.batch_loops import CallSize, evaluate
from fkeras.training.loop.caching import check_unchanged, with_features
from fkeras.training.loop.epoch_loop import EpochLoop, ready
from fkeras.training.loop.journal import Journal, Point
from fkeras.training.loop.saver import RestoredTraining, Saver
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.history import History
from fkeras.training.records.progress import Progress
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, optimizer_state, outputs, sharding
from fkeras.training.step.donation import moved
from fkeras.training.step.masters import optimizer_of


@dataclasses.dataclass(frozen=True)
class Options:
    """Arguments of `Trainer.fit`, converted; `Trainer.fit` documents them."""

    epochs: int
    initial_epoch: int
    batch_size: int
    shuffle: bool
    steps_per_epoch: int | None
    validation_steps: int | None
    validation_batch_size: int | None
    validation_freq: int
    validation_split: float
    steps_per_execution: int | None
    verbose: int | str
    checkpoint: str | os.PathLike[str] | Checkpoint | None
    workers: int = 0

    @property
    def validations(self) -> int:
        """Number of validations, if there is validation data."""
        return self.epochs // self.validation_freq - self.initial_epoch // self.validation_freq

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "checkpoint":
                value = arguments.convert("fit", field.name, getattr(self, field.name))
                object.__setattr__(self, field.name, value)


def fit(
    trainer: Trainer,
    run: TrainState,
    feed: Feed | Batches,
    held: Feed | Batches | None,
    callbacks: tuple[hooks.Callback, ...],
    options: Options,
    journal: Journal,
    group: Alone = ALONE,
    donate: bool = False,
) -> tuple[TrainState, History]:
    """Trains for some epochs; resumes from a checkpoint if the folder has one.

    Args:
        run: the run to begin with.
        held: the batches of the validation data, or None.
        donate: whether the training takes the memory of the run's arrays; otherwise the run stays.

    Returns:
        `(run, history)` after the last epoch.
    """
    journal.group = group
    training = _Training(trainer, feed, held, callbacks, options, journal, group)
    _check_logs(trainer, run, held, callbacks)
    feeds = {"data": feed, "validation_data": held}
    compare_call(group, trainer, run, feeds, **settings_of(options, callbacks))
    if options.checkpoint is None:
        training.begin(run, donate)
        del run  # only the journal refers to the run, whose arrays the calls may overwrite
        return training.on_features(journal.newest().run).epochs()
    with open_store(options.checkpoint, group) as store:
        # `on_train_begin` may change the model, and the fingerprint of the checkpoint is that of
        # the changed model: `begin` comes before the saver compares fingerprints.
        training.begin(run, donate)
        del run
        saver = Saver(store, trainer, journal.newest().run, feed, options.shuffle, group)
        restored = saver.restore(journal.newest().run)
        if restored is not None:
            training.resume(restored)
            del restored
        training = training.on_features(journal.newest().run)
        journal.saver = saver
        # one process cannot save the shards of the others from a second thread
        save_newest = journal.save_newest if group.count == 1 else None
        with journal.interrupts.armed(save_newest):
            try:
                fitted = training.epochs()
                # A signal may arrive after the last visit of the loop.
                journal.leave_after_signal(journal.newest())
                return fitted
            except BaseException as error:  # KeyboardInterrupt and SystemExit are saved too
                journal.rescue(error)
                raise


@dataclasses.dataclass(frozen=True)
class _Training:
    """The arguments of one call of `fit`, and the loop over its epochs."""

    trainer: Trainer
    feed: Feed | Batches
    held: Feed | Batches | None
    callbacks: tuple[hooks.Callback, ...]
    options: Options
    journal: Journal
    group: Alone

    def epochs(self) -> tuple[TrainState, History]:
        """Trains from the newest point of the journal to the last epoch."""
        options, journal, steps = self.options, self.journal, self.feed.steps
        progress = Progress(options.verbose if self.group.leads else 0, options.epochs, steps)
        call_size, test_call_size = CallSize(options.steps_per_execution), CallSize()
        first, batches = int(journal.newest().run.position[0]), 0
        for epoch in range(first, options.epochs):
            if journal.newest().stopped:
                break
            progress.start(epoch)
            batches = self._epoch(epoch, call_size, test_call_size, progress)
        # The last checkpoint holds the weights before `finalized`: a later call with more epochs must
        # continue from the trained weights, not from their average.
        point = journal.newest()
        journal.end(point)
        run = journal.final = optimizer_state.finalized(optimizer_of(self.trainer), point.run)
        run, _ = self._call("on_train_end", run)
        journal.final = run
        history = History(*journal.history(point), self._params(batches))
        # A signal from here on is raised at the end of `Rescue`, with the run that `fit` returns.
        journal.interrupts.hold()
        return run, history

    # A method: its local names are gone before the calls of the next epoch overwrite the run.
    def _epoch(
        self, epoch: int, call_size: CallSize, test_call_size: CallSize, progress: Progress
    ) -> int:
        """Trains and validates one epoch; returns its number of batches."""
        feed, journal = self.feed, self.journal
        loop = self._begin_epoch(epoch, call_size, progress)
        logs = loop.train()
        # If validation or `on_epoch_end` raises, the newest point is before all of them: a
        # resumed training repeats the validation and calls all hooks of the epoch's end again.
        point, batches = journal.newest(), loop.epoch.done
        journal.stand(point)
        progress.stop()
        if self.group.leads:
            _warn_left_out(loop.left_out, epoch)
        run = point.run.replace(position=np.asarray([epoch + 1, 0], "int32"))
        logs |= self._validate(run, epoch, test_call_size)
        if any(callback.sets_learning_rate for callback in self.callbacks):
            logs["learning_rate"] = float(learning_rate(run.opt_state))
        progress.end(logs, feed.rows(batches), batches)
        run, stop = self._call("on_epoch_end", run, epoch, logs)
        # With a fixed number of steps the next epoch continues the same pass over the source.
        same_pass = feed.steps is not None
        point = Point(
            run,
            finished=point.finished + 1,
            stopped=stop or point.stopping,
            loader=point.loader if same_pass else None,
            skip=point.skip if same_pass else 0,
        )
        journal.end_epoch(point, epoch, logs)
        return batches

    def begin(self, run: TrainState, donate: bool) -> None:
        """Calls `on_train_begin`; the resulting run becomes the newest point."""
        if donate:
            with self.journal.interrupts.held():
                run = moved(run)
                self.journal.start(Point(run), True)
        run_of_fit = run
        run, stop = self._call("on_train_begin", run)
        changed = run is not run_of_fit
        # `fit` passes empty sums
        sums = objective.emptied(self.trainer, run) if changed else run.metrics
        run = ready(self.trainer, run).replace(metrics=sums)
        # A NumPy array: `position` never enters a compiled step, and reading it must not wait.
        run = run.replace(position=np.asarray([self.options.initial_epoch, 0], "int32"))
        # a donated run has no arrays any more, so that exceptions cannot carry it
        self.journal.start(Point(run, stopped=stop), changed or donate)

    def resume(self, restored: RestoredTraining) -> None:
        """Makes a restored checkpoint the newest point, and moves the feeds to its position."""
        options = self.options
        run = sharding.place(self.trainer, restored.point.run)
        point = dataclasses.replace(restored.point, base=run)
        self.journal.restore(point, restored.history, restored.epochs)
        epoch, begin = map(int, point.run.position)
        epochs_done = epoch - options.initial_epoch
        # With `steps_per_epoch`, epochs share one pass over the source: count the batches of all of
        # them. Without, each epoch begins a new pass, and only the batches of this epoch count.
        batches = begin + epochs_done * (options.steps_per_epoch or 0)
        step = int(point.run.step) - begin
        self.feed.go_on(point.loader, batches, point.skip, restored.rows, step)

    def on_features(self, run: TrainState) -> _Training:
        """Returns the training on the features of a frozen part, with `Trainer(cache_frozen=...)`."""
        if not self.trainer.cache_frozen:
            return self
        feed, held = with_features(self.trainer, run, self.feed, self.held)
        return dataclasses.replace(self, feed=feed, held=held)

    def _begin_epoch(self, epoch: int, call_size: CallSize, progress: Progress) -> EpochLoop:
        """Calls `on_epoch_begin`, unless the epoch is resumed, and returns the loop of the epoch."""
        point = self.journal.newest()
        run, begin = point.run, int(point.run.position[1])
        if begin == 0:  # otherwise the epoch was resumed in its middle: its sums and hooks count
            run, _ = self._call("on_epoch_begin", run, epoch)
            run = run if run is point.run else ready(self.trainer, run)
            # NumPy arrays, shared by all epochs: a step donates only copies
            run = run.replace(metrics=self.feed.sums)
            run = run.replace(position=np.asarray([epoch, 0], "int32"))
        # The order of an epoch is a function of the run's key and of the step at which the epoch
        # began, so that a resumed epoch continues the same permutation.
        order = run if self.options.shuffle else None
        batches = self.feed.epoch(order, int(run.step) - begin, begin)
        return EpochLoop(
            self.trainer, run, batches, call_size, progress, self.callbacks, self.journal
        )

    def _validate(self, run: TrainState, epoch: int, call_size: CallSize) -> dict[str, Any]:
        """Returns the logs of the validation after an epoch; none if no validation is due."""
        if self.held is None or (epoch + 1) % self.options.validation_freq:
            return {}
        run, _ = self._call("on_test_begin", run)
        check_unchanged(self.held.cached, run)
        logs, _ = evaluate(
            self.trainer, run, self.held.sums, self.held, call_size=call_size, group=self.group
        )
        return {f"val_{name}": value for name, value in logs.items()}

    def _call(self, hook: str, run: TrainState, *values: Any) -> tuple[TrainState, bool]:
        return hooks.call(self.callbacks, hook, run, *values, group=self.group)

    def _params(self, batches: int) -> dict[str, Any]:
        """Returns the entry `params` of the history, after an epoch of some batches."""
        feed = self.feed
        return {
            "epochs": self.options.epochs,
            "steps": batches if feed.steps is None else feed.steps,
            "batch_size": feed.rows(1),
            "samples": feed.rows(batches if feed.steps is None else feed.steps),
        }


def _check_logs(
    trainer: Trainer,
    run: TrainState,
    held: Feed | Batches | None,
    callbacks: Sequence[hooks.Callback],
) -> None:
    heads = outputs.heads(trainer, run.model)
    # A callback that monitors an unknown log fails here, not after the first epoch.
    names = objective.log_names(heads, run.metrics)
    held_names = () if held is None else objective.log_names(heads, held.sums)
    hooks.check_logs(callbacks, (*names, *(f"val_{name}" for name in held_names)))


def _warn_left_out(left_out: list[int], epoch: int) -> None:
    if left_out:
        shown = ", ".join(str(number + 1) for number in left_out[:5])
        warnings.warn(
            f"Trainer.fit, epoch {epoch + 1}: {len(left_out)} steps returned nan or infinity and "
            f"were skipped (batch {shown}{', ...' if len(left_out) > 5 else ''}). Find the cause "
            "with fk.find_nan.",
            stacklevel=4,
        )
