"""One thing at a time in a second thread, whose error comes out where it is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs functions one after the other, each in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, function: Callable[[], None]) -> None:
        """Begins to run a function; the one before must have been waited for."""

        def run() -> None:
            try:
                function()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="fkeras-checkpoint")
        self._thread.start()

    def wait(self) -> BaseException | None:
        """Waits for the function's end; its error, once, or None."""
        if self._thread is not None:
            if self._thread.ident is not None:  # otherwise an interrupt kept it from starting
                self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error
