"""`LambdaCallback`: a callback made of functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fkeras.engine import option
from fkeras.engine.config.converters import function
from fkeras.engine.migration_hints.overrides import check_callback
from fkeras.training.callbacks.base.callback import Callback


def _nothing(*arguments: Any) -> None:
    """Does nothing; the default of each hook."""


_function = function(
    optional=True,
    hint="For example on_epoch_end=lambda epoch, run, logs: print(epoch, logs).",
)


def _hook() -> Any:
    return option(default=None, convert=lambda value: _function(value) or _nothing)


class LambdaCallback(Callback):
    """Calls the given functions as hooks.

    The functions have the arguments of the methods of `Callback`, without `self`, and the same
    results. Keras's hooks at the beginning and end of a batch are one hook here, `on_batch_end`.

    Args:
        on_epoch_begin: a function `(epoch, run)`.
        on_epoch_end: a function `(epoch, run, logs)`.
        on_train_begin: a function `(run)`.
        on_train_end: a function `(run)`.
        on_batch_end: a function `(step, run, logs)`, called after every device call.
        on_test_begin: a function `(run)`.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import LambdaCallback
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> tell = LambdaCallback(on_epoch_end=lambda epoch, run, logs: print(epoch, logs))
        >>> run, _ = trainer.fit(run, x, y, epochs=2, callbacks=[tell], verbose=0)
        0 {'loss': 0.0}
        1 {'loss': 0.0}
    """

    # fields override the methods of `Callback`: Python does not bind a function that is an
    # attribute of an instance, so the functions receive no `self`
    on_epoch_begin: Callable[..., Any] = _hook()
    on_epoch_end: Callable[..., Any] = _hook()
    on_train_begin: Callable[..., Any] = _hook()
    on_train_end: Callable[..., Any] = _hook()
    on_batch_end: Callable[..., Any] = _hook()
    on_test_begin: Callable[..., Any] = _hook()

    def __post_init__(self) -> None:
        super().__post_init__()
        hooks = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        check_callback("LambdaCallback", hooks, bound=False)

    @property
    def _watches_batches(self) -> bool:
        """Returns whether `on_batch_end` is a given function."""
        return self.on_batch_end is not _nothing
