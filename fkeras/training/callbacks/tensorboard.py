"""`TensorBoard`: logs, learning rate, weights and graph as files that TensorBoard shows."""

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
from fkeras.training.callbacks.base import events, files
from fkeras.training.callbacks.base.callback import Callback
from fkeras.training.callbacks.base.snapshot import weights_of

_WHERE = "TensorBoard"


_period = either(choice("epoch", "batch"), integer(minimum=1))


def _update_freq(value: Any) -> Any:
    period = _period(value)
    return 1 if period == "batch" else period


class TensorBoard(Callback):
    """Writes logs for TensorBoard: `tensorboard --logdir logs` shows them.

    As in Keras the logs of the training go to `log_dir/train` and those of the validation to
    `log_dir/validation`, under names such as "epoch_loss", by the number of the epoch. Each folder
    has one file, which a training that goes on in another process goes on with. Needs the package
    tensorboardX. For traces of the device use `Profiler`.

    Args:
        log_dir: the folder.
        histogram_freq: every how many epochs the distribution of each weight is written; 0 for
            never.
        write_graph: whether the model's graph is written, as text in the form of Mermaid.
        update_freq: "epoch"; or "batch" or a number of steps, to write also the logs within an
            epoch, as "batch_loss" by the number of the step, at the calls of the device that
            complete so many.

    Raises:
        ImportError: without tensorboardX.
        OSError: where nothing can be written into the folder.

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
        """Whether logs within an epoch are written."""
        return self.update_freq != "epoch"

    def on_train_begin(self, run: Any) -> Any:
        events.require(_WHERE)
        files.require_folder(_WHERE, "log_dir", self.log_dir)
        if self.write_graph and isinstance(run.model, Network):
            text = "\n".join(f"    {line}" for line in to_mermaid(run.model).splitlines())
            self._file("train").write([events.text("graph", text)], 0)
        return None

    def on_batch_end(self, step: int, run: Any, logs: Mapping[str, float]) -> Any:
        if self.update_freq == "epoch":
            return None
        last = int(self.recall(run, 0))
        if 0 <= step - last < self.update_freq:
            return None
        self._file("train").write(_scalars("batch_", logs), step)
        return self.remember(run, step)

    def on_epoch_end(self, epoch: int, run: Any, logs: Mapping[str, float]) -> Any:
        trained = {name: value for name, value in logs.items() if not name.startswith("val_")}
        tested = {name[4:]: value for name, value in logs.items() if name not in trained}
        rate = _rate(run)
        found = _scalars("epoch_", trained if rate is None else {**trained, "learning_rate": rate})
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            found += [
                events.histogram(f"{path}/histogram", np.asarray(weight, "float64"))
                for path, weight in weights_of(run).items()
            ]
        # hides what an interrupted training wrote of this epoch and of later ones; numbers of
        # steps, which count on another scale, would be hidden with them
        anew = self.update_freq == "epoch"
        self._file("train").write(found, epoch, anew=anew)
        if tested:
            self._file("validation").write(_scalars("epoch_", tested), epoch, anew=anew)

    def _file(self, part: str) -> events.EventFile:
        return events.EventFile(os.path.join(self.log_dir, part))


def _scalars(prefix: str, logs: Mapping[str, Any]) -> list[Any]:
    found = []
    for name, value in logs.items():
        if isinstance(value, list | tuple):
            found += _scalars(f"{prefix}{name}_", {str(i): v for i, v in enumerate(value)})
        else:
            found.append(events.scalar(prefix + name, value))
    return found


def _rate(run: Any) -> float | None:
    """The learning rate, where the optimizer's state holds it as one number."""
    try:
        rate = learning_rate(run.opt_state)
    except ValueError:
        return None
    return float(rate)
