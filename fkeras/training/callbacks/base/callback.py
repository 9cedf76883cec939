"""What a callback is: a value whose hooks receive the run of a training and may return another.

A callback keeps nothing of its own. What it must know at the next call it puts into the run, with
`remember`, and finds there again, with `recall`; so a training that was interrupted and goes on
elsewhere goes on with it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fkeras.engine import Configurable, option, snake_case
from fkeras.engine.config.converters import text
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.migration_hints.overrides import check_callback, own_attributes


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
    to change nothing, a `TrainState` to go on with, or a `Stop`. The run that it receives stays
    valid. If a hook raises, the changes of all hooks of the same event are dropped, and a training
    that is resumed from a checkpoint calls all of them again.

    Args:
        name: where `run.memory` keeps what the callback remembers; by its class where it is not
            given. Give one to find it again in a training that goes on with other callbacks.

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

    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        check_callback(cls.__name__, own_attributes(cls, Callback))
        super().__init_subclass__(**kwargs)

    def on_train_begin(self, run: Any) -> Any:
        """Before the first epoch."""

    def on_epoch_begin(self, epoch: int, run: Any) -> Any:
        """Before an epoch; epochs count from 0."""

    def on_batch_end(self, step: int, run: Any, logs: Mapping[str, float]) -> Any:
        """After every call of the device, which may be several steps; `step` were taken in all."""

    def on_test_begin(self, run: Any) -> Any:
        """Before a validation: the run that is returned is validated, and only that."""

    def on_epoch_end(self, epoch: int, run: Any, logs: Mapping[str, float]) -> Any:
        """After an epoch and its validation."""

    def on_train_end(self, run: Any) -> Any:
        """After the last epoch."""

    def check_logs(self, names: Sequence[str]) -> None:
        """Raises where the callback needs a log that this training does not have.

        Args:
            names: the names of all logs that an epoch of the training can have.
        """

    @property
    def watches_batches(self) -> bool:
        """Whether `on_batch_end` must be called, which keeps the device waiting."""
        return type(self).on_batch_end is not Callback.on_batch_end

    def recall(self, run: Any, default: Any = None) -> Any:
        """What `remember` put into a run, or the default.

        Args:
            run: the run that a hook received.
            default: what is returned where the callback remembers nothing.
        """
        return run.memory.get(self.name or default_name(self), default)

    def remember(self, run: Any, value: Any) -> Any:
        """The run in whose memory the callback keeps `value` in the place of what was there.

        Args:
            run: the run that a hook received.
            value: arrays and numbers, in dictionaries, tuples and lists.

        Raises:
            TypeError: for a value that holds anything else.

        Example:
            >>> import jax, fkeras as fk
            >>> model = fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)])
            >>> run = fk.Trainer("adam", "mse").init(model, jax.random.key(0))
            >>> callback = fk.training.Callback(name="mine")
            >>> run = callback.remember(run, {"best": 0.5})
            >>> callback.recall(run)
            {'best': array(0.5)}
        """
        name = self.name or default_name(self)
        kept = jax.tree.map(lambda leaf: _as_array(leaf, name), value)
        return run.replace(memory={**run.memory, name: kept})


def _as_array(leaf: Any, name: str) -> Any:
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if isinstance(leaf, np.ndarray | jax.Array) or array.dtype.kind in "biufc":
        return array
    raise TypeError(
        f"Callback {name!r}: expected arrays and numbers to remember, received {leaf!r}. What a "
        "callback remembers is part of every checkpoint: keep numbers in dictionaries."
    )


def default_name(callback: Callback) -> str:
    """The name of a callback that was given none.

    Example:
        >>> default_name(Callback())
        'callback'
    """
    return snake_case(type(callback).__name__)


def check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """The callbacks as a tuple, each with a name that no other one has.

    Args:
        callbacks: a callback, a list of them, or None.

    Raises:
        TypeError: for anything that is no `Callback`.
        ValueError: for two callbacks that were given the same name.

    Example:
        >>> [one.name for one in check_callbacks([Callback(), Callback(), Callback(name="mine")])]
        ['callback', 'callback_1', 'mine']
    """
    several = callbacks is None or isinstance(callbacks, Iterable)
    given: tuple[Any, ...] = tuple(callbacks or ()) if several else (callbacks,)
    for one in given:
        if not isinstance(one, Callback):
            check_not_keras(one, "Trainer.fit")
            hint = f" Write {one.__name__}()." if isinstance(one, type) else ""
            raise TypeError(
                f"Trainer.fit: expected callbacks of class fk.training.Callback, received "
                f"{getattr(one, '__name__', type(one).__name__)}.{hint} Subclass Callback and "
                "write on_epoch_end(self, epoch, run, logs)."
            )
    taken: set[str] = set()
    for one in given:
        if one.name in taken:
            raise ValueError(
                f"Trainer.fit: expected a name of its own for each callback, received two named "
                f"{one.name!r}. Rename one: {type(one).__name__}(..., name={one.name + '_1'!r})."
            )
        if one.name is not None:
            taken.add(one.name)
    return tuple(one if one.name is not None else _named(one, taken) for one in given)


def _named(callback: Callback, taken: set[str]) -> Callback:
    name = base = default_name(callback)
    number = 0
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    # not dataclasses.replace: a subclass may have a constructor of its own
    named = copy.copy(callback)
    object.__setattr__(named, "name", name)
    return named


def check_logs(callbacks: Sequence[Callback], names: Sequence[str]) -> None:
    """Raises where a callback needs a log that the training will not have; before the first step.

    Args:
        callbacks: the callbacks.
        names: the names of all logs that an epoch of the training can have.

    Example:
        >>> import fkeras as fk
        >>> stop = fk.callbacks.EarlyStopping("val_loss")
        >>> try:
        ...     check_logs((stop,), ("loss",))
        ... except ValueError as error:
        ...     print("val_loss" in str(error))
        True
    """
    for one in callbacks:
        one.check_logs(tuple(names))


def call(callbacks: tuple[Callback, ...], hook: str, run: Any, *arguments: Any) -> tuple[Any, bool]:
    """`(run, stop)` after one hook of every callback, each on what the one before returned.

    Args:
        callbacks: the callbacks.
        hook: the name of the hook.
        run: the run as it stands.
        *arguments: the hook's other arguments; the first of them stands before the run.

    Raises:
        TypeError: where a hook returns anything but None, a `TrainState` or a `Stop`.

    Example:
        >>> import fkeras as fk
        >>> call((fk.Callback(),), "on_train_begin", "a run")
        ('a run', False)
    """
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
