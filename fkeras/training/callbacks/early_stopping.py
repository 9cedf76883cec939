"""`EarlyStopping`: stops a training whose monitored log no longer improves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.engine import option
from fkeras.engine.config.converters import boolean, choice, integer, real, text
from fkeras.engine.config.field_types import Integer, OptionalReal, Real
from fkeras.training.callbacks.base import monitor as watch
from fkeras.training.callbacks.base import snapshot
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.base.printing import print_once
from fkeras.training.records.state import TrainState

_WHERE = "EarlyStopping"


class EarlyStopping(Callback):
    """Stops after `patience` consecutive epochs without an improvement of a log.

    `run.memory` keeps the best value, the number of epochs since the best epoch and, with
    `restore_best_weights`, the weights and state of the best epoch. A resumed training therefore
    continues to count; a training that starts again with epoch 0 resets the counts. Epochs without
    validation do not count for a validation log.

    Args:
        monitor: name of the log.
        min_delta: minimum change that counts as an improvement.
        patience: number of epochs without an improvement before the training stops.
        verbose: 1 to print when the training stops and weights are restored.
        mode: "min" or "max", the direction of better values; "auto" decides by the name of the log.
        baseline: value that the log must improve on; a best value that does not reach the baseline
            does not reset the patience.
        restore_best_weights: whether to restore weights and state of the best epoch at the end,
            even if all epochs were trained. Optimizer state and step are those of the last epoch.
        start_from_epoch: number of epochs before monitoring starts.

    Raises:
        ValueError: for a missing log, or "auto" with a name of unknown direction.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import EarlyStopping
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> stopping = EarlyStopping("loss", patience=2)
        >>> run, history = trainer.fit(run, x, y, epochs=9, callbacks=[stopping], verbose=0)
        >>> history.epoch
        [0, 1, 2]
    """

    monitor: str = option(default="val_loss", convert=text())
    min_delta: Real = option(default=0.0, convert=real())
    patience: Integer = option(default=0, convert=integer(minimum=0))
    verbose: int = option(default=0, convert=watch.verbosity)
    mode: str = option(default="auto", convert=choice("auto", "min", "max"))
    baseline: OptionalReal = option(default=None, convert=real(infinite=True, optional=True))
    restore_best_weights: bool = option(default=False, convert=boolean)
    start_from_epoch: Integer = option(default=0, convert=integer(minimum=0))

    def check_logs(self, names: Sequence[str]) -> None:
        watch.check(_WHERE, self.monitor, names)
        watch.direction(_WHERE, self.monitor, self.mode)

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        value = watch.current(_WHERE, self.monitor, logs)
        direction = watch.direction(_WHERE, self.monitor, self.mode)
        memory = watch.ongoing(self.recall(run), epoch)
        memory = (
            {"best": math.nan, "best_epoch": 0, "wait": 0, "seen": 0} if memory is None else memory
        )
        memory = {**memory, "epoch": epoch}
        if value is None or epoch < self.start_from_epoch:
            return self.remember(run, memory)
        memory |= {"wait": int(memory["wait"]) + 1, "seen": 1}
        improved = watch.improves(direction, value, float(memory["best"]), self.min_delta)
        if improved:
            memory |= {"best": value, "best_epoch": epoch}
        # as in Keras, the first epoch's weights are kept even if its value is nan
        if self.restore_best_weights and (improved or "weights" not in memory):
            memory |= {"best_epoch": epoch, **snapshot.take(run)}
        if improved:
            reaches_baseline = self.baseline is None or watch.improves(
                direction, value, self.baseline, self.min_delta
            )
            return self.remember(run, memory | {"wait": 0} if reaches_baseline else memory)
        run = self.remember(run, memory)
        # as in Keras, the first epoch never stops the training
        if memory["wait"] < self.patience or epoch == 0:
            return run
        if self.verbose:
            print_once(
                run,
                f"Epoch {epoch + 1}: stopped, {self.monitor} has not improved since epoch "
                f"{int(memory['best_epoch']) + 1}.",
            )
        return Stop(run)

    def on_train_end(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        memory = self.recall(run)
        if memory is None:
            return None
        if not int(memory["seen"]) and int(memory["epoch"]) >= self.start_from_epoch:
            watch.tell_unseen(_WHERE, self.monitor)
        if not self.restore_best_weights or "weights" not in memory:
            return None
        if self.verbose:
            print_once(
                run,
                f"Restored weights and state of the best epoch, {int(memory['best_epoch']) + 1}.",
            )
        return snapshot.put(run, memory)
