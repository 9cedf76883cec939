"""`Checkpoint`: where a training is saved, how often, and what is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fkeras.engine import Configurable, option, suggest
from fkeras.engine.config.converters import boolean, choice, integer, real, text
from fkeras.engine.config.field_types import Integer, OptionalInteger, OptionalReal

# which way is better, by words in the name of a log
_UP = (
    "acc",
    "accuracy",
    "auc",
    "precision",
    "recall",
    "f1",
    "fbeta",
    "iou",
    "u",
    "r2",
    "similarity",
)
_UP += ("score", "correlation", "sensitivity", "specificity")
_DOWN = ("loss", "error", "crossentropy", "ce", "mse", "mae", "mape", "msle", "rmse", "hinge")
_DOWN += ("divergence", "poisson", "logcosh", "huber", "perplexity")


def _folder(value: Any) -> str:
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path.strip():
        raise TypeError(
            f"Checkpoint: expected a folder's name as directory, received {value!r}. For example "
            'Checkpoint("runs/first").'
        )
    if "://" in path:
        raise ValueError(
            f"Checkpoint: expected a local folder as directory, received {path!r}. Mount the "
            "remote place, and pass the folder that it is mounted at."
        )
    return os.path.expanduser(path)


class Checkpoint(Configurable):
    """Says where a training is saved, how often, and which saves are kept.

    It saves after every `every` steps, whenever `seconds` have passed since the last save, or both;
    where neither is given after each epoch.

    Args:
        directory: a local folder; it is made where it is missing. `~` is the home folder.
        every: the number of steps between two saves.
        seconds: the seconds of wall time between two saves.
        keep: how many of the latest saves stay, at least 2: where one is damaged the one before
            it serves. The disk needs room for one more, the one that is written.
        monitor: the name of a log, such as "val_loss"; the save of the epoch in which it is best
            is kept apart from the latest ones.
        mode: "min" or "max", which values of `monitor` are better; "auto" tells by its name.
        asynchronous: whether files are written while the training goes on. The arrays are copied
            first in either case.
        on_disk_full: "warn" to go on training where there is no room for a save, "stop" to raise.
            The last good save stays in either case.

    Raises:
        TypeError, ValueError: for a value that makes no sense.

    Example:
        >>> from fkeras.training.checkpoint import Checkpoint
        >>> plan = Checkpoint("runs/first", every=500, monitor="val_accuracy")
        >>> plan.better(0.9, None), plan.better(0.8, 0.9)
        (True, False)
    """

    directory: str = option(convert=_folder)
    every: OptionalInteger = option(default=None, convert=integer(minimum=1, optional=True))
    seconds: OptionalReal = option(default=None, convert=real(above=0, optional=True))
    keep: Integer = option(default=2, convert=integer(minimum=2))
    monitor: str | None = option(default=None, convert=text(optional=True))
    mode: str = option(default="auto", convert=choice("auto", "min", "max"))
    asynchronous: bool = option(default=True, convert=boolean)
    on_disk_full: str = option(default="warn", convert=choice("warn", "stop"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.monitor is not None:
            self._way()

    def watched(self, logs: Mapping[str, Any]) -> float | None:
        """The value of the log that decides which save is best.

        Args:
            logs: the logs of an epoch.

        Returns:
            None where no log decides, and in an epoch without validation for a log of one.

        Raises:
            ValueError: where there is no such log.

        Example:
            >>> Checkpoint("runs/first", monitor="loss").watched({"loss": 0.5})
            0.5
        """
        if self.monitor is None:
            return None
        validated = any(name.startswith("val_") for name in logs)
        if self.monitor in logs:
            return float(logs[self.monitor])
        if self.monitor.startswith("val_") and not validated:
            return None
        raise ValueError(
            f"Checkpoint: there is no log named {self.monitor!r}.{suggest(self.monitor, logs)} The "
            f"logs are: {', '.join(logs) or 'none'}. Write one of them as monitor."
        )

    def better(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best one before it; nan is never.

        Args:
            value: the new value of the log.
            best: the best one so far, None for none.

        Example:
            >>> Checkpoint("runs/first", monitor="loss").better(0.4, 0.5)
            True
        """
        if value != value:
            return False
        if best is None or best != best:
            return True
        return value > best if self._way() == "max" else value < best

    def _way(self) -> str:
        if self.mode != "auto":
            return self.mode
        words = str(self.monitor).lower().split("_")
        up, down = (any(word in words for word in known) for known in (_UP, _DOWN))
        if up == down:
            raise ValueError(
                f"Checkpoint: whether {self.monitor!r} is better large or small cannot be told by "
                f'its name. Write Checkpoint(..., monitor={self.monitor!r}, mode="max"), or '
                'mode="min".'
            )
        return "max" if up else "min"
