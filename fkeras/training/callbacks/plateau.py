"""`ReduceLROnPlateau`: reduces the learning rate when the monitored log stops improving."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fkeras.engine import option
from fkeras.engine.config.converters import choice, integer, real, text
from fkeras.engine.config.field_types import Integer, Real
from fkeras.optimizers.updates.rates import learning_rate, with_learning_rate
from fkeras.training.callbacks.base import monitor as watch
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.base.printing import print_once
from fkeras.training.records.state import TrainState

_WHERE = "ReduceLROnPlateau"


class ReduceLROnPlateau(Callback):
    """Multiplies the learning rate by `factor` after `patience` epochs without an improvement.

    `run.memory` keeps the best value and the counts; a training that starts again with epoch 0
    resets them.

    Args:
        monitor: name of the log.
        factor: factor of the learning rate, between 0 and 1.
        patience: number of epochs without an improvement before a reduction.
        verbose: 1 to print each new learning rate.
        mode: "min" or "max", the direction of better values; "auto" decides by the name of the log.
        min_delta: minimum change that counts as an improvement.
        cooldown: number of epochs after a reduction that do not count.
        min_lr: lower bound of the learning rate.

    Raises:
        ValueError: for a missing log, or an optimizer whose learning rate is a schedule.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import ReduceLROnPlateau
        >>> trainer = fk.Trainer(fk.optimizers.SGD(0.5), "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> plateau = ReduceLROnPlateau("loss", patience=2)
        >>> run, _ = trainer.fit(run, x, y, epochs=3, callbacks=[plateau], verbose=0)
        >>> run.opt_state.learning_rate
        Array(0.05, dtype=float32)
    """

    sets_learning_rate: ClassVar[bool] = True

    monitor: str = option(default="val_loss", convert=text())
    factor: Real = option(default=0.1, convert=real(above=0, below=1))
    patience: Integer = option(default=10, convert=integer(minimum=0))
    verbose: int = option(default=0, convert=watch.verbosity)
    mode: str = option(default="auto", convert=choice("auto", "min", "max"))
    min_delta: Real = option(default=1e-4, convert=real())
    cooldown: Integer = option(default=0, convert=integer(minimum=0))
    min_lr: Real = option(default=0.0, convert=real(minimum=0))

    def check_logs(self, names: Sequence[str]) -> None:
        watch.check(_WHERE, self.monitor, names)
        watch.direction(_WHERE, self.monitor, self.mode)

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        # raises for a schedule before the first epoch, not at the first reduction
        with_learning_rate(run.opt_state, learning_rate(run.opt_state))

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        value = watch.current(_WHERE, self.monitor, logs)
        direction = watch.direction(_WHERE, self.monitor, self.mode)
        memory = watch.ongoing(self.recall(run), epoch)
        memory = (
            {"best": math.nan, "wait": 0, "cooldown": 0, "seen": 0} if memory is None else memory
        )
        memory = {**memory, "epoch": epoch}
        if value is None:
            return self.remember(run, memory)
        memory["seen"], wait, cooldown = 1, int(memory["wait"]), int(memory["cooldown"])
        # the order of Keras: the last epoch of the cooldown already counts
        if cooldown:
            cooldown, wait = cooldown - 1, 0
        if watch.improves(direction, value, float(memory["best"]), self.min_delta):
            memory["best"], wait = value, 0
        elif not cooldown:
            wait += 1
            if wait >= self.patience:
                reduced_run = self._reduce_rate(epoch, run)
                if reduced_run is not None:
                    run, wait, cooldown = reduced_run, 0, self.cooldown
        return self.remember(run, memory | {"wait": wait, "cooldown": cooldown})

    def _reduce_rate(self, epoch: int, run: TrainState[Any]) -> Any:
        old_rate = float(learning_rate(run.opt_state))
        # the optimizer keeps the rate in float32: compare in the same precision
        if old_rate <= np.float32(self.min_lr):
            return None
        new_rate = max(old_rate * self.factor, self.min_lr)
        if self.verbose:
            print_once(
                run,
                f"Epoch {epoch + 1}: reduced the learning rate from {old_rate:.4g} to "
                f"{new_rate:.4g}.",
            )
        return run.replace(opt_state=with_learning_rate(run.opt_state, new_rate))

    def on_train_end(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        memory = self.recall(run)
        if memory is not None and not int(memory["seen"]):
            watch.tell_unseen(_WHERE, self.monitor)
