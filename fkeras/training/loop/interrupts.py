"""Signals during a training: Ctrl-C at a moment when the run is whole, SIGTERM after a save.

A training without checkpoints leaves the handler of SIGINT to act at once, except while a run is
being overwritten or attached to an exception: then the signal waits. A training with checkpoints
saves first. Between two calls of the device the loop itself sees the signal, saves and leaves.
While the loop cannot, because a program is compiled, a validation runs or the data stall, a second
thread waits for some seconds, saves the newest finished step, and ends the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# seconds in which a second Ctrl-C counts as part of the first: its exception is still on its way
_TOGETHER = 0.5
# the Ctrl-C that leaves although a save is not written yet, for a file system that hangs
_ABANDON = 3


class Interrupted(KeyboardInterrupt):
    """A signal ended a training.

    Attributes:
        run: the `TrainState` when it ended.
        signal: the number of the signal.

    Example:
        >>> import fkeras as fk
        >>> issubclass(fk.Interrupted, KeyboardInterrupt)
        True
    """

    def __init__(self, message: str, run: Any = None, signal_number: int = signal.SIGINT):
        super().__init__(message)
        self.run, self.signal = run, int(signal_number)


class Interrupts:
    """Receives the signals of one training; outside the main thread it does nothing.

    Args:
        patience: how many seconds an armed loop has to leave by itself.
    """

    def __init__(self, patience: float = 4.0):
        self.patience = patience
        self.received: int | None = None  # the signal that an armed loop leaves for
        self.delayed = 0  # how many signals came while none may act
        self._held = 0
        self._raised = -_TOGETHER
        self._save: Callable[[], Any] | None = None
        self._old: dict[int, Any] = {}
        self._left = threading.Event()

    def install(self) -> None:
        """Takes over SIGINT where Python handles it, which is the case unless a program says so."""
        main = threading.current_thread() is threading.main_thread()
        if main and callable(signal.getsignal(signal.SIGINT)):
            self._old[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)

    def _restore(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            old = self._old[number]
            signal.signal(number, signal.SIG_DFL if old is None else old)
            del self._old[number]

    def hold(self) -> None:
        """Signals wait from here on; a third one acts nevertheless."""
        self._held += 1

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Signals wait until the block is over."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self.delayed and not self._held:
            self.deliver()

    def wanted(self) -> bool:
        """Whether a signal waits for the loop."""
        return self.received is not None or self.delayed > 0

    def deliver(self) -> None:
        """Lets a delayed signal act, unless signals are held."""
        if self.delayed and not self._held:
            self.delayed = 0
            if self._save is None:
                self._old[signal.SIGINT](signal.SIGINT, None)
            else:
                self.received = self.received or signal.SIGINT

    def finish(self) -> int | None:
        """Restores the handlers, and lets a delayed signal act.

        Returns:
            The number of a signal that should have ended the training and came too late, or None.
        """
        acts = self._old.get(signal.SIGINT)
        self._restore(list(self._old))
        if self.received is None and self.delayed and acts is not None:
            acts(signal.SIGINT, None)
        return self.received

    @contextlib.contextmanager
    def armed(self, save: Callable[[], Any]) -> Iterator[None]:
        """SIGTERM and SIGINT end the training with a save, inside the block.

        Args:
            save: saves the newest finished step, waits until it is written, and returns where.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._save = save
        added = [number for number in _SIGNALS if number not in self._old]
        for number in added:
            self._old[number] = signal.signal(number, self._handle)
        try:
            with self._watched():
                yield
        finally:
            self._save = None
            self._restore(added)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        if os.name != "posix":
            yield
            return
        # the interpreter writes the signal's number into the pipe at once, whatever the main
        # thread is doing; the handler itself waits until Python runs again
        pipe = os.pipe()
        os.set_blocking(pipe[1], False)
        wakeup = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
        watch = threading.Thread(
            target=self._watch, args=(pipe[0],), name="fkeras-signals", daemon=True
        )
        watch.start()
        try:
            yield
        finally:
            self._left.set()
            signal.set_wakeup_fd(wakeup)
            os.write(pipe[1], b"\0")
            watch.join()
            for end in pipe:
                os.close(end)

    def _handle(self, number: int, frame: Any) -> None:
        if self._held:
            self._delay(number)
            return
        if self._save is not None and (self.received is None or number != signal.SIGINT):
            self.received = number
            return
        now = time.monotonic()
        if now - self._raised < _TOGETHER:
            self.delayed += 1
            return
        try:
            if self._save is not None:
                raise KeyboardInterrupt  # asked twice: at once
            self._old[number](number, frame)
        except BaseException:
            self._raised = now
            raise

    def _delay(self, number: int) -> None:
        if number != signal.SIGINT:
            self.received = number
            return
        self.delayed += 1
        if self.delayed >= _ABANDON:
            raise KeyboardInterrupt
        if self._save is not None:
            left = _ABANDON - self.delayed
            print(
                f"\nfkeras: the training is being saved; {left} more Ctrl-C to leave without it",
                file=sys.stderr,
            )

    def _watch(self, pipe: int) -> None:
        while not self._left.is_set():
            select.select([pipe], [], [])
            numbers = [n for n in os.read(pipe, 64) if n in _SIGNALS]
            if numbers and not self._left.wait(self.patience):
                self._leave(numbers[0])

    def _leave(self, number: int) -> None:
        save, name = self._save, signal.Signals(number).name
        if save is None:
            return  # the training ended meanwhile
        try:
            print(f"\nfkeras: {name}, saved in {save()}", file=sys.stderr)
        except Exception as error:  # the signal ends the process in any case
            print(f"\nfkeras: {name}, could not be saved: {error!r}", file=sys.stderr)
        if number == signal.SIGINT and hasattr(sys, "ps1"):
            return  # somebody sits at it: the loop raises as soon as it can
        sys.stderr.flush()
        os._exit(128 + number)
