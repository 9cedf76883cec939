"""`TerminateOnNaN`: stops a training whose loss is NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fkeras.engine import option
from fkeras.engine.config.converters import boolean
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.base.printing import print_once
from fkeras.training.nonfinite.recovery import NonFiniteError
from fkeras.training.records.state import TrainState


class TerminateOnNaN(Callback):
    """Stops after an epoch whose loss is NaN or infinite, and reports the epoch.

    Use this callback with `Trainer(..., on_nonfinite="ignore")`, which applies steps with a NaN
    loss. By default a trainer raises an error at such a step and skips the step, so the weights
    remain finite. With this callback the weights are lost, because the run before the epoch is not
    kept. The callback checks the loss of the epoch, which is NaN if the loss of any step is.

    Args:
        raise_error: whether to raise a `NonFiniteError` immediately. By default the training stops
            as with `Stop`, and the last hooks of all callbacks run.

    Example:
        >>> import fkeras as fk
        >>> from fkeras.training.callbacks import TerminateOnNaN
        >>> TerminateOnNaN().on_epoch_end(0, None, {"loss": 0.5}) is None
        True
    """

    raise_error: bool = option(default=False, convert=boolean)

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        # the mean over the epoch: one NaN step is sufficient, so no check per batch is needed
        loss = logs.get("loss")
        if loss is None or math.isfinite(loss):
            return None
        message = (
            f"TerminateOnNaN, epoch {epoch + 1}: expected a finite loss, received {loss}. The run "
            'before this epoch is not available. Trainer(..., on_nonfinite="raise") raises an '
            "error at the step that causes this, and fk.find_nan then names the layer."
        )
        if self.raise_error:
            raise NonFiniteError(message, run)
        print_once(run, message)
        return Stop()
