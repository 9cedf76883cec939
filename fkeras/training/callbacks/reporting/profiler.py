"""`Profiler`: records a trace of some steps for TensorBoard or Perfetto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax

from fkeras.atomic_files.atomic import as_path
from fkeras.engine import option
from fkeras.engine.config.converters import integer
from fkeras.engine.config.field_types import Integer, Path
from fkeras.training.callbacks.base import files
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.records.state import TrainState

_WHERE = "Profiler"
_BEFORE, _TRACING, _OVER = 0, 1, 2


class Profiler(Callback):
    """Records a trace of the device and of Python from step `first` to step `last`.

    A trace starts and ends between device calls, each of which may take several steps: the trace
    starts after step `first - 1` and ends after the call that reaches `last`. Use
    `steps_per_execution=1` to record exactly these steps. Open the trace in TensorBoard
    (`tensorboard --logdir DIR`, with the plugin `xprof`) or at https://ui.perfetto.dev.

    Args:
        log_dir: folder for the trace; missing folders are created.
        first: first recorded step, counted from 1 since `init`. The first steps of a process
            include compilation.
        last: last recorded step.

    Raises:
        ValueError: if `last` is less than `first`.
        OSError: if the folder cannot be written.
        RuntimeError: if another trace is active.

    Example:
        >>> from fkeras.training.callbacks import Profiler
        >>> Profiler("logs/profile", first=10, last=20)
        Profiler('logs/profile')
    """

    reports_only: ClassVar[bool] = True

    log_dir: Path = option(default="logs", convert=as_path)
    first: Integer = option(default=10, convert=integer(minimum=1))
    last: Integer = option(default=20, convert=integer(minimum=1))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last < self.first:
            raise ValueError(
                f"{_WHERE}: expected last >= first, received first={self.first} and "
                f"last={self.last}. Write first={self.last}, last={self.first}."
            )

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        files.require_folder(_WHERE, "log_dir", self.log_dir)
        phase = int(self.recall(run, _BEFORE))
        # the trace of an interrupted process is lost: record a new trace
        run = self.remember(run, _BEFORE) if phase == _TRACING else run
        return self._start_trace(run) if int(run.step) + 1 >= self.first else run

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        phase = int(self.recall(run, _BEFORE))
        if phase == _TRACING and step >= self.last:
            return self._stop_trace(run)
        if phase == _BEFORE and step + 1 >= self.first:
            return self._start_trace(run)
        return None

    def on_train_end(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        return self._stop_trace(run) if int(self.recall(run, _BEFORE)) == _TRACING else None

    def _start_trace(self, run: TrainState[Any]) -> Any:
        if int(self.recall(run, _BEFORE)) != _BEFORE:
            return run
        try:
            jax.profiler.start_trace(self.log_dir)
        except RuntimeError as error:
            raise RuntimeError(
                f"{_WHERE}: another trace is active ({error}). Stop that trace with "
                "jax.profiler.stop_trace(), and use a single Profiler at a time."
            ) from error
        return self.remember(run, _TRACING)

    def _stop_trace(self, run: TrainState[Any]) -> Any:
        # dispatch is asynchronous: without waiting, the trace would miss the last steps
        jax.block_until_ready(run)
        jax.profiler.stop_trace()
        return self.remember(run, _OVER)
