"""Handles signals during a training: Ctrl-C leaves with a consistent run, SIGTERM saves first.

Without checkpoints, the previous handler of SIGINT acts at once, except while a call overwrites
the run or `fit` attaches the run to an exception: then the signal is delayed. With checkpoints,
the training saves first. Between two device calls the loop sees the signal, saves and raises.
While the loop is blocked (compilation, validation, stalled data), a second thread waits some
seconds, saves the newest finished step, and ends the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A second Ctrl-C within this many seconds is delayed: the exception of the first one is still
# propagating, and a second exception would interrupt the cleanup code on its way.
_TOGETHER = 0.5
# The third Ctrl-C leaves although the save is not written yet: the file system may hang.
_ABANDON = 3


class Interrupted(KeyboardInterrupt):
    """Exception raised when a signal ends a training.

    Attributes:
        run: the `TrainState` at the end of the training.
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
    """Receives the signals of one training; does nothing outside the main thread.

    Args:
        patience: seconds that the loop has to react to a signal before the second thread saves
            and ends the process.
    """

    def __init__(self, patience: float = 4.0):
        self.patience = patience
        self.received: int | None = None  # the signal after which the loop saves and raises
        self.delayed = 0  # number of signals that arrived while signals were held
        self._held = 0
        self._raised = -_TOGETHER
        self._save: Callable[[], Any] | None = None
        self._old: dict[int, Any] = {}
        self._left = threading.Event()

    def install(self) -> None:
        """Installs the handler of SIGINT, unless the program ignores SIGINT or handles it in C."""
        # Python allows `signal.signal` in the main thread alone. SIG_IGN, SIG_DFL and None (a
        # handler from C) are not callable: the program chose them, so they stay.
        main = threading.current_thread() is threading.main_thread()
        if main and callable(signal.getsignal(signal.SIGINT)):
            self._old[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)

    def _restore(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            old_handler = self._old[number]
            signal.signal(number, signal.SIG_DFL if old_handler is None else old_handler)
            del self._old[number]

    def hold(self) -> None:
        """Delays all later signals; a third Ctrl-C acts nevertheless."""
        self._held += 1

    def held(self) -> Self:
        """Returns a context that delays signals until the end of the block."""
        return self

    # A generator as a context would set `__traceback__`, which exceptions of users may reject.
    def __enter__(self) -> None:
        self._held += 1

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._held -= 1
        # If the block raised, that exception matters more than the signal, which `finish` delivers
        # later.
        if kind is None:
            self.deliver()

    def wanted(self) -> bool:
        """Returns whether a signal waits for the loop."""
        return self.received is not None or self.delayed > 0

    def deliver(self) -> None:
        """Delivers a delayed signal, unless signals are held."""
        if self.delayed and not self._held:
            self.delayed = 0
            if self._save is None:
                self._old[signal.SIGINT](signal.SIGINT, None)
            else:
                self.received = self.received or signal.SIGINT

    def finish(self) -> int | None:
        """Restores the handlers, and delivers a delayed signal to the previous handler.

        Returns:
            The number of a signal that arrived too late for the loop to react, or None.
        """
        old_handler = self._old.get(signal.SIGINT)
        self._restore(list(self._old))
        if self.received is None and self.delayed and old_handler is not None:
            old_handler(signal.SIGINT, None)
        return self.received

    def armed(self, save: Callable[[], Any] | None) -> contextlib.ExitStack:
        """Makes SIGTERM and SIGINT end the training with a save, until the result is closed.

        Args:
            save: saves the newest finished step, waits until the files are written, and returns
                the folder; None if only the loop can save.
        """
        with contextlib.ExitStack() as stack:
            if threading.current_thread() is not threading.main_thread():
                return stack.pop_all()
            self._save = save or _nothing_saved
            stack.callback(self._disarm)
            added_signals = [number for number in _SIGNALS if number not in self._old]
            stack.callback(self._restore, added_signals)
            for number in added_signals:
                self._old[number] = signal.signal(number, self._handle)
            if save is not None and os.name == "posix":
                self._begin_watch(stack)
            return stack.pop_all()

    def _disarm(self) -> None:
        self._save = None

    def _begin_watch(self, stack: contextlib.ExitStack) -> None:
        # Python calls a handler only between bytecodes of the main thread, so never during a long
        # XLA compilation. The wakeup descriptor is written by the C handler at once.
        pipe = os.pipe()
        os.set_blocking(pipe[1], False)  # required by `set_wakeup_fd`: a C handler may not block
        wakeup = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
        thread = threading.Thread(
            target=self._watch, args=(pipe[0],), name="fkeras-signals", daemon=True
        )
        thread.start()
        stack.callback(self._end_watch, thread, pipe, wakeup)

    def _end_watch(self, thread: threading.Thread, pipe: Sequence[int], wakeup: int) -> None:
        self._left.set()
        signal.set_wakeup_fd(wakeup)
        os.write(pipe[1], b"\0")  # wakes the thread; 0 is no signal
        thread.join()
        for end in pipe:
            os.close(end)

    def _handle(self, number: int, frame: Any) -> None:
        if self._held:
            self._delay(number)
            return
        if self._save is not None and (self.received is None or number != signal.SIGINT):
            # Only a note for the loop: raising here could interrupt a half-written save.
            self.received = number
            return
        now = time.monotonic()
        if now - self._raised < _TOGETHER:
            self.delayed += 1
            return
        try:
            if self._save is not None:
                raise KeyboardInterrupt  # the second Ctrl-C: the user does not want to wait
            self._old[number](number, frame)
        except BaseException:
            self._raised = now
            raise

    def _delay(self, number: int) -> None:
        if number != signal.SIGINT:
            self.received = number  # SIGTERM never raises here: `finish` returns the number
            return
        self.delayed += 1
        if self.delayed >= _ABANDON:
            raise KeyboardInterrupt
        if self._save is not None:
            presses_left = _ABANDON - self.delayed
            print(
                f"\nfkeras: saving the training; press Ctrl-C {presses_left} more times to exit "
                "without saving",
                file=sys.stderr,
            )

    def _watch(self, pipe: int) -> None:
        while not self._left.is_set():
            select.select([pipe], [], [])
            # Other signals of the program (SIGCHLD, SIGALRM) write into the same descriptor.
            numbers = [n for n in os.read(pipe, 64) if n in _SIGNALS]
            if numbers and not self._left.wait(self.patience):
                self._leave(numbers[0])

    def _leave(self, number: int) -> None:
        save, name = self._save, signal.Signals(number).name
        if save is None:
            return  # the training ended in the meantime
        try:
            print(f"\nfkeras: {name}, saved in {save()}", file=sys.stderr)
        except Exception as error:  # a failed save must not keep the process alive
            print(f"\nfkeras: {name}, saving failed: {error!r}", file=sys.stderr)
        if number == signal.SIGINT and hasattr(sys, "ps1"):
            return  # an interactive session must survive: the loop raises as soon as it can
        sys.stderr.flush()
        # `sys.exit` would end this thread alone, and the main thread may be blocked in C code.
        # 128 + number is the exit status that a shell shows for a process ended by a signal.
        os._exit(128 + number)


def _nothing_saved() -> None:
    """Marks that the loop saves at a signal, and no second thread."""
