"""Attaches the run to exceptions that leave `fit`.

A `Point` is a state from which a training continues exactly: no step is repeated or skipped.
`Current` holds the newest point of a training at any moment. All hooks of one event belong to the
step or epoch of the event: if one hook raises, the newest point is the point before the event, and
a resumed training calls all hooks of the event again.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax

from fkeras.engine.messages.errors import add_note
from fkeras.training.loop.interrupts import Interrupted, Interrupts
from fkeras.training.records.state import TrainState

# Key in the `__dict__` of an exception whose attribute `run` is read-only.
_KEY = "_fkeras_run"
_CTRL_C = (
    "Trainer.fit: ended by Ctrl-C. `except KeyboardInterrupt as error: run = error.run` returns "
    "the training so far; fit(..., checkpoint='folder') saves it too."
)


@dataclasses.dataclass(frozen=True)
class Point:
    """State from which a training continues exactly.

    Attributes:
        run: the run, with its position.
        finished: number of epochs that this call of `fit` finished.
        stopped: whether a callback ended the training.
        stopping: whether a callback asked to end the training after the current epoch.
        loader: the state of the data source, if the source has a state.
        skip: number of batches of the source from that state to the position.
        pending: whether `on_batch_end` of the last step is still due.
    """

    run: TrainState
    finished: int = 0
    stopped: bool = False
    stopping: bool = False
    loader: Any = None
    skip: int = 0
    pending: bool = False

    @property
    def order(self) -> tuple[int, int, bool]:
        """Sort key for the points of one training: later points are larger."""
        epoch, batch = map(int, self.run.position)
        return epoch, batch, not self.pending


class Current:
    """Newest point and logs of a training; as a context manager, attaches the run to exceptions.

    Args:
        run: the run that `fit` received.
    """

    def __init__(self, run: Any):
        self.initial_run = run
        self.interrupts = Interrupts()
        # The thread that watches signals calls `point` at any moment. A callable instead of a
        # value: a running epoch computes its newest point only when asked, and replacing the
        # callable is one atomic assignment.
        self.point: Callable[[], Point] = lambda: Point(run)
        self.dispatched: Callable[[], tuple[int, Any]] = _nothing_dispatched
        self.final: TrainState | None = None
        # While no step was taken and no callback changed the run, exceptions carry the very
        # object that `fit` received, not a copy that was placed on devices.
        self._untouched: Point | None = None
        self._history: dict[str, list[Any]] = {}
        self._epochs: list[int] = []
        self._finished: list[tuple[int, Mapping[str, Any]]] = []

    def stand(self, point: Point) -> None:
        """Makes `point` the newest one."""
        self.point, self.dispatched = (lambda: point), _nothing_dispatched

    def begin(self, point: Point, changed: bool) -> None:
        """Makes the point before the first step the newest one.

        Args:
            changed: whether a callback changed the run.
        """
        self._untouched = None if changed else point
        self.stand(point)

    def follow(self, point: Callable[[], Point], dispatched: Callable[[], tuple[int, Any]]) -> None:
        """Makes a running epoch the source of the newest point."""
        self.point, self.dispatched = point, dispatched

    def end_epoch(self, point: Point, epoch: int, logs: Mapping[str, Any]) -> None:
        """Makes the point after an epoch the newest one, and records the logs of the epoch."""
        # The logs are recorded before the point: `history(point)` reads `point.finished` entries.
        del self._finished[point.finished - 1 :]
        self._finished.append((epoch, logs))
        self.stand(point)

    def restore(self, point: Point, history: Mapping[str, list[Any]], epochs: list[int]) -> None:
        """Makes the point of a checkpoint the newest one, with its history."""
        self._history, self._epochs = dict(history), list(epochs)
        self.stand(point)

    def history(self, point: Point) -> tuple[dict[str, list[Any]], list[int]]:
        """Returns `(history, epochs)` up to a point: logs by name, and the epochs' numbers."""
        history = {name: list(values) for name, values in self._history.items()}
        epochs = list(self._epochs)
        for epoch, logs in self._finished[: point.finished]:
            epochs.append(epoch)
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
        return history, epochs

    def run(self) -> TrainState:
        """Returns the newest run with usable arrays; before the first step, the run given to `fit`.

        A run is not usable if a call donated its arrays.
        """
        if self.final is not None and is_usable(self.final):
            return self.final
        point = self.point()
        return (
            self.initial_run if point is self._untouched or not is_usable(point.run) else point.run
        )

    def __enter__(self) -> Self:
        self.interrupts.install()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.interrupts.hold()  # a Ctrl-C in the lines below would lose the run
        is_run = isinstance(
            self.initial_run, TrainState
        )  # not a run: the error is about that argument
        run = None
        if is_run and error is not None:
            run = self.run()
            attach(error, run)
        try:
            number = self.interrupts.finish()
        except KeyboardInterrupt:
            number = signal.SIGINT
        except BaseException as handler_error:  # raised by the program's handler of SIGINT
            attach(handler_error, self.run() if run is None else run)
            raise
        # Replace only the exception of Python's default handler: an exception with arguments or
        # of another class comes from the program, which may catch exactly that object.
        if run is not None and type(error) is KeyboardInterrupt and error.args == ():
            raise Interrupted(_CTRL_C, run).with_traceback(trace) from None
        if number is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            # A signal arrived while signals were held: `fit` must not return as if none had.
            message = _CTRL_C if number == signal.SIGINT else f"Trainer.fit: signal {number}."
            raise Interrupted(message, self.run(), number) from error


