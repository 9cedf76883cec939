"""Attaches the run to exceptions that leave `fit`."""

from __future__ import annotations

import signal
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import jax

from fkeras.engine.messages.errors import add_note
from fkeras.training.loop.interrupts import Interrupted, Interrupts
from fkeras.training.loop.journal import Journal, Point
from fkeras.training.records.state import TrainState

# Key in the `__dict__` of an exception whose attribute `run` is read-only.
_KEY = "_fkeras_run"
_CTRL_C = (
    "{}: ended by Ctrl-C. `except KeyboardInterrupt as error: run = error.run` returns the training "
    "so far{}."
)
_SAVES = "; fit(..., checkpoint='folder') saves it too"


class Newest(Protocol):
    """The newest run of a training.

    Attributes:
        received: the run that the training received.
        interrupts: the signals of the training.
    """

    received: Any
    interrupts: Interrupts

    def run(self) -> TrainState:
        """Returns the run after the last finished step."""
        ...


N = TypeVar("N", bound=Newest)


class Rescued(Generic[N]):
    """Context of a training: attaches the newest run to exceptions, and delays signals meanwhile.

    Args:
        newest: the newest run; the context yields this value.
        call: name of the call in messages.
    """

    def __init__(self, newest: N, call: str):
        self._newest = newest
        self._ctrl_c, self._call = _CTRL_C.format(call, _SAVES * (call == "Trainer.fit")), call

    def __enter__(self) -> N:
        self._newest.interrupts.install()
        return self._newest

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        newest = self._newest
        newest.interrupts.hold()  # a Ctrl-C in the lines below would lose the run
        run = None
        # not a run: the error is about that argument
        if isinstance(newest.received, TrainState) and error is not None:
            run = newest.run()
            attach(error, run)
        try:
            number = newest.interrupts.finish()
        except KeyboardInterrupt:
            number = signal.SIGINT
        except BaseException as handler_error:  # raised by the program's handler of SIGINT
            attach(handler_error, newest.run() if run is None else run)
            raise
        # Replace only the exception of Python's default handler: an exception with arguments or
        # of another class comes from the program, which may catch exactly that object.
        if run is not None and type(error) is KeyboardInterrupt and error.args == ():
            raise Interrupted(self._ctrl_c, run).with_traceback(trace) from None
        if number is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            # A signal arrived while signals were held: `fit` must not return as if none had.
            message = self._ctrl_c if number == signal.SIGINT else f"{self._call}: signal {number}."
            raise Interrupted(message, newest.run(), number) from error


class Allowed:
    """Context in which JAX_TRANSFER_GUARD permits the transfers of a training."""

    def __enter__(self) -> None:
        self._guard = jax.transfer_guard("allow")
        self._guard.__enter__()

    # The guard is a generator, which would set `__traceback__` of an exception.
    def __exit__(self, *_: object) -> None:
        self._guard.__exit__(None, None, None)


class Rescue(Rescued[Journal]):
    """Context of `Trainer.fit`: yields the journal, and attaches its newest run to exceptions."""

    def __init__(self, run: TrainState):
        point = Point(run)
        super().__init__(Journal(run, point, point, point, Interrupts()), "Trainer.fit")


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


def _run_attribute(error: BaseException) -> object:
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


def _shown(value: object) -> str:
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
