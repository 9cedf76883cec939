"""Runs the epochs of `Trainer.fit` on prepared feeds, with callbacks, validation and checkpoints."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from fkeras.training import callbacks as hooks
from fkeras.training.checkpoint import open_store
from fkeras.training.inputs import arguments
from fkeras.training.loop.agreement import compare_call, settings_of
from fkeras.training.loop.batch_loops import CallSize, evaluate
from fkeras.training.loop.epoch_loop import EpochLoop, LoopHooks
from fkeras.training.loop.rescue import Current, Point
from fkeras.training.loop.saver import Saver, as_checkpoint
from fkeras.training.processes.alone import ALONE, Alone
from fkeras.training.records.history import History
from fkeras.training.records.progress import Progress
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, optimizer_state, outputs, sharding


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
    verbose: Any
    checkpoint: Any

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "checkpoint":
                value = arguments.convert("fit", field.name, getattr(self, field.name))
                object.__setattr__(self, field.name, value)


class _Between(LoopHooks):
    """Hooks of `fit` between device calls: callbacks, checkpoints and signals."""

    def __init__(
        self,
        trainer: Any,
        callbacks: tuple,
        saver: Saver | None,
        interrupts: Any,
        group: Alone,
    ):
        self.group = group
        # Callbacks without `on_batch_end` must not cost a synchronization per batch.
        self.callbacks = tuple(callback for callback in callbacks if callback.watches_batches)
        self.trainer, self.saver, self.interrupts = trainer, saver, interrupts
        self.hooks = bool(self.callbacks)

    def agreed_number(self, number: int) -> int:
        if self.group.count == 1:
            return number
        if self.saver is not None:
            self.saver.agree()
        return self.group.agree(number, "the batches of a call")[0]

    def until(self, done: int) -> int | None:
        return None if self.saver is None else self.saver.until(done)

    def wanted(self) -> bool:
        if self.hooks:
            return True
        if self.group.count > 1:  # the processes have agreed on this before the call
            return self.saver is not None and self.saver.is_due()
        return self.interrupts.wanted() or (self.saver is not None and self.saver.late())

    def visit(self, run: TrainState, logs: Any) -> tuple[Any, bool]:
        if not self.hooks:
            return run, False
        new_run, stop = hooks.call(
            self.callbacks, "on_batch_end", run, int(run.step), logs(), group=self.group
        )
        # a callback may freeze layers, whose weights then need no optimizer state
        return (run if new_run is run else ready(self.trainer, new_run)), stop

    def end_visit(self, point: Point) -> None:
        self.interrupts.deliver()
        if self.saver is not None:
            self.saver.end_visit(point)


def fit(
    trainer: Any,
    run: TrainState,
    feed: Any,
    held: Any,
    callbacks: tuple,
    options: Options,
    current: Current,
    group: Alone = ALONE,
) -> tuple[TrainState, History]:
    """Trains for some epochs; resumes from a checkpoint if the folder has one.

    Args:
        run: the run to begin with; `fit` does not change it.
        held: the batches of the validation data, or None.
        options: the arguments of `fit`.

    Returns:
        `(run, history)` after the last epoch.
    """
    _check_logs(trainer, run, held, callbacks)
    feeds = {"data": feed, "validation_data": held}
    compare_call(group, trainer, run, feeds, **settings_of(options, callbacks))
    if options.checkpoint is None:
        _begin(trainer, run, callbacks, options, current, group)
        return _epochs(trainer, feed, held, callbacks, options, current, None, group)
    plan = as_checkpoint(options.checkpoint)
    with open_store(plan, group) as store:
        # `on_train_begin` may change the model, and the fingerprint of the checkpoint is that of
        # the changed model: `_begin` comes before the saver compares fingerprints.
        run = _begin(trainer, run, callbacks, options, current, group)
        saver = Saver(store, plan, trainer, run, feed, options.shuffle, current, group)
        restored = saver.restore(run)
        if restored is not None:
            _continue_from(trainer, restored, feed, held, options, current)
        # one process cannot save the shards of the others from a second thread
        save_newest = saver.save_newest if group.count == 1 else None
        with current.interrupts.armed(save_newest):
            try:
                fitted = _epochs(trainer, feed, held, callbacks, options, current, saver, group)
                # A signal may arrive after the last visit of the loop.
                saver.agree()
                saver.leave(current.point())
                return fitted
            except BaseException as error:  # KeyboardInterrupt and SystemExit are saved too
                saver.rescue(error)
                raise


def _begin(
    trainer: Any,
    run: TrainState,
    callbacks: tuple,
    options: Options,
    current: Current,
    group: Alone,
) -> TrainState:
    """Calls `on_train_begin` and returns the resulting run, which becomes the newest point."""
    run_of_fit = run
    run, stop = hooks.call(callbacks, "on_train_begin", run, group=group)
    changed = run is not run_of_fit
    sums = objective.emptied(trainer, run) if changed else run.metrics  # `fit` passes empty sums
    run = ready(trainer, run).replace(metrics=sums)
    # A NumPy array: `position` never enters a compiled step, and reading it must not wait.
    run = run.replace(position=np.asarray([options.initial_epoch, 0], "int32"))
    current.begin(Point(run, stopped=stop), changed)
    return run


def _continue_from(
    trainer: Any, restored: Any, feed: Any, validation_feed: Any, options: Options, current: Current
) -> None:
    """Makes a restored checkpoint the newest point, and moves the feeds to its position."""
    point = dataclasses.replace(restored.point, run=sharding.place(trainer, restored.point.run))
    current.restore(point, restored.history, restored.epochs)
    epoch, begin = map(int, point.run.position)
    epochs_done = epoch - options.initial_epoch
    # With `steps_per_epoch`, epochs share one pass over the source: count the batches of all of
    # them. Without, each epoch begins a new pass, and only the batches of this epoch count.
    batches = begin + epochs_done * (options.steps_per_epoch or 0)
    step = int(point.run.step) - begin
    feed.go_on(point.loader, batches, point.skip, restored.rows, step)
    if validation_feed is not None and options.validation_steps is not None:
        # The number of validations is not saved; the longest `val_` history has the same length.
        validated = max((len(v) for k, v in restored.history.items() if k[:4] == "val_"), default=0)
        validation_feed.go_on(None, validated * options.validation_steps)


def _check_logs(trainer: Any, run: TrainState, validation_feed: Any, callbacks: tuple) -> None:
    heads = outputs.heads(trainer, run.model)
    # A callback that monitors an unknown log fails here, not after the first epoch.
    names = objective.log_names(heads, run.metrics)
    validation_names = ()
    if validation_feed is not None:
        validation_names = tuple(
            f"val_{name}" for name in objective.log_names(heads, validation_feed.sums)
        )
    hooks.check_logs(callbacks, (*names, *validation_names))


def _epochs(
    trainer: Any,
    feed: Any,
    validation_feed: Any,
    callbacks: tuple,
    options: Options,
    current: Current,
    saver: Saver | None,
    group: Alone,
) -> tuple[TrainState, History]:
    point = current.point()
    empty_sums = feed.sums  # NumPy arrays, shared by all epochs: a step donates only copies
    progress = Progress(options.verbose if group.leads else 0, options.epochs, feed.steps)
    call_size, test_call_size = CallSize(options.steps_per_execution), CallSize()
    loop_hooks = _Between(trainer, callbacks, saver, current.interrupts, group)
    batches_done = 0
    for epoch in range(int(point.run.position[0]), options.epochs):
        if point.stopped:
            break
        progress.start(epoch)
        run, begin = point.run, int(point.run.position[1])
        if begin == 0:  # otherwise the epoch was resumed in its middle: its sums and hooks count
            run, _ = hooks.call(callbacks, "on_epoch_begin", run, epoch, group=group)
            run = run if run is point.run else ready(trainer, run)
            run = run.replace(metrics=empty_sums)
            run = run.replace(position=np.asarray([epoch, 0], "int32"))
        # The order of an epoch is a function of the run's key and of the step at which the epoch
        # began, so that a resumed epoch continues the same permutation.
        batches = feed.epoch(run if options.shuffle else None, int(run.step) - begin, begin)
        if saver is not None:
            saver.begin(run)
        loop = EpochLoop(trainer, run, batches, call_size, progress, loop_hooks, point)
        current.follow(loop.point, loop.dispatched)
        logs = loop.train()
        # If validation or `on_epoch_end` raises, the newest point is before all of them: a
        # resumed training repeats the validation and calls all hooks of the epoch's end again.
        point = loop.point()
        current.stand(point)
        batches_done = batches.done
        progress.stop()
        if group.leads:
            _warn_left_out(loop.left_out, epoch)
        run = point.run.replace(position=np.asarray([epoch + 1, 0], "int32"))
        if validation_feed is not None and (epoch + 1) % options.validation_freq == 0:
            test_run, _ = hooks.call(callbacks, "on_test_begin", run, group=group)
            validation_logs, _ = evaluate(
                trainer,
                test_run,
                validation_feed.sums,
                validation_feed,
                call_size=test_call_size,
                group=group,
            )
            logs |= {f"val_{name}": value for name, value in validation_logs.items()}
        progress.end(logs, feed.rows(batches_done), batches_done)
        run, stop = hooks.call(callbacks, "on_epoch_end", run, epoch, logs, group=group)
        # With a fixed number of steps the next epoch continues the same pass over the source.
        same_pass = feed.steps is not None
        point = Point(
            run,
            finished=point.finished + 1,
            stopped=stop or point.stopping,
            loader=point.loader if same_pass else None,
            skip=point.skip if same_pass else 0,
        )
        current.end_epoch(point, epoch, logs)
        # Delivered here, where the newest point includes the epoch, its logs and its hooks.
        current.interrupts.deliver()
        if saver is not None:
            saver.agree()
            saver.end_epoch(point, logs)
    # The last checkpoint holds the weights before `finalized`: a later call with more epochs must
    # continue from the trained weights, not from their average.
    if saver is not None:
        saver.end(point)
    run = current.final = optimizer_state.finalized(trainer.optimizer, point.run)
    run, _ = hooks.call(callbacks, "on_train_end", run, group=group)
    current.final = run
    params = {
        "epochs": options.epochs,
        "steps": batches_done if feed.steps is None else feed.steps,
        "batch_size": feed.rows(1),
        "samples": feed.rows(batches_done) if feed.steps is None else feed.rows(feed.steps),
    }
    history = History(*current.history(point), params)
    # A signal from here on is raised by `Current.__exit__`, with the run that `fit` returns.
    current.interrupts.hold()
    return run, history


def ready(trainer: Any, run: TrainState) -> TrainState:
    """Returns the run with an optimizer state for its trainable weights, placed on the mesh."""
    opt_state = optimizer_state.follow(trainer.optimizer, run.opt_state, run.model)
    return sharding.place(trainer, run.replace(opt_state=opt_state))


def _warn_left_out(left_out: list[int], epoch: int) -> None:
    if left_out:
        shown = ", ".join(str(number + 1) for number in left_out[:5])
        warnings.warn(
            f"Trainer.fit, epoch {epoch + 1}: {len(left_out)} steps returned nan or infinity and "
            f"were skipped (batch {shown}{', ...' if len(left_out) > 5 else ''}). Find the cause "
            "with fk.find_nan.",
            stacklevel=4,
        )
