"""`MlflowCallback`: logs to MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras.engine import Network, option
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import OptionalInteger
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.reporting import logs as reports
from fkeras.training.records.state import TrainState

_WHERE = "MlflowCallback"


class MlflowCallback(Callback):
    """Logs losses, metrics, the learning rate, options and the model's summary to a run of MLflow.

    The run is the active run of MLflow; without an active run a new run starts, as with MLflow's own
    functions. Logs have the names of the history ("loss", "val_loss") and "learning_rate", with the
    epoch or the step of the training as step, so a resumed training continues the curves: start
    MLflow with `mlflow.start_run(run_id=...)`. Requires the package mlflow.

    Args:
        log_every_epoch: whether to log after each epoch, with the epoch as step.
        log_every_n_steps: number of steps between logs, with the training's step as step, after the
            device call that completes this number of steps. As in MLflow, either
            `log_every_epoch=True` or this number.
        config: a trainer, an optimizer or a dictionary whose options become parameters of the MLflow
            run, such as "optimizer_learning_rate"; None for no parameters. MLflow cannot change a
            parameter: a resumed training logs only new parameters.

    Raises:
        ImportError: if mlflow is not installed.
        ValueError: for both `log_every_epoch` and `log_every_n_steps`, or none of the two.

    Example:
        >>> from fkeras.training.callbacks import MlflowCallback
        >>> MlflowCallback(log_every_epoch=False, log_every_n_steps=10)
        MlflowCallback(False, 10)
    """

    reports_only: ClassVar[bool] = True

    log_every_epoch: bool = option(default=True, convert=boolean)
    log_every_n_steps: OptionalInteger = option(
        default=None, convert=integer(minimum=1, optional=True)
    )
    config: Any = option(default=None, convert=reports.as_options, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.log_every_epoch == (self.log_every_n_steps is not None):
            raise ValueError(
                f"{_WHERE}: expected either log_every_epoch=True or a number log_every_n_steps, "
                f"received log_every_epoch={self.log_every_epoch} and log_every_n_steps="
                f"{self.log_every_n_steps}. Write {_WHERE}() or "
                f"{_WHERE}(log_every_epoch=False, log_every_n_steps=100)."
            )

    @property
    def _watches_batches(self) -> bool:
        """Returns whether the callback logs within an epoch."""
        return self.log_every_n_steps is not None

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        mlflow = reports.service(_WHERE, "mlflow")
        active_run = mlflow.active_run() or mlflow.start_run()
        if self.config is not None:
            # the run of `active_run` may be as old as its `start_run`
            old_parameters = mlflow.get_run(active_run.info.run_id).data.params
            parameters = reports.options(self.config)
            mlflow.log_params(
                {name: parameters[name] for name in parameters if name not in old_parameters}
            )
        if isinstance(run.model, Network):
            mlflow.log_text(run.model.summary(show=False), "model_summary.txt")

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        period = self.log_every_n_steps
        if period is None or not reports.due(self, run, step, period):
            return None
        self._log(run, logs, step)
        return self.remember(run, {"step": step})

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        if self.log_every_epoch:
            self._log(run, logs, epoch)
            return None
        # validation logs belong to the last step of their epoch
        validation_logs = {name: logs[name] for name in logs if name.startswith("val_")}
        if validation_logs:
            self._log(run, validation_logs, int(run.step))
        return None

    def _log(self, run: TrainState[Any], logs: Mapping[str, float], step: int) -> None:
        numbers = reports.flat({**logs, **reports.rate(run)})
        reports.service(_WHERE, "mlflow").log_metrics(numbers, step=step)
