"""The epochs of a training: what `Trainer.fit` does once its data are feeds."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from fkeras.training import callbacks as hooks
from fkeras.training import checks, objective, optimizer_state, sharding
from fkeras.training.history import History
from fkeras.training.loops import EpochLoop, Pace, Visits, evaluate
from fkeras.training.progress import Progress
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


class _Batches(Visits):
    """Calls the callbacks that look at every call of the device."""

    def __init__(self, callbacks: tuple):
        self.callbacks = tuple(one for one in callbacks if one.watches_batches)
        self.stop = False

    def wanted(self) -> bool:
        return bool(self.callbacks)

    def look(self, run: TrainState, done: int, logs: Any, state: Any) -> tuple[TrainState, bool]:
        run, stop = hooks.call(self.callbacks, "on_batch_end", run, int(run.step), logs())
        self.stop = self.stop or stop
        return run, False


def fit(
    trainer: Any, run: TrainState, feed: Any, held: Any, callbacks: tuple, options: Options
) -> tuple[TrainState, History]:
    """`(run, history)` after the epochs of a training.

    Args:
        trainer: the trainer.
        run: the run to begin with, which stays as it is.
        feed: the batches of an epoch.
        held: those of a validation, or None.
        callbacks: the callbacks.
        options: what `fit` was called with.
    """
    empty = objective.empty(trainer, run.model)
    history: dict[str, list[float]] = {}
    numbers: list[int] = []
    progress = Progress(options.verbose, options.epochs, feed.steps)
    pace, test_pace = Pace(options.steps_per_execution), Pace()
    names = objective.log_names(objective.heads(trainer, run.model), empty)
    later = tuple(f"val_{name}" for name in names if held is not None)
    hooks.check_logs(callbacks, (*names, *later))
    run, stop = hooks.call(callbacks, "on_train_begin", run)
    done = 0
    for epoch in range(options.initial_epoch, options.epochs):
        if stop:
            break
        run, _ = hooks.call(callbacks, "on_epoch_begin", run, epoch)
        progress.start(epoch)
        run = ready(trainer, run).replace(metrics=empty, position=np.asarray([epoch, 0], "int32"))
        batches = feed.epoch(run if options.shuffle else None, int(run.step))
        visits = _Batches(callbacks)
        loop = EpochLoop(trainer, run, batches, pace, progress, visits)
        run, logs = loop.train()
        done = batches.done
        progress.stop()
        _tell(loop.left_out, epoch)
        if held is not None and (epoch + 1) % options.validation_freq == 0:
            tested, _ = hooks.call(callbacks, "on_test_begin", run)
            found, _ = evaluate(trainer, tested, empty, held, pace=test_pace)
            logs |= {f"val_{name}": value for name, value in found.items()}
        progress.end(logs, feed.rows(done), done)
        for name, value in logs.items():
            history.setdefault(name, []).append(value)
        numbers.append(epoch)
        run = run.replace(position=np.asarray([epoch + 1, 0], "int32"))
        run, stop = hooks.call(callbacks, "on_epoch_end", run, epoch, logs)
        stop = stop or visits.stop
    run, _ = hooks.call(callbacks, "on_train_end", run)
    params = {
        "epochs": options.epochs,
        "steps": done if feed.steps is None else feed.steps,
        "batch_size": feed.size,
        "samples": feed.rows(done) if feed.steps is None else feed.rows(feed.steps),
    }
    return run, History(history, numbers, params)


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
