"""SIGTERM and Ctrl-C during a training that saves: saved, and out.

Between two calls of the device the loop itself sees the signal, saves and leaves. While it cannot,
because a program is compiled, a validation runs or the data stall, a second thread waits for some
seconds, saves what was settled last, and ends the process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

import jax

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(KeyboardInterrupt):
    """A training was told to end by a signal.

    Attributes:
        run: the `TrainState` when it ended.
        signal: the number of the signal.

    Example:
        >>> import fkeras as fk
        >>> issubclass(fk.Interrupted, KeyboardInterrupt)
        True
    """

    def __init__(self, message: str, run: Any, signal_number: int):
        super().__init__(message)
        self.run, self.signal = run, signal_number


def interrupted(error: KeyboardInterrupt, current: Callable[[], Any]) -> KeyboardInterrupt:
    """The error of a training that Ctrl-C ended, with the run as far as it came."""
    if isinstance(error, Interrupted):
        return error
    run = current()
    if any(getattr(leaf, "is_deleted", bool)() for leaf in jax.tree.leaves(run)):
        return error  # it came in the middle of a call that used the buffers up
    return Interrupted(
        "Trainer.fit: ended by Ctrl-C. `except KeyboardInterrupt as error: run = error.run` has "
        "what was trained; fit(..., checkpoint='folder') saves it too.",
        run,
        int(signal.SIGINT),
    )


class Interrupts:
    """Watches for signals while it is entered; in another thread than the main one it does nothing.

    Args:
        save: saves what was settled last, waits until it is written, and returns where.
        patience: how many seconds the loop has to leave by itself.
    """

    def __init__(self, save: Callable[[], Any], patience: float = 4.0):
        self.save, self.patience = save, patience
        self.received: int | None = None
        self._left = threading.Event()
        self._old: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._wakeup = -1
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in _SIGNALS:
            self._old[number] = signal.signal(number, self._handle)
        if os.name == "posix":
            # the interpreter writes the signal's number into the pipe at once, whatever the main
            # thread is doing; the handler itself waits until Python runs again
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._watch, name="fkeras-signals", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._left.set()
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup)
            os.write(self._pipe[1], b"\0")
            self._thread.join()
            for end in self._pipe:
                os.close(end)
        for number, old in self._old.items():
            signal.signal(number, old)

    def _handle(self, number: int, _: Any) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice: at once
        self.received = number

    def _watch(self) -> None:
        while not self._left.is_set():
            select.select([self._pipe[0]], [], [])
            numbers = [n for n in os.read(self._pipe[0], 64) if n in _SIGNALS]
            if numbers and not self._left.wait(self.patience):
                self._leave(numbers[0])

    def _leave(self, number: int) -> None:
        where = self.save()
        print(f"\nfkeras: {signal.Signals(number).name}, saved in {where}", file=sys.stderr)
        if number == signal.SIGINT and hasattr(sys, "ps1"):
            return  # somebody sits at it: the loop raises as soon as it can
        sys.stderr.flush()
        os._exit(128 + number)
