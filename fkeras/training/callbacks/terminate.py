"""`TerminateOnNaN`: ends a training whose loss is no number any more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fkeras.engine import option
from fkeras.engine.config.converters import boolean
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.nonfinite.recovery import NonFiniteError


class TerminateOnNaN(Callback):
    """Stops after an epoch whose loss is nan or infinite, and says which.

    For `Trainer(..., on_nonfinite="ignore")`, where such steps are applied as they are: by itself
    a trainer raises at the very step and leaves it out, so that the weights stay good. Here the
    weights are lost where the loss is: the run of before the epoch is not kept. Looked at is the
    loss of the epoch, which any of its steps makes nan.

    Args:
        raise_error: whether to raise a `NonFiniteError` at once, instead of an orderly end in
            which all callbacks are told.

    Example:
        >>> import fkeras as fk
        >>> from fkeras.training.callbacks import TerminateOnNaN
        >>> TerminateOnNaN().on_epoch_end(0, None, {"loss": 0.5}) is None
        True
    """

    raise_error: bool = option(default=False, convert=boolean)

    def on_epoch_end(self, epoch: int, run: Any, logs: Mapping[str, float]) -> Any:
        loss = logs.get("loss")
        if loss is None or math.isfinite(loss):
            return None
        message = (
            f"TerminateOnNaN, epoch {epoch + 1}: expected a finite loss, received {loss}. The run "
            'of before this epoch is not available. Trainer(..., on_nonfinite="raise") leaves '
            "out the step that does this and names it; fk.find_nan then names the layer."
        )
        if self.raise_error:
            raise NonFiniteError(message, run)
        print(message)
        return Stop()
