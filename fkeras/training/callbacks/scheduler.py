"""`LearningRateScheduler`: sets the learning rate of each epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from fkeras.engine import option
from fkeras.engine.config.converters import boolean, either, function, integer
from fkeras.engine.values.callables import accepts
from fkeras.optimizers.updates.rates import learning_rate, with_learning_rate
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.base.printing import print_once
from fkeras.training.records.state import TrainState

_WHERE = "LearningRateScheduler"


class LearningRateScheduler(Callback):
    """Sets the learning rate to `schedule(epoch, lr)`, or `schedule(epoch)`, in every epoch.

    For a rate that changes in every step, pass a schedule such as
    `fk.optimizers.schedules.CosineDecay` to the optimizer instead. A training that resumes within
    an epoch does not call the schedule again for this epoch.

    Args:
        schedule: function of the epoch, counted from 0, and the current rate, a float, or of the
            epoch alone; returns the new rate.
        verbose: 1 to print each rate.

    Raises:
        ValueError: if the function returns no finite number of at least 0, or the optimizer's
            learning rate is a schedule.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import LearningRateScheduler
        >>> trainer = fk.Trainer(fk.optimizers.SGD(0.5), "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> halved = LearningRateScheduler(lambda epoch, lr: lr / 2 if epoch else lr)
        >>> run, _ = trainer.fit(run, x, y, epochs=3, callbacks=[halved], verbose=0)
        >>> run.opt_state.learning_rate
        Array(0.125, dtype=float32)
    """

    sets_learning_rate: ClassVar[bool] = True

    schedule: Callable[..., Any] = option(convert=function())
    verbose: int = option(default=0, convert=either(integer(minimum=0), boolean))

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        # raises for an optimizer whose rate is a schedule, before any work is done
        with_learning_rate(run.opt_state, learning_rate(run.opt_state))

    def on_epoch_begin(self, epoch: int, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        # a second call in one epoch, after a resume, would apply a relative change twice
        if int(self.recall(run, {"epoch": -1})["epoch"]) == epoch:
            return None
        old_rate = float(learning_rate(run.opt_state))
        arguments = (epoch, old_rate) if accepts(self.schedule, 2) else (epoch,)
        new_rate = _number(self.schedule(*arguments), epoch)
        if self.verbose:
            print_once(run, f"Epoch {epoch + 1}: the learning rate is {new_rate:.4g}.")
        run = run.replace(opt_state=with_learning_rate(run.opt_state, new_rate))
        return self.remember(run, {"epoch": epoch})

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        return self.remember(run, {"epoch": -1})


def _number(value: object, epoch: int) -> float:
    # NumPy would wrap a function, returned by mistake, in an array of objects
    array = np.asarray(value if hasattr(value, "dtype") or not callable(value) else None)
    rate = float(array) if array.dtype.kind in "iuf" and array.ndim == 0 else math.nan
    if not math.isfinite(rate) or rate < 0:
        raise ValueError(
            f"{_WHERE}, epoch {epoch + 1}: expected schedule(epoch, lr) to return a number of 0 "
            f"or more, received {value!r}. Return a float on every path of the function."
        )
    return rate
