"""The epochs of a training: what `Trainer.fit` does once its data are feeds."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from fkeras.training import callbacks as hooks
from fkeras.training import checks, objective, optimizer_state, sharding
from fkeras.training.checkpoint import open_store
from fkeras.training.history import History
from fkeras.training.interrupts import interrupted
from fkeras.training.loops import EpochLoop, Pace, Visits, evaluate
from fkeras.training.progress import Progress
from fkeras.training.resuming import Progressed, Saver, as_checkpoint
from fkeras.training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Options:
    """The numbers that `fit` was called with; see there."""

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
    verbose: Any
    checkpoint: Any

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "validation_freq"):
            checks.check_size(name, getattr(self, name))
        for name in (
            "steps_per_epoch",
            "validation_steps",
            "validation_batch_size",
            "steps_per_execution",
        ):
            if getattr(self, name) is not None:
                checks.check_size(name, getattr(self, name))
        if self.initial_epoch:
            checks.check_size("initial_epoch", self.initial_epoch)


class _Between(Visits):
    """What happens between two calls of the device: callbacks look, the run is saved."""

    def __init__(self, callbacks: tuple, saver: Saver | None):
        self.callbacks = tuple(one for one in callbacks if one.watches_batches)
        self.saver, self.stop = saver, False

    def until(self, done: int) -> int | None:
        return None if self.saver is None else self.saver.until(done)

    def wanted(self) -> bool:
        return bool(self.callbacks) or (self.saver is not None and self.saver.wanted())

    def look(self, run: TrainState, done: int, logs: Any, state: Any) -> tuple[TrainState, bool]:
        if self.callbacks:
            run, stop = hooks.call(self.callbacks, "on_batch_end", run, int(run.step), logs())
            self.stop = self.stop or stop
        if self.saver is not None:
            self.saver.look(run, done, logs, state)
        return run, False


def fit(
    trainer: Any, run: TrainState, feed: Any, held: Any, callbacks: tuple, options: Options
) -> tuple[TrainState, History]:
    """`(run, history)` after the epochs of a training; a saved one goes on where it was left.

    Args:
        trainer: the trainer.
        run: the run to begin with, which stays as it is.
        feed: the batches of an epoch.
        held: those of a validation, or None.
        callbacks: the callbacks.
        options: what `fit` was called with.
    """
    _check_logs(trainer, run, held, callbacks)
    if options.checkpoint is None:
        run, progressed = _begun(trainer, run, callbacks, options)
        return _epochs(trainer, run, feed, held, callbacks, options, progressed, None)
    plan = as_checkpoint(options.checkpoint)
    with open_store(plan) as store:
        run, progressed = _begun(trainer, run, callbacks, options)
        saver = Saver(store, plan, trainer, run, feed, options.shuffle, progressed)
        found = saver.restore(run)
        if found is not None:
            run = sharding.place(trainer, found)
            epoch, begin = map(int, run.position)
            epochs_done = epoch - options.initial_epoch
            feed.go_on(progressed.loader, begin + epochs_done * (options.steps_per_epoch or 0))
        with saver.interrupts:
            try:
                return _epochs(trainer, run, feed, held, callbacks, options, progressed, saver)
            except Exception as error:
                saver.rescue(error)
                raise


def _begun(
    trainer: Any, run: TrainState, callbacks: tuple, options: Options
) -> tuple[TrainState, Progressed]:
    run, stop = hooks.call(callbacks, "on_train_begin", run)
    run = ready(trainer, run).replace(metrics=objective.empty(trainer, run.model))
    place = np.asarray([options.initial_epoch, 0], "int32")
    return run.replace(position=place), Progressed({}, [], stop)


def _check_logs(trainer: Any, run: TrainState, held: Any, callbacks: tuple) -> None:
    empty = objective.empty(trainer, run.model)
    names = objective.log_names(objective.heads(trainer, run.model), empty)
    later = tuple(f"val_{name}" for name in names if held is not None)
    hooks.check_logs(callbacks, (*names, *later))


def _epochs(
    trainer: Any,
    run: TrainState,
    feed: Any,
    held: Any,
    callbacks: tuple,
    options: Options,
    progressed: Progressed,
    saver: Saver | None,
) -> tuple[TrainState, History]:
    empty = objective.empty(trainer, run.model)
    progress = Progress(options.verbose, options.epochs, feed.steps)
    pace, test_pace = Pace(options.steps_per_execution), Pace()
    between = _Between(callbacks, saver)
    first, begin = map(int, run.position)
    done = 0
    for epoch in range(first, options.epochs):
        if progressed.stopped:
            break
        progress.start(epoch)
        if begin == 0:
            run, _ = hooks.call(callbacks, "on_epoch_begin", run, epoch)
            run = ready(trainer, run).replace(metrics=empty)
            run = run.replace(position=np.asarray([epoch, 0], "int32"))
        batches = feed.epoch(run if options.shuffle else None, int(run.step) - begin, begin)
        if saver is not None:
            saver.begin(run)
        loop = EpochLoop(trainer, run, batches, pace, progress, between)
        try:
            run, logs = loop.train()
        except KeyboardInterrupt as error:
            raise interrupted(error, loop.current) from None
        done, begin = batches.done, 0
        progress.stop()
        _tell(loop.left_out, epoch)
        run = run.replace(position=np.asarray([epoch + 1, 0], "int32"))
        if held is not None and (epoch + 1) % options.validation_freq == 0:
            tested, _ = hooks.call(callbacks, "on_test_begin", run)
            found, _ = evaluate(trainer, tested, empty, held, pace=test_pace)
            logs |= {f"val_{name}": value for name, value in found.items()}
        progress.end(logs, feed.rows(done), done)
        progressed.add(epoch, logs)
        run, stop = hooks.call(callbacks, "on_epoch_end", run, epoch, logs)
        progressed.stopped = stop or between.stop
        if saver is not None:
            saver.end_epoch(run, logs)
    if saver is not None:
        saver.end(run)
    run = optimizer_state.finalized(trainer.optimizer, run)
    run, _ = hooks.call(callbacks, "on_train_end", run)
    params = {
        "epochs": options.epochs,
        "steps": done if feed.steps is None else feed.steps,
        "batch_size": feed.size,
        "samples": feed.rows(done) if feed.steps is None else feed.rows(feed.steps),
    }
    return run, History(progressed.history, progressed.epochs, params)


def ready(trainer: Any, run: TrainState) -> TrainState:
    """The run as the loop takes it: the optimizer's state follows what is frozen."""
    followed = optimizer_state.follow(trainer.optimizer, run.opt_state, run.model)
    return sharding.place(trainer, run.replace(opt_state=followed))


def _tell(left_out: list[int], epoch: int) -> None:
    if left_out:
        shown = ", ".join(str(number + 1) for number in left_out[:5])
        warnings.warn(
            f"Trainer.fit, epoch {epoch + 1}: {len(left_out)} steps gave nan or infinity and were "
            f"left out (batch {shown}{', ...' if len(left_out) > 5 else ''}). Look for the cause "
            "with fk.find_nan.",
            stacklevel=4,
        )
