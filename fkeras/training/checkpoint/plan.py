"""`Checkpoint`: folder, interval and retention of the saves of a training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fkeras.atomic_files.atomic import as_path
from fkeras.engine import Configurable, option, suggest
from fkeras.engine.config.converters import boolean, choice, integer, real, text
from fkeras.engine.config.field_types import Converted, Integer, OptionalInteger, OptionalReal
from fkeras.engine.values.argument_types import FilePath

# Words in the names of logs whose larger (smaller) values are better, for `mode="auto"`.
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
    path = as_path(path)
    if "://" in path:
        raise ValueError(
            f"Checkpoint: expected a local folder as directory, received {path!r}. Mount the "
            "remote storage, and pass the mounted folder."
        )
    return os.path.expanduser(path)


class Checkpoint(Configurable):
    """Folder, interval and retention of the saves of a training.

    A training saves after every `every` steps, whenever `seconds` have passed since the last save,
    or both; without `every` and `seconds`, after each epoch.

    Args:
        directory: a local folder, created if missing. `~` is the home folder.
        every: number of steps between two saves.
        seconds: seconds of wall time between two saves.
        keep: number of latest saves to keep, at least 2: if a save is damaged, the training resumes
            from the save before. The disk needs space for one more save during writing.
        monitor: the name of a log, such as "val_loss"; the save of the best epoch by this log is
            kept in addition to the latest saves.
        mode: "min" or "max": whether small or large values of `monitor` are better; "auto" decides
            by the name.
        asynchronous: whether to write files in a second thread while the training continues. The
            arrays are copied first in either case.
        on_disk_full: "warn" to continue the training without the save if the disk is full, "stop"
            to raise. The last good save is kept in either case.

    Raises:
        TypeError, ValueError: for an invalid value.

    Example:
        >>> from fkeras.training.checkpoint import Checkpoint
        >>> plan = Checkpoint("runs/first", every=500, monitor="val_accuracy")
        >>> plan.better(0.9, None), plan.better(0.8, 0.9)
        (True, False)
    """

    directory: Converted[FilePath, str] = option(convert=_folder)
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
            self._direction()

    def watched(self, logs: Mapping[str, Any]) -> float | None:
        """Returns the value of the monitored log.

        Args:
            logs: the logs of an epoch.

        Returns:
            The value; None without `monitor`, and for a validation log in an epoch without
            validation.

        Raises:
            ValueError: if the log is unknown.

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
            f"Checkpoint: unknown log {self.monitor!r}.{suggest(self.monitor, logs)} The logs are: "
            f"{', '.join(logs) or 'none'}. Pass the name of a log as monitor."
        )

    def better(self, value: float, best: float | None) -> bool:
        """Returns whether a value is better than the best value so far; NaN is never better.

        Args:
            value: the new value of the log.
            best: the best value so far, or None.

        Example:
            >>> Checkpoint("runs/first", monitor="loss").better(0.4, 0.5)
            True
        """
        if value != value:  # NaN
            return False
        if best is None or best != best:
            return True
        return value > best if self._direction() == "max" else value < best

    def _direction(self) -> str:
        if self.mode != "auto":
            return self.mode
        words = str(self.monitor).lower().split("_")
        up, down = (any(word in words for word in marker_words) for marker_words in (_UP, _DOWN))
        if up == down:
            raise ValueError(
                f"Checkpoint: the name {self.monitor!r} does not show whether larger or smaller "
                f'values are better. Write Checkpoint(..., monitor={self.monitor!r}, mode="max"), '
                'or mode="min".'
            )
        return "max" if up else "min"
