"""`ProgressBar`: writes a line per epoch to a stream."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras.engine import option
from fkeras.engine.config.converters import integer
from fkeras.engine.config.field_types import Integer, OptionalInteger
from fkeras.engine.messages.errors import describe_value
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.reporting import clock
from fkeras.training.records.progress import format_logs, format_time
from fkeras.training.records.state import TrainState


def _stream(value: object) -> Any:
    if value is not None and not callable(getattr(value, "write", None)):
        raise TypeError(
            f"expected a stream with a method write, received {describe_value(value)}. Pass, for "
            "example, sys.stderr or open('log.txt', 'a')."
        )
    return value


class ProgressBar(Callback):
    """Writes a line after each epoch: number of the epoch, steps, time and logs.

    `fit` already shows its progress (`verbose`). This callback writes to another stream, such as a
    file, and writes lines within an epoch.

    Args:
        stream: object with a method `write`; None for the standard output.
        epochs: total number of epochs, for display.
        every: number of steps between lines within an epoch; 0 for no such lines.

    Example:
        >>> import io, jax, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import ProgressBar
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> stream = io.StringIO()
        >>> bar = ProgressBar(stream, epochs=1)
        >>> run, _ = trainer.fit(run, x, y, epochs=1, callbacks=[bar], verbose=0)
        >>> print(stream.getvalue())
        Epoch 1/1  1 step  ...  loss 0.0000
    """

    reports_only: ClassVar[bool] = True

    stream: Any = option(default=None, convert=_stream)
    epochs: OptionalInteger = option(default=None, convert=integer(minimum=1, optional=True))
    every: Integer = option(default=0, convert=integer(minimum=0))

    @property
    def _watches_batches(self) -> bool:
        """Returns whether the callback writes lines within an epoch."""
        return self.every > 0

    def on_epoch_begin(self, epoch: int, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        return self.remember(
            run, {"began": clock.now(), "step": int(run.step), "shown": int(run.step)}
        )

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        memory = self.recall(run)
        if not self.every or memory is None or step - int(memory["shown"]) < self.every:
            return None
        self._write(int(run.position[0]), step, memory, logs)
        return self.remember(run, {**memory, "shown": step})

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        self._write(epoch, int(run.step), self.recall(run), logs)

    def _write(
        self, epoch: int, step: int, memory: Mapping[str, Any], logs: Mapping[str, float]
    ) -> None:
        head = f"Epoch {epoch + 1}" + ("" if self.epochs is None else f"/{self.epochs}")
        parts = [head]
        if memory is not None:
            steps = step - int(memory["step"])
            seconds = clock.seconds_since(memory["began"])
            parts.append(f"{steps} step{'s' * (steps != 1)}")
            parts.append(f"{format_time(seconds)}  {format_time(seconds / max(steps, 1))}/step")
        stream = sys.stdout if self.stream is None else self.stream
        stream.write("  ".join([*parts, format_logs(logs)]) + "\n")
        # a buffered file would show the line only at the end
        getattr(stream, "flush", _nothing)()


def _nothing() -> None:
    """Does nothing; replaces a missing method `flush`."""
