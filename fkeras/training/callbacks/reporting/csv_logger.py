"""`CSVLogger`: writes the logs of each epoch as a row of a CSV file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fkeras.atomic_files.atomic import as_path, naming, replacing
from fkeras.engine import option
from fkeras.engine.config.converters import boolean
from fkeras.engine.config.field_types import Path
from fkeras.training.callbacks.base import files
from fkeras.training.callbacks.base import monitor as watch
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.records.state import TrainState

_WHERE = "CSVLogger"


def _separator(value: object) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise ValueError(
            f"expected a single character as separator, received {value!r}. For example ';'."
        )
    return value


class CSVLogger(Callback):
    """Writes a row with the epoch and its logs to a CSV file after every epoch.

    The columns are "epoch" and the logs of the first epoch in alphabetical order, with additional
    columns for validation logs if the first epoch has none. Missing values are "NA". `run.memory`
    keeps the number of written rows: a resumed training continues after these rows, with or without
    `append`, and overwrites rows of epochs that the training repeats.

    Args:
        filename: path of the file; missing folders are created.
        separator: one character between columns.
        append: whether a new training keeps the existing rows of the file.

    Raises:
        ValueError: if the existing file has other columns.
        OSError: if the file cannot be written.

    Example:
        >>> import jax, pathlib, tempfile, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import CSVLogger
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> path = tempfile.mkdtemp() + "/log.csv"
        >>> run, _ = trainer.fit(run, x, y, epochs=2, callbacks=[CSVLogger(path)], verbose=0)
        >>> print(pathlib.Path(path).read_text())
        epoch,loss,val_loss
        0,0.0,NA
        1,0.0,NA
    """

    reports_only: ClassVar[bool] = True

    filename: Path = option(convert=as_path)
    separator: str = option(default=",", convert=_separator)
    append: bool = option(default=False, convert=boolean)

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        files.require_folder(_WHERE, "filename", os.path.dirname(self.filename))

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        memory = watch.ongoing(self.recall(run), epoch)
        text = self._text()
        rows = list(csv.reader(io.StringIO(text), delimiter=self.separator))
        if memory is not None:
            # rows after the checkpoint belong to epochs that the resumed training repeats
            old_rows = rows[: int(memory["rows"]) + 1]
        else:
            old_rows = rows if self.append else []
        columns = old_rows[0] if old_rows else _columns(logs)
        self._check(columns, logs)
        new_rows = [[str(epoch), *(_cell(logs.get(name, "NA")) for name in columns[1:])]]
        # append if the file ends with a complete row; otherwise replace the whole file atomically,
        # since a killed process may have left part of a row
        if old_rows and len(old_rows) == len(rows) and text.endswith("\n"):
            with (
                naming(self.filename),
                open(self.filename, "a", newline="", encoding="utf-8") as file,
            ):
                file.write(self._lines(new_rows))
        else:
            contents = self._lines((old_rows or [columns]) + new_rows).encode()
            with replacing(self.filename) as file:
                file.write(contents)
        return self.remember(run, {"epoch": epoch, "rows": max(len(old_rows), 1)})

    def _text(self) -> str:
        if not os.path.exists(self.filename):
            return ""
        with open(self.filename, newline="", encoding="utf-8") as file:
            return file.read()

    def _lines(self, rows: Sequence[Sequence[str]]) -> str:
        stream = io.StringIO()
        csv.writer(stream, delimiter=self.separator).writerows(rows)
        return stream.getvalue()

    def _check(self, columns: Sequence[str], logs: Mapping[str, float]) -> None:
        unknown = [name for name in logs if name not in columns]
        if columns[:1] != ["epoch"] or unknown:
            raise ValueError(
                f"{_WHERE}: expected a file with the columns {', '.join(('epoch', *logs))}, but "
                f"{self.filename!r} has {', '.join(columns[:8]) or 'none'}. Pass another filename, "
                "or append=False for a new file."
            )


def _columns(logs: Mapping[str, float]) -> list[str]:
    # the columns of a CSV file are fixed, and validation may start in a later epoch
    names = sorted(logs)
    if not any(name.startswith("val_") for name in names):
        names += [f"val_{name}" for name in names]
    return ["epoch", *names]


def _cell(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
