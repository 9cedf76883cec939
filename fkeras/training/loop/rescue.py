"""Exceptions that leave `fit` carry the run.

A `Point` is a state from which a training continues exactly: nothing is repeated, nothing skipped.
`Current` knows the newest point of a training at any moment. The hooks of one event count together
with the step or epoch they belong to: if one of them raises, the point is the one before the event,
and a resumed training calls all of them again.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax

from fkeras.training.loop.interrupts import Interrupted, Interrupts
from fkeras.training.records.state import TrainState

# where the run is kept if the attribute `run` of an exception cannot be set
_KEY = "_fkeras_run"
_CTRL_C = (
    "Trainer.fit: ended by Ctrl-C. `except KeyboardInterrupt as error: run = error.run` returns "
    "the training so far; fit(..., checkpoint='folder') saves it too."
)


@dataclasses.dataclass(frozen=True)
class Point:
    """A state from which a training continues exactly.

    Attributes:
        run: the run, with its position.
        finished: how many epochs this call of `fit` finished.
        stopped: whether a callback ended the training.
        stopping: whether a callback asked to end the training after the running epoch.
        loader: the state of the source of batches, if the source has one.
        skip: how many batches of the source come between that state and the position.
        pending: whether `on_batch_end` of the last step has to be called.
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
        """Compares points of one training: the later one is larger."""
        epoch, batch = map(int, self.run.position)
        return epoch, batch, not self.pending


class Current:
    """The newest point of a training, and its logs; as a context, attaches the run to exceptions.

    Args:
        run: the run that `fit` received.
    """

    def __init__(self, run: Any):
        self.given = run
        self.interrupts = Interrupts()
        self.point: Callable[[], Point] = lambda: Point(run)  # one assignment publishes a point
        self.final: TrainState | None = None
        self._untouched: Point | None = None
        self._history: dict[str, list[Any]] = {}
        self._epochs: list[int] = []
        self._finished: list[tuple[int, Mapping[str, Any]]] = []

    def stand(self, point: Point) -> None:
        """Makes `point` the newest one."""
        self.point = lambda: point

    def begin(self, point: Point, changed: bool) -> None:
        """Makes the point before the first step the newest one.

        Args:
            point: the point.
            changed: whether a callback changed the run.
        """
        self._untouched = None if changed else point
        self.stand(point)

    def follow(self, point: Callable[[], Point]) -> None:
        """Asks a running epoch for the newest point."""
        self.point = point

    def end_epoch(self, point: Point, epoch: int, logs: Mapping[str, Any]) -> None:
        """Makes the point after an epoch the newest one, with the logs of the epoch."""
        del self._finished[point.finished - 1 :]
        self._finished.append((epoch, logs))
        self.stand(point)

    def restore(self, point: Point, history: Mapping[str, list[Any]], epochs: list[int]) -> None:
        """Continues a saved training."""
        self._history, self._epochs = dict(history), list(epochs)
        self.stand(point)

    def history(self, point: Point) -> tuple[dict[str, list[Any]], list[int]]:
        """`(history, epochs)`: the logs by name and the numbers of the epochs, up to a point."""
        history = {name: list(values) for name, values in self._history.items()}
        epochs = list(self._epochs)
        for epoch, logs in self._finished[: point.finished]:
            epochs.append(epoch)
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
        return history, epochs

    def run(self) -> TrainState:
        """The newest run whose arrays can be used; before the first step the one that was given."""
        if self.final is not None and is_usable(self.final):
            return self.final
        point = self.point()
        return self.given if point is self._untouched or not is_usable(point.run) else point.run

    def __enter__(self) -> Self:
        self.interrupts.install()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.interrupts.hold()
        known = isinstance(self.given, TrainState)  # a wrong argument is reported as it is
        run = None
        if known and error is not None:
            run = self.run()
            attach(error, run)
        try:
            number = self.interrupts.finish()
        except KeyboardInterrupt:
            number = signal.SIGINT
        except BaseException as other:  # a program's own handler of SIGINT
            attach(other, self.run() if run is None else run)
            raise
        if run is not None and type(error) is KeyboardInterrupt and error.args == ():
            raise Interrupted(_CTRL_C, run).with_traceback(trace) from None
        if number is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            # a signal came while none could act
            message = _CTRL_C if number == signal.SIGINT else f"Trainer.fit: signal {number}."
            raise Interrupted(message, self.run(), number) from error


def is_usable(tree: Any) -> bool:
    """Whether no array of a tree was donated or deleted."""
    return not any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree.leaves(tree))


def attach(error: BaseException, run: TrainState) -> None:
    """Sets `error.run`; where that is impossible, `run_of` finds the run nevertheless.

    An exception class with a read-only attribute `run` keeps the attribute. Another value that
    `run` had is replaced, and a note of the exception shows it.
    """
    own = _own_run(error)
    if not _set_run(error, run):
        # a property without a setter: the dictionary of an exception takes any key
        BaseException.__getattribute__(error, "__dict__")[_KEY] = run
        add_note(
            error,
            "Trainer.fit: the attribute `run` of this exception is read-only; "
            "fk.training.run_of(error) returns the run of the training.",
        )
    elif own is not None and not isinstance(own, TrainState):
        add_note(error, f"Trainer.fit: error.run is the run of the training; it was {_shown(own)}.")


def _own_run(error: BaseException) -> Any:
    try:
        return getattr(error, "run", None)
    except Exception:
        return None


def _set_run(error: BaseException, run: TrainState) -> bool:
    for put in (setattr, BaseException.__setattr__):
        try:
            put(error, "run", run)
        except Exception:
            continue
        if _own_run(error) is run:
            return True
    return False


def _shown(value: Any) -> str:
    try:
        return repr(value)[:100]
    except Exception:
        return type(value).__name__


def add_note(error: BaseException, text: str) -> None:
    """Adds a note to an exception, whatever its class does with attributes."""
    try:
        BaseException.add_note(error, text)
    except Exception:
        notes = BaseException.__getattribute__(error, "__dict__").setdefault("__notes__", [])
        notes.append(text)


def run_of(error: BaseException) -> TrainState | None:
    """The run that an exception carries out of `fit`, or None.

    The same as `error.run`, also for an exception class whose attribute `run` is read-only, and for
    an exception that was raised from the one that left `fit`.

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
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        kept = BaseException.__getattribute__(following, "__dict__").get(_KEY)
        run = _own_run(following) if kept is None else kept
        if isinstance(run, TrainState):
            return run
        following = following.__cause__ or following.__context__
    return None