def _nothing_dispatched() -> tuple[int, Any]:
    return 0, ()


def is_usable(tree: Any) -> bool:
    """Returns whether no array of a tree was donated or deleted."""
    return not any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree.leaves(tree))


def attach(error: BaseException, run: TrainState) -> None:
    """Sets `error.run`; if the attribute is read-only, stores the run where `run_of` finds it.

    A value of another type in `error.run` is replaced, and a note of the exception shows the value.
    """
    # Exceptions of user code and libraries may define `run` or `__setattr__` in any way. No
    # failure here may replace the exception that the user has to see.
    old_value = _run_attribute(error)
    if not _set_run(error, run):
        # A property without a setter: the `__dict__` of an exception accepts any key.
        BaseException.__getattribute__(error, "__dict__")[_KEY] = run
        add_note(
            error,
            "Trainer.fit: the attribute `run` of this exception is read-only; "
            "fk.training.run_of(error) returns the run of the training.",
        )
    elif old_value is not None and not isinstance(old_value, TrainState):
        add_note(
            error,
            f"Trainer.fit: error.run is the run of the training; its previous value was "
            f"{_shown(old_value)}.",
        )


def _run_attribute(error: BaseException) -> Any:
    try:
        return getattr(error, "run", None)
    except Exception:
        return None


def _set_run(error: BaseException, run: TrainState) -> bool:
    for set_attribute in (setattr, BaseException.__setattr__):
        try:
            set_attribute(error, "run", run)
        except Exception:
            continue
        if _run_attribute(error) is run:
            return True
    return False


def _shown(value: Any) -> str:
    try:
        return repr(value)[:100]
    except Exception:
        return type(value).__name__


def run_of(error: BaseException) -> TrainState | None:
    """Returns the run that an exception carries out of `fit`, or None.

    The result equals `error.run`. The function also works for an exception class with a read-only
    attribute `run`, and for an exception that was raised from the exception of `fit`.

    Args:
        error: any exception.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> def stop(epoch, run, logs):
        ...     raise OSError("the disk is gone")
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> callback = fk.callbacks.LambdaCallback(on_epoch_end=stop)
        >>> try:
        ...     trainer.fit(run, x, y, callbacks=[callback], verbose=0)
        ... except OSError as error:
        ...     print(fk.training.run_of(error) is error.run, int(error.run.step))
        True 1
    """
    seen: set[int] = set()  # `__cause__` and `__context__` may form a cycle
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        stored_run = BaseException.__getattribute__(current, "__dict__").get(_KEY)
        run = _run_attribute(current) if stored_run is None else stored_run
        if isinstance(run, TrainState):
            return run
        current = current.__cause__ or current.__context__
    return None
