"""Callbacks: values that look at a training between its steps, and may change or stop it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fkeras.engine import Configurable


@dataclasses.dataclass(frozen=True)
class Stop:
    """What a callback returns to end the training after this epoch.

    Attributes:
        run: the `TrainState` that `fit` shall return; None for the present one.

    Example:
        >>> import fkeras as fk
        >>> fk.training.Stop().run is None
        True
    """

    run: Any = None


class Callback(Configurable):
    """Does something at the beginning and end of a training and of its epochs.

    Subclass it and write the hooks that you need. A callback is a value; what it learns goes into
    the `TrainState` that it returns, or out of the program (a file, a screen). A hook returns None
    to change nothing, or a `TrainState` to go on with. The run that it receives stays valid.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> class Until(fk.training.Callback):
        ...     loss: float = fk.option()
        ...     def on_epoch_end(self, epoch, run, logs):
        ...         return fk.training.Stop() if logs["loss"] < self.loss else None
        >>> trainer = fk.Trainer("adam", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> run, history = trainer.fit(run, x, y, epochs=9, callbacks=[Until(0.5)], verbose=0)
        >>> history.epoch
        [0]
    """

    def on_train_begin(self, run: Any) -> Any:
        """Before the first epoch."""

    def on_epoch_begin(self, epoch: int, run: Any) -> Any:
        """Before an epoch; epochs count from 0."""

    def on_batch_end(self, step: int, run: Any, logs: Mapping[str, float]) -> Any:
        """After every call of the device, which may be several steps."""

    def on_epoch_end(self, epoch: int, run: Any, logs: Mapping[str, float]) -> Any:
        """After an epoch and its validation; may also return a `Stop`."""

    def on_train_end(self, run: Any) -> Any:
        """After the last epoch."""


def check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """The callbacks as a tuple.

    Raises:
        TypeError: for anything that is no `Callback`.
    """
    given = (callbacks,) if isinstance(callbacks, Callback) else tuple(callbacks or ())
    for one in given:
        if not isinstance(one, Callback):
            hint = f" Write {one.__name__}()." if isinstance(one, type) else ""
            raise TypeError(
                f"Trainer.fit: expected callbacks of class fk.training.Callback, received "
                f"{getattr(one, '__name__', type(one).__name__)}.{hint} Subclass Callback and "
                "write on_epoch_end(self, epoch, run, logs)."
            )
    return given


def call(callbacks: tuple[Callback, ...], hook: str, run: Any, *arguments: Any) -> tuple[Any, bool]:
    """`(run, stop)` after one hook of every callback, each on what the one before returned."""
    stop = False
    for one in callbacks:
        before = (arguments[0], run, *arguments[1:]) if arguments else (run,)
        answer = getattr(one, hook)(*before)
        if isinstance(answer, Stop):
            stop, answer = True, answer.run
        if answer is None:
            continue
        if not isinstance(answer, type(run)):
            raise TypeError(
                f"{type(one).__name__}.{hook}: expected None, a TrainState or a Stop, returned "
                f"{type(answer).__name__}. Return run.replace(...) to change the training."
            )
        run = answer
    return run, stop
