"""`EarlyStopping`: ends a training that no longer gets better."""

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

_WHERE = "EarlyStopping"


class EarlyStopping(Callback):
    """Stops after `patience` epochs in a row without a better value of a log.

    The best value, the number of epochs since and, with `restore_best_weights`, the weights and
    state of the best epoch are kept in `run.memory`, so that a training that goes on in another
    process counts on. A training that begins with epoch 0 again counts anew. In an epoch without
    validation a log of validation is not there, and the epoch does not count.

    Args:
        monitor: the name of the log.
        min_delta: by how much a value must be better to count.
        patience: how many epochs may pass without a better value.
        verbose: 1 to print when it stops and what it brings back.
        mode: "min" or "max", which values are better; "auto" tells by the name of the log.
        baseline: a value that must be reached; an epoch that is the best so far but does not
            reach it does not start the patience again.
        restore_best_weights: whether weights and state of the best epoch come back at the end,
            also where all epochs were trained. Optimizer and step stay those of the last epoch.
        start_from_epoch: how many epochs pass before it begins to watch.

    Raises:
        ValueError: where there is no such log, or "auto" cannot tell.

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

    def on_epoch_end(self, epoch: int, run: Any, logs: Mapping[str, float]) -> Any:
        value = watch.current(_WHERE, self.monitor, logs)
        way = watch.direction(_WHERE, self.monitor, self.mode)
        kept = watch.ongoing(self.recall(run), epoch)
        kept = {"best": math.nan, "best_epoch": 0, "wait": 0, "seen": 0} if kept is None else kept
        kept = {**kept, "epoch": epoch}
        if value is None or epoch < self.start_from_epoch:
            return self.remember(run, kept)
        kept |= {"wait": int(kept["wait"]) + 1, "seen": 1}
        better = watch.improves(way, value, float(kept["best"]), self.min_delta)
        if better:
            kept |= {"best": value, "best_epoch": epoch}
        if self.restore_best_weights and (better or "weights" not in kept):
            kept |= {"best_epoch": epoch, **snapshot.take(run)}
        if better:
            reached = self.baseline is None or watch.improves(
                way, value, self.baseline, self.min_delta
            )
            return self.remember(run, kept | {"wait": 0} if reached else kept)
        run = self.remember(run, kept)
        if kept["wait"] < self.patience or epoch == 0:
            return run
        if self.verbose:
            print(
                f"Epoch {epoch + 1}: stopped, {self.monitor} has been no better since epoch "
                f"{int(kept['best_epoch']) + 1}."
            )
        return Stop(run)

    def on_train_end(self, run: Any) -> Any:
        kept = self.recall(run)
        if kept is None:
            return None
        if not int(kept["seen"]) and int(kept["epoch"]) >= self.start_from_epoch:
            watch.tell_unseen(_WHERE, self.monitor)
        if not self.restore_best_weights or "weights" not in kept:
            return None
        if self.verbose:
            print(f"Weights and state are those of epoch {int(kept['best_epoch']) + 1}, the best.")
        return snapshot.put(run, kept)
