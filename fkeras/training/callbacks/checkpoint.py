"""`ModelCheckpoint`: weights into a file, after epochs or steps."""

from __future__ import annotations

import math
import os
import string
import types
from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.engine import option, suggest
from fkeras.files import as_path
from fkeras.training.callbacks import files
from fkeras.training.callbacks import monitor as watch
from fkeras.training.callbacks.callback import Callback
from fkeras.training.callbacks.weights_file import save_weights

_WHERE = "ModelCheckpoint"
_NOTHING = types.MappingProxyType({"best": math.nan, "step": 0, "seen": 0})


def _filepath(value: Any) -> str:
    path = as_path(value)
    if not path.endswith(".npz"):
        raise ValueError(
            f"{_WHERE}: expected a filepath that ends in .npz, received {path!r}. Write "
            f"{os.path.splitext(path)[0] + '.npz'!r}; load_weights(path, run) reads it."
        )
    return path


def _save_freq(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value != "epoch" and not (whole and value > 0):
        raise ValueError(
            f"{_WHERE}: expected save_freq as 'epoch' or a number of steps, received {value!r}."
        )
    return value


class ModelCheckpoint(Callback):
    """Writes weights and state into a `.npz` file, at the end of epochs or after so many steps.

    A file is whole or not there: it is written beside its place and then put there.
    `fkeras.training.callbacks.weights_file` describes it, and `load_weights(path, run)` reads it.
    Made to keep good models; to go on with a training that was interrupted, bit by bit, use the
    trainer's own checkpoints.

    Args:
        filepath: the file's name, which ends in .npz. In it `{epoch:02d}` (counted from 1),
            `{step}` (in all) and logs such as `{val_loss:.2f}` are filled in.
        monitor: the log that says which is best.
        verbose: 1 to print what is saved.
        save_best_only: whether only a model that is better than all before is saved.
        save_weights_only: whether the optimizer's state and the step are left out.
        mode: "min" or "max", which values are better; "auto" tells by the name of the log.
        save_freq: "epoch", or after how many steps; then at the end of the call of the device
            that completes them.
        initial_value_threshold: the value that the first model to be saved must surpass.

    Raises:
        ValueError: for another kind of file, or names of logs that are not there.
        OSError: where the file cannot be written.

    Example:
        >>> import jax, os, tempfile, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import ModelCheckpoint
        >>> trainer = fk.Trainer("sgd", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.zeros((4, 2), "float32"), np.zeros((4, 1), "float32")
        >>> folder = tempfile.mkdtemp()
        >>> save = ModelCheckpoint(folder + "/{epoch:02d}-{loss:.1f}.npz")
        >>> run, _ = trainer.fit(run, x, y, epochs=2, callbacks=[save], verbose=0)
        >>> sorted(os.listdir(folder))
        ['01-0.0.npz', '02-0.0.npz']
    """

    filepath: str = option(convert=_filepath)
    monitor: str = option("val_loss")
    verbose: int = option(0)
    save_best_only: bool = option(False)
    save_weights_only: bool = option(False)
    mode: str = option("auto", convert=watch.as_mode)
    save_freq: Any = option("epoch", convert=_save_freq)
    initial_value_threshold: float | None = option(None)

    @property
    def watches_batches(self) -> bool:
        """Whether it saves after numbers of steps."""
        return self.save_freq != "epoch"

    def check_logs(self, names: Sequence[str]) -> None:
        if self.save_best_only:
            watch.check(_WHERE, self.monitor, names)
            watch.direction(_WHERE, self.monitor, self.mode)
        if self.save_freq == "epoch":
            self._path(1, 1, dict.fromkeys(names, 0.0))

    def on_train_begin(self, run: Any) -> Any:
        folder = os.path.dirname(self.filepath)
        if "{" not in folder:
            files.require_folder(_WHERE, "filepath", folder)
        if self.save_freq != "epoch" and self.recall(run) is None:
            return self.remember(run, _NOTHING | {"step": int(run.step)})
        return None

    def on_batch_end(self, step: int, run: Any, logs: Mapping[str, float]) -> Any:
        if self.save_freq == "epoch":
            return None
        kept = self.recall(run, _NOTHING)
        if step - int(kept["step"]) < self.save_freq:
            return None
        return self._save(int(run.position[0]), step, run, logs, kept)

    def on_epoch_end(self, epoch: int, run: Any, logs: Mapping[str, float]) -> Any:
        if self.save_freq != "epoch":
            return None
        kept = self.recall(run, _NOTHING)
        return self._save(epoch, int(run.step), run, logs, kept)

    def on_train_end(self, run: Any) -> Any:
        kept = self.recall(run)
        if self.save_best_only and kept is not None and not int(kept["seen"]):
            watch.tell_unseen(_WHERE, self.monitor)

    def _save(self, epoch: int, step: int, run: Any, logs: Mapping, kept: Mapping) -> Any:
        kept = {**kept, "step": step}
        why = ""
        if self.save_best_only:
            value = watch.current(_WHERE, self.monitor, logs)
            if value is None:
                return self.remember(run, kept)
            best, given = float(kept["best"]), self.initial_value_threshold
            best = float(given) if math.isnan(best) and given is not None else best
            kept["seen"] = 1
            way = watch.direction(_WHERE, self.monitor, self.mode)
            if not watch.improves(way, value, best):
                if self.verbose:
                    print(f"Epoch {epoch + 1}: {self.monitor} {value:.5f}, best {best:.5f}.")
                return self.remember(run, kept)
            kept["best"] = value
            why = f" {self.monitor} {value:.5f}, before {best:.5f};"
        path = self._path(epoch, step, logs)
        try:
            save_weights(path, run, weights_only=self.save_weights_only)
        except OSError as error:
            raise OSError(
                f"{_WHERE}, epoch {epoch + 1}: {path!r} could not be written: "
                f"{error.strerror or error}. What stood there still stands. Make room, or give "
                "another filepath."
            ) from error
        if self.verbose:
            print(f"Epoch {epoch + 1}:{why} saved {path}.")
        return self.remember(run, kept)

    def _path(self, epoch: int, step: int, logs: Mapping[str, float]) -> str:
        values = {**logs, "epoch": epoch + 1, "step": step}
        for _, field, _, _ in string.Formatter().parse(self.filepath):
            if field is not None and field not in values:
                raise ValueError(
                    f"{_WHERE}: the filepath {self.filepath!r} needs {field!r}, which is not "
                    f"there.{suggest(field, values)} It can hold: {', '.join(values)}."
                )
        try:
            return self.filepath.format(**values)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{_WHERE}: the filepath {self.filepath!r} cannot be filled in: {error}. Write "
                "fields such as {epoch:02d} and {val_loss:.2f}."
            ) from error
