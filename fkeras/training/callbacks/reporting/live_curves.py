"""`LiveCurves`: draws the logs in a notebook while the training runs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fkeras.engine import option
from fkeras.engine.config.converters import integer
from fkeras.engine.config.field_types import Integer
from fkeras.training.callbacks.base import monitor as watch
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.records.history import History
from fkeras.training.records.state import TrainState


def _names(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"expected names of logs, received {value!r}. Write names=['loss', 'accuracy']."
        )
    return tuple(names)


class LiveCurves(Callback):
    """Draws the logs over the epochs in the output of a notebook's cell, anew after each epoch.

    The figure is that of `History.plot`, and requires the package matplotlib. Outside of a notebook
    the callback draws nothing, and warns at the beginning of the training.

    Args:
        names: names of logs without "val_", or None for all.
        every: number of epochs between drawings.

    Raises:
        ImportError: if matplotlib is not installed, in a notebook.
        ValueError: for a name that the training does not log.

    Example:
        >>> from fkeras.training.callbacks import LiveCurves
        >>> LiveCurves(["loss", "accuracy"], every=5)
        LiveCurves(('loss', 'accuracy'), 5)
    """

    reports_only: ClassVar[bool] = True

    names: Any = option(default=None, convert=_names)
    every: Integer = option(default=1, convert=integer(minimum=1))

    def check_logs(self, names: Sequence[str]) -> None:
        for name in self.names or ():
            watch.check("LiveCurves", name, names)

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        if _notebook() is None:
            warnings.warn(
                "LiveCurves: draws in notebooks, and this program is not in a notebook. Draw the "
                "logs after the training: history.plot().savefig('curves.png').",
                stacklevel=2,
            )

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        memory = watch.ongoing(self.recall(run), epoch)
        values = {} if memory is None else dict(memory["values"])
        epochs = [epoch] if memory is None else [*np.asarray(memory["epochs"]).tolist(), epoch]
        for name, value in logs.items():
            if not isinstance(value, list | tuple):  # a log with a value for each class
                values[name] = np.append(np.asarray(values.get(name, ())), value)
        display = _notebook()
        if display is not None and (epoch + 1) % self.every == 0:
            history = {name: array.tolist() for name, array in values.items()}
            figure = History(history, epochs, {}).plot(self.names)
            # replaces the drawing before, without the flicker of an empty cell
            display.clear_output(wait=True)
            display.display(figure)
        return self.remember(run, {"epoch": epoch, "epochs": np.asarray(epochs), "values": values})


def _notebook() -> Any:
    """Returns the module IPython.display; None outside of a notebook."""
    # a notebook has imported IPython, so fkeras does not depend on the package
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if getattr(shell, "kernel", None) is None else sys.modules.get("IPython.display")
