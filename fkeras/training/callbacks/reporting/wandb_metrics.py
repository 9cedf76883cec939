"""`WandbMetricsLogger`: logs to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras.engine import option
from fkeras.engine.config.converters import integer
from fkeras.engine.config.field_types import Integer
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.reporting import logs as reports
from fkeras.training.records.state import TrainState

_WHERE = "WandbMetricsLogger"


class WandbMetricsLogger(Callback):
    """Logs losses, metrics and the learning rate to the active run of Weights & Biases.

    The names are those of wandb's callback for Keras: "epoch/loss", "epoch/val_loss" and
    "epoch/learning_rate" over "epoch/epoch", and "batch/loss" over "batch/batch_step". Epochs and
    steps are those of the training, so a resumed training continues both axes: start wandb with
    `wandb.init(id=..., resume="must")`. Epochs that the resumed training repeats are logged again.
    Requires the package wandb.

    Args:
        log_freq: "epoch" logs once per epoch. "batch" or a number of steps also logs within an
            epoch, after the device call that completes this number of steps.
        initial_global_step: number that is added to "batch/batch_step".
        config: a trainer, an optimizer or a dictionary whose options become part of the
            configuration of the wandb run, such as "optimizer_learning_rate"; None for no options.

    Raises:
        ImportError: if wandb is not installed.
        RuntimeError: if `wandb.init` was not called before the training.

    Example:
        >>> from fkeras.training.callbacks import WandbMetricsLogger
        >>> WandbMetricsLogger(log_freq=10)
        WandbMetricsLogger(10)
    """

    reports_only: ClassVar[bool] = True

    log_freq: Any = option(default="epoch", convert=reports.period)
    initial_global_step: Integer = option(default=0, convert=integer(minimum=0))
    config: Any = option(default=None, convert=reports.as_options, kw_only=True)

    @property
    def _watches_batches(self) -> bool:
        """Returns whether the callback logs within an epoch."""
        return self.log_freq != "epoch"

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        wandb_run = _active_run()
        if self.config is not None:
            # a resumed training may have other options than the first training of the wandb run
            wandb_run.config.update(reports.options(self.config), allow_val_change=True)
        wandb_run.define_metric("epoch/epoch")
        wandb_run.define_metric("epoch/*", step_metric="epoch/epoch")
        if self._watches_batches:
            wandb_run.define_metric("batch/batch_step")
            wandb_run.define_metric("batch/*", step_metric="batch/batch_step")

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        if self.log_freq == "epoch" or not reports.due(self, run, step, self.log_freq):
            return None
        numbers = reports.flat({**logs, **reports.rate(run)}, "batch/")
        _active_run().log({**numbers, "batch/batch_step": self.initial_global_step + step})
        return self.remember(run, {"step": step})

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        numbers = reports.flat({**logs, **reports.rate(run)}, "epoch/")
        _active_run().log({**numbers, "epoch/epoch": epoch})


def _active_run() -> Any:
    active_run = reports.service(_WHERE, "wandb").run
    if active_run is None:
        raise RuntimeError(
            f"{_WHERE}: expected an active run of wandb, but wandb.init was not called. Write "
            'wandb.init(project="...") before trainer.fit.'
        )
    return active_run
