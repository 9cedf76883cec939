"""`Profiler`: a trace of some steps for TensorBoard or Perfetto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from fkeras.engine import option
from fkeras.engine.config.converters import integer
from fkeras.engine.config.field_types import Integer, Path
from fkeras.files.atomic import as_path
from fkeras.training.callbacks.base import files
from fkeras.training.callbacks.base.callback import Callback

_WHERE = "Profiler"
_BEFORE, _TRACING, _OVER = 0, 1, 2


class Profiler(Callback):
    """Records what the device and Python do from step `first` to step `last`.

    A trace begins and ends between two calls of the device, each of which may be several steps:
    with the call after step `first - 1` was reached, and at the end of the one that reaches `last`
    (for exactly these steps `steps_per_execution=1`). Look at it with TensorBoard
    (`tensorboard --logdir DIR`, with the plugin `xprof`) or at https://ui.perfetto.dev.

    Args:
        log_dir: the folder for the trace; it is made.
        first: the first step to be recorded, counted from 1 since `init`; the first ones of a
            process compile.
        last: the last one.

    Raises:
        ValueError: where `last` is before `first`.
        OSError: where nothing can be written into the folder.
        RuntimeError: where another trace is being recorded.

    Example:
        >>> from fkeras.training.callbacks import Profiler
        >>> Profiler("logs/profile", first=10, last=20)
        Profiler('logs/profile')
    """

    log_dir: Path = option(default="logs", convert=as_path)
    first: Integer = option(default=10, convert=integer(minimum=1))
    last: Integer = option(default=20, convert=integer(minimum=1))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last < self.first:
            raise ValueError(
                f"{_WHERE}: expected last to be no less than first, received first={self.first} and "
                f"last={self.last}. Write first={self.last}, last={self.first}."
            )

    def on_train_begin(self, run: Any) -> Any:
        files.require_folder(_WHERE, "log_dir", self.log_dir)
        phase = int(self.recall(run, _BEFORE))
        # a trace that an interrupted process had begun is lost
        run = self.remember(run, _BEFORE) if phase == _TRACING else run
        return self._begun(run) if int(run.step) + 1 >= self.first else run

    def on_batch_end(self, step: int, run: Any, logs: Mapping[str, float]) -> Any:
        phase = int(self.recall(run, _BEFORE))
        if phase == _TRACING and step >= self.last:
            return self._ended(run)
        if phase == _BEFORE and step + 1 >= self.first:
            return self._begun(run)
        return None

    def on_train_end(self, run: Any) -> Any:
        return self._ended(run) if int(self.recall(run, _BEFORE)) == _TRACING else None

    def _begun(self, run: Any) -> Any:
        if int(self.recall(run, _BEFORE)) != _BEFORE:
            return run
        try:
            jax.profiler.start_trace(self.log_dir)
        except RuntimeError as error:
            raise RuntimeError(
                f"{_WHERE}: another trace is being recorded ({error}). End it with "
                "jax.profiler.stop_trace(), and use one Profiler at a time."
            ) from error
        return self.remember(run, _TRACING)

    def _ended(self, run: Any) -> Any:
        jax.block_until_ready(run)
        jax.profiler.stop_trace()
        return self.remember(run, _OVER)
