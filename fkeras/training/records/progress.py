"""Prints the progress bar: redrawn on a terminal, one plain line per epoch elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

_WIDTH = 20
_INTERVAL = 0.1  # seconds between two drawings


def format_logs(logs: Mapping[str, float]) -> str:
    """Returns the names and values of logs as text, in the order of the logs."""
    return "  ".join(f"{name} {_number(value)}" for name, value in logs.items())


def _number(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_number, value))}]"
    small = value != 0 and abs(value) < 1e-3
    return f"{value:.3e}" if small or abs(value) >= 1e5 else f"{value:.4f}"


def format_time(seconds: float) -> str:
    """Returns a duration as text in seconds, milliseconds or microseconds."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


class Progress:
    """Progress bar of an epoch.

    Args:
        verbose: 0 for no output, 2 for a line per epoch; 1 or "auto" for a bar that is redrawn on
            a terminal, and for a line per epoch elsewhere.
        epochs: number of epochs.
        steps: number of steps of an epoch; None if unknown.
        stream: output stream; the standard output by default.
        title: text in place of "Epoch 1/2".

    Example:
        >>> import io
        >>> stream = io.StringIO()
        >>> progress = Progress(2, epochs=1, steps=2, stream=stream)
        >>> progress.start(0)
        >>> progress.end({"loss": 0.5}, rows=64)
        >>> stream.getvalue().startswith("Epoch 1/1  2/2")
        True
    """

    def __init__(
        self,
        verbose: int | str,
        epochs: int,
        steps: int | None,
        stream: TextIO | None = None,
        title: str = "",
    ):
        if not isinstance(verbose, int | str) or verbose not in (0, 1, 2, "auto"):
            raise ValueError(f"verbose: expected 0, 1, 2 or 'auto', received {verbose!r}.")
        self.stream = sys.stdout if stream is None else stream
        terminal = bool(getattr(self.stream, "isatty", lambda: False)())
        # A notebook redraws a line after a carriage return, but has no code to erase the rest.
        self.notebook = type(self.stream).__module__.startswith("ipykernel")
        live = terminal or self.notebook
        self.verbose = (1 if live else 2) if verbose in (1, "auto") else verbose
        self.width = 0
        self.epochs, self.steps, self.title = epochs, steps, title
        self.epoch, self.compiling = 0, 0.0
        self.stopped: float | None = None
        self.began = self.drawn = time.perf_counter()

    def start(self, epoch: int) -> None:
        """Starts the clock of an epoch."""
        self.epoch, self.compiling = epoch, 0.0
        self.stopped = None
        self.began = self.drawn = time.perf_counter()

    @property
    def head(self) -> str:
        return self.title or f"Epoch {self.epoch + 1}/{self.epochs}"

    def compile_starts(self) -> None:
        """Shows that the first step is being compiled."""
        if self.verbose == 1:
            self._draw(f"{self.head}  compiling ...")

    def compiled(self) -> None:
        """Shows the time of the compilation, after the first step."""
        self.compiling = time.perf_counter() - self.began
        self.drawn = 0.0  # the next step redraws the line at once
        if self.verbose == 1:
            self._draw(f"{self.head}  compiled in {format_time(self.compiling)}")

    def step(self, number: int, rows: int, logs: Callable[[], Mapping[str, float]]) -> None:
        """Shows the progress after step `number`; calls `logs` only if the line is redrawn."""
        # Reading the logs waits for the device. The last step is left to `end`.
        now = time.perf_counter()
        if self.verbose == 1 and now - self.drawn >= _INTERVAL and number != self.steps:
            self.drawn = now
            self._draw(self._line(number, rows, logs()))

    def stop(self) -> None:
        """Stops the clock: the time of a validation does not count as time of the steps."""
        self.stopped = time.perf_counter()

    def end(self, logs: Mapping[str, float], rows: int, number: int | None = None) -> None:
        """Writes the line of a finished epoch; `number` is the number of steps, if known only now."""
        if self.verbose:
            self.steps = number if self.steps is None else self.steps
            line = self._line(number or self.steps or 0, rows, logs)
            if self.verbose == 1:
                self._draw(line)
                line = ""
            self._write(f"{line}\n")

    def _line(self, number: int, rows: int, logs: Mapping[str, float]) -> str:
        filled_width = round(_WIDTH * number / self.steps) if self.steps else 0
        bar = "━" * filled_width + " " * (_WIDTH - filled_width) if self.verbose == 1 else "━━━━"
        now = time.perf_counter() if self.stopped is None else self.stopped
        # The speed excludes the first step, whose time includes the compilation.
        seconds = max(now - self.began - self.compiling, 1e-9)
        timed_steps = max(number - (1 if self.compiling else 0), 1)
        share = timed_steps / number if number else 1.0
        speed = f"{format_time(seconds / timed_steps)}/step  {rows * share / seconds:.0f} ex/s"
        note = f"  (compile {format_time(self.compiling)})" if self.compiling > 0.1 else ""
        steps = "?" if self.steps is None else self.steps
        return f"{self.head}  {number}/{steps} {bar} {speed}  {format_logs(logs)}{note}"

    def _draw(self, line: str) -> None:
        """Overwrites the current line."""
        eraser = " " * max(self.width - len(line), 0) if self.notebook else "\x1b[K"
        self.width = len(line)
        self._write(f"\r{line}{eraser}")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
