"""Runs one function at a time in a second thread; `wait` returns the function's error."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs functions one after the other, each in a new thread."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, function: Callable[[], None]) -> None:
        """Starts a function; call `wait` for the previous function first."""

        def run() -> None:
            try:
                function()
            except BaseException as error:
                self._error = error

        # Not a daemon thread: Python waits for the save when the main thread ends.
        self._thread = threading.Thread(target=run, name="fkeras-checkpoint")
        self._thread.start()

    def wait(self) -> BaseException | None:
        """Waits until the function ends; returns its error once, or None."""
        if self._thread is not None:
            if self._thread.ident is not None:  # None: an interrupt came before the start
                self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error
