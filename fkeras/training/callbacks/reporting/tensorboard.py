"""`TensorBoard`: writes logs, learning rate, weights and graph for TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.engine import Network, option, to_mermaid
from fkeras.engine.config.converters import boolean, choice, either, integer
from fkeras.engine.config.field_types import Integer, Path
from fkeras.files.atomic import as_path
from fkeras.optimizers.updates.rates import learning_rate
from fkeras.training.callbacks.base import files
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.base.snapshot import weights_of
from fkeras.training.callbacks.reporting import events
from fkeras.training.records.state import TrainState

_WHERE = "TensorBoard"


_period = either(choice("epoch", "batch"), integer(minimum=1))


def _update_freq(value: Any) -> Any:
    period = _period(value)
    return 1 if period == "batch" else period


class TensorBoard(Callback):
    """Writes logs for TensorBoard, which shows them with `tensorboard --logdir logs`.

    As in Keras, training logs are in `log_dir/train` and validation logs in `log_dir/validation`,
    under names such as "epoch_loss", with the epoch as step. Each folder has one file, to which a
    resumed training appends. Requires the package tensorboardX. Use `Profiler` to record
    traces of the device.

    Args:
        log_dir: folder for the files; missing folders are created.
        histogram_freq: number of epochs between histograms of the weights; 0 for no histograms.
        write_graph: whether to write the graph of the model, as Mermaid text.
        update_freq: "epoch" writes logs once per epoch. "batch" or a number of steps also writes
            logs within an epoch as "batch_loss" with the step, after the device call that completes
            this number of steps.

    Raises:
        ImportError: if tensorboardX is not installed.
        OSError: if the folder cannot be written.

    Example:
        >>> from fkeras.training.callbacks import TensorBoard
        >>> TensorBoard("logs/first", histogram_freq=5)
        TensorBoard('logs/first', 5)
    """

    log_dir: Path = option(default="logs", convert=as_path)
    histogram_freq: Integer = option(default=0, convert=integer(minimum=0))
    write_graph: bool = option(default=True, convert=boolean)
    update_freq: Any = option(default="epoch", convert=_update_freq)

    @property
    def watches_batches(self) -> bool:
        """Returns whether the callback writes logs within an epoch."""
        return self.update_freq != "epoch"

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        events.require(_WHERE)
        files.require_folder(_WHERE, "log_dir", self.log_dir)
        if self.write_graph and isinstance(run.model, Network):
            # four spaces of indentation make a code block in Markdown
            text = "\n".join(f"    {line}" for line in to_mermaid(run.model).splitlines())
            self._file("train").write([events.text("graph", text)], 0)
        return None

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        if self.update_freq == "epoch":
            return None
        last = int(self.recall(run, 0))
        # negative for a run that starts again from step 0 with an old memory
        if 0 <= step - last < self.update_freq:
            return None
        self._file("train").write(_scalars("batch_", logs), step)
        return self.remember(run, step)

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        training_logs = {name: value for name, value in logs.items() if not name.startswith("val_")}
        validation_logs = {
            name[4:]: value for name, value in logs.items() if name not in training_logs
        }
        rate = _rate(run)
        summaries = _scalars(
            "epoch_", training_logs if rate is None else {**training_logs, "learning_rate": rate}
        )
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            summaries += [
                events.histogram(f"{path}/histogram", np.asarray(weight, "float64"))
                for path, weight in weights_of(run).items()
            ]
        # hides events that an interrupted training wrote for this epoch and later epochs. Not with
        # batch logs: their steps are larger numbers, so their events would be hidden too
        hides_later = self.update_freq == "epoch"
        self._file("train").write(summaries, epoch, anew=hides_later)
        if validation_logs:
            self._file("validation").write(
                _scalars("epoch_", validation_logs), epoch, anew=hides_later
            )

    def _file(self, part: str) -> events.EventFile:
        return events.EventFile(os.path.join(self.log_dir, part))


def _scalars(prefix: str, logs: Mapping[str, Any]) -> list[Any]:
    summaries = []
    for name, value in logs.items():
        if isinstance(value, list | tuple):
            summaries += _scalars(f"{prefix}{name}_", {str(i): v for i, v in enumerate(value)})
        else:
            summaries.append(events.scalar(prefix + name, value))
    return summaries


def _rate(run: TrainState[Any]) -> float | None:
    """Returns the learning rate; None if the optimizer state has no single rate."""
    try:
        rate = learning_rate(run.opt_state)
    except ValueError:
        return None
    return float(rate)
