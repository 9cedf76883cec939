"""`Callback`: a value with hooks that receive the run of a training and may return a changed run.

A callback has no mutable state. A callback stores values for later hooks in the run, with
`remember`, and reads them with `recall`. Checkpoints contain the run, so a training that is resumed
in another process has these values too.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from fkeras.engine import Configurable, option, snake_case
from fkeras.engine.config.converters import text
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.migration_hints.overrides import check_callback, own_attributes
from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.facts import run_facts
from fkeras.host.processes.gathering import gathered
from fkeras.training.records.state import TrainState


@dataclasses.dataclass(frozen=True)
class Stop:
    """Result of a hook that stops the training after the current epoch.

    Attributes:
        run: the `TrainState` that `fit` returns; None for the current run.

    Example:
        >>> import fkeras as fk
        >>> fk.training.Stop().run is None
        True
    """

    run: Any = None


class Callback(Configurable):
    """Base class of objects with hooks at the beginning and end of a training and of its epochs.

    Subclass `Callback` and define the hooks that you need. A callback is immutable: hooks store
    results in the `TrainState` that they return, or outside of the program (a file, a screen). A
    hook returns None to change nothing, a `TrainState` to continue with, or a `Stop`. The run that
    a hook receives remains valid. If a hook raises, the changes of all hooks of the same event are
    lost, and a training that is resumed from a checkpoint calls all these hooks again.

    Args:
        name: key of the callback's values in `run.memory`; by default derived from the class. Set a
            name to find the values in a training that is resumed with different callbacks.

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

    #: whether the callback only reports (to a file, a screen, a service). In a training of several
    #: processes, these callbacks run in process 0 only; all other callbacks run in every process.
    reports_only: ClassVar[bool] = False
    #: whether the hooks change the learning rate, so that the logs of epochs have the rate.
    sets_learning_rate: ClassVar[bool] = False

    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # a hook with Keras's arguments would take the run for logs: report it at the definition
        check_callback(cls.__name__, own_attributes(cls, Callback))
        super().__init_subclass__(**kwargs)

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        """Runs before the first epoch."""

    def on_epoch_begin(self, epoch: int, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        """Runs before each epoch; epochs are counted from 0."""

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        """Runs after every device call, which may take several steps; `step` counts since `init`."""

    def on_test_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        """Runs before a validation, which uses the returned run; the training does not."""

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        """Runs after each epoch and its validation."""

    def on_train_end(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        """Runs after the last epoch."""

    def check_logs(self, names: Sequence[str]) -> None:
        """Raises an error if the callback needs a log that the training does not have.

        Args:
            names: names of all logs that an epoch of the training can have.
        """

    @property
    def _watches_batches(self) -> bool:
        """Returns whether the loop must call `on_batch_end`, for which the device has to wait."""
        return type(self).on_batch_end is not Callback.on_batch_end

    @property
    def reads_weights(self) -> bool:
        """Returns whether the hooks of a reporting callback read weights.

        In a training of several processes, these hooks then receive a run of whole arrays, which the
        processes gather before each hook except `on_batch_end`.
        """
        return False

    def recall(self, run: TrainState[Any], default: object = None) -> Any:
        """Returns the value that `remember` stored in a run, or the default.

        Args:
            run: the run that a hook received.
            default: result if the run has no value of the callback.
        """
        return run.memory.get(self.name or default_name(self), default)

    def remember(self, run: TrainState[Any], value: object) -> TrainState[Any]:
        """Returns the run with `value` as the callback's value in `run.memory`.

        Args:
            run: the run that a hook received.
            value: arrays and numbers, in dictionaries, tuples and lists; replaces the old value.

        Raises:
            TypeError: for a value with leaves other than arrays and numbers.

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
        # only arrays: the memory is part of checkpoints, which store arrays by path
        arrays = jax.tree.map(lambda leaf: _as_array(leaf, name), value)
        return run.replace(memory={**run.memory, name: arrays})


def _as_array(leaf: object, name: str) -> Any:
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if isinstance(leaf, np.ndarray | jax.Array) or array.dtype.kind in "biufc":
        return array
    raise TypeError(
        f"Callback {name!r}: expected arrays and numbers to remember, received {leaf!r}. The "
        "memory of a callback is saved in every checkpoint: use numbers in dictionaries."
    )


def default_name(callback: Callback) -> str:
    """Returns the default name of a callback: its class in snake case."""
    return snake_case(type(callback).__name__)


def check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Returns the callbacks as a tuple with unique names.

    Args:
        callbacks: a callback, several callbacks, or None.

    Raises:
        TypeError: for an object that is not a `Callback`.
        ValueError: for two callbacks with the same explicit name.

    Example:
        >>> [one.name for one in check_callbacks([Callback(), Callback(), Callback(name="mine")])]
        ['callback', 'callback_1', 'mine']
    """
    is_collection = callbacks is None or isinstance(callbacks, Iterable)
    callback_list: tuple[Any, ...] = tuple(callbacks or ()) if is_collection else (callbacks,)
    for callback in callback_list:
        if not isinstance(callback, Callback):
            check_not_keras(callback, "Trainer.fit")
            hint = f" Write {callback.__name__}()." if isinstance(callback, type) else ""
            raise TypeError(
                f"Trainer.fit: expected callbacks of class fk.training.Callback, received "
                f"{getattr(callback, '__name__', type(callback).__name__)}.{hint} Subclass "
                "Callback and write on_epoch_end(self, epoch, run, logs)."
            )
    # explicit names first, so that a default name never takes the name that the user chose
    used_names: set[str] = set()
    for callback in callback_list:
        if callback.name in used_names:
            raise ValueError(
                f"Trainer.fit: expected callbacks of different names, received two named "
                f"{callback.name!r}. Rename the second callback: {type(callback).__name__}(..., "
                f"name={callback.name + '_1'!r})."
            )
        if callback.name is not None:
            used_names.add(callback.name)
    return tuple(
        callback if callback.name is not None else _named(callback, used_names)
        for callback in callback_list
    )


def _named(callback: Callback, used_names: set[str]) -> Callback:
    name = base = default_name(callback)
    number = 0
    while name in used_names:
        number += 1
        name = f"{base}_{number}"
    used_names.add(name)
    # not dataclasses.replace: a subclass may define another constructor
    renamed = copy.copy(callback)
    object.__setattr__(renamed, "name", name)
    return renamed


def check_logs(callbacks: Sequence[Callback], names: Sequence[str]) -> None:
    """Raises an error before the first step if a callback needs a log that the training lacks.

    Args:
        callbacks: the callbacks.
        names: names of all logs that an epoch of the training can have.

    Example:
        >>> import fkeras as fk
        >>> stop = fk.callbacks.EarlyStopping("val_loss")
        >>> try:
        ...     check_logs((stop,), ("loss",))
        ... except ValueError as error:
        ...     print("val_loss" in str(error))
        True
    """
    for callback in callbacks:
        callback.check_logs(tuple(names))


def call(
    callbacks: tuple[Callback, ...],
    hook: str,
    run: TrainState[Any],
    *arguments: Any,
    group: Alone = ALONE,
) -> tuple[Any, bool]:
    """Calls one hook of each callback in order and returns `(run, stop)`.

    Each callback receives the run that the previous callback returned. In a group, a callback that only
    reports runs in the first process; the other callbacks run in all processes, and must make
    the same changes to the run. If a callback stops the training in one process, the training stops in all processes.

    Args:
        callbacks: the callbacks.
        hook: name of the hook.
        run: the current run.
        *arguments: other arguments of the hook; the first precedes the run.
        group: the processes that train together.

    Raises:
        TypeError: if a hook returns a value other than None, a `TrainState` or a `Stop`.
        ProcessError: if the callbacks of two processes change the run differently.

    Example:
        >>> import fkeras as fk
        >>> call((fk.Callback(),), "on_train_begin", "a run")
        ('a run', False)
    """
    stop, run_before = False, run
    for callback in callbacks:
        joint = group.count > 1 and callback.reports_only
        gathers = joint and callback.reads_weights and hook != "on_batch_end"
        seen_run = gathered(run, group, only_leader=True) if gathers else run
        if joint and not group.leads:
            continue
        hook_arguments = (arguments[0], seen_run, *arguments[1:]) if arguments else (seen_run,)
        result = getattr(callback, hook)(*hook_arguments)
        # after a `Stop`, the hooks of the other callbacks still run
        if isinstance(result, Stop):
            stop, result = True, result.run
        if result is None:
            continue
        if not isinstance(result, type(run)):
            raise TypeError(
                f"{type(callback).__name__}.{hook}: expected None, a TrainState or a Stop, "
                f"returned {type(result).__name__}. Return run.replace(...) to change the training."
            )
        if joint:
            # a reporting callback may remember values, in the process in which it runs
            own = {k: v for k, v in result.memory.items() if k == callback.name}
            result = run.replace(memory={**run.memory, **own})
        run = result
    if group.count > 1 and callbacks:
        stop = any(group.agree(stop, f"the results of {hook}"))
        own_memories = {str(c.name) for c in callbacks if c.reports_only}
        facts = run_facts(run, own_memories) if run is not run_before else {}
        group.require_equal(f"run after {hook} of the callbacks", facts)
    return run, stop
