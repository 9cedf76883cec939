"""`ModelCheckpoint`: writes the model or its weights to a file, after epochs or steps."""

from __future__ import annotations

import math
import os
import string
import types
from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.atomic_files.atomic import as_path
from fkeras.engine import option, suggest
from fkeras.engine.config.converters import boolean, choice, either, integer, real, text
from fkeras.engine.config.field_types import OptionalReal
from fkeras.engine.config.late_module import late_module
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.training.callbacks.base import files
from fkeras.training.callbacks.base import monitor as watch
from fkeras.training.callbacks.base.callback import Callback, Stop
from fkeras.training.callbacks.base.printing import print_once
from fkeras.training.callbacks.base.weights_file import save_weights
from fkeras.training.records.state import TrainState

_WHERE = "ModelCheckpoint"
_SUFFIXES = (".keras", ".weights.h5", ".npz")
_NOTHING = types.MappingProxyType({"best": math.nan, "step": 0, "seen": 0})


def _filepath(value: object) -> str:
    path = as_path(value)
    if not path.endswith(_SUFFIXES):
        start = path.removesuffix(".h5").removesuffix(".weights")
        raise ValueError(
            f"expected a path that ends in .keras, .weights.h5 or .npz, received {path!r}. Write "
            f"{start + '.keras'!r} for the model, and read the file with fk.load_model."
        )
    return path


def _write(path: str, run: TrainState[Any], weights_only: bool) -> None:
    if path.endswith(".npz"):
        save_weights(path, run, weights_only=weights_only)
        return
    saving = late_module("saving")  # `fkeras.saving` imports this package
    save = saving.save_model if path.endswith(".keras") else saving.save_weights
    save(path, run.model, run.state)


def _require_h5py(path: str) -> None:
    try:
        import h5py  # noqa: F401
    except ImportError as error:
        raise missing_package(f"{_WHERE} with the file {path!r}", "h5py", error) from error


class ModelCheckpoint(Callback):
    """Writes the model or its weights to a file, at the end of epochs or after a number of steps.

    Writes are atomic: a temporary file is written and then renamed.

    | filepath | contents | readers |
    |---|---|---|
    | `.keras` | the model with weights and state | `fk.load_model`, Keras |
    | `.weights.h5` | weights and state | `fk.load_weights`, Keras |
    | `.npz` | weights and state; optimizer and step | `fk.callbacks.load_weights` |

    To resume an interrupted training with identical results, use `fit(..., checkpoint=folder)`.

    Args:
        filepath: path of the file, a format string with the fields `{epoch:02d}` (counted from 1),
            `{step}` (since `init`), and logs such as `{val_loss:.2f}`.
        monitor: name of the log that decides which model is best.
        verbose: 1 to print each saved file.
        save_best_only: whether to save only models that are better than all earlier models.
        save_weights_only: whether a `.npz` file omits the optimizer state and the step. As in
            Keras, True for `.weights.h5` and False for `.keras`.
        mode: "min" or "max", the direction of better values; "auto" decides by the name of the log.
        save_freq: "epoch", or a number of steps; the file is written after the device call that
            completes these steps.
        initial_value_threshold: value that the first saved model must improve on.

    Raises:
        ValueError: for an unknown file type, a `save_weights_only` that the file type does not
            support, or a missing log.
        OSError: if the file cannot be written.
        ImportError: at the start of the training, for Keras's file types without h5py.

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
    monitor: str = option(default="val_loss", convert=text())
    verbose: int = option(default=0, convert=watch.verbosity)
    save_best_only: bool = option(default=False, convert=boolean)
    save_weights_only: bool = option(default=False, convert=boolean)
    mode: str = option(default="auto", convert=choice("auto", "min", "max"))
    save_freq: Any = option(default="epoch", convert=either(choice("epoch"), integer(minimum=1)))
    initial_value_threshold: OptionalReal = option(
        default=None, convert=real(infinite=True, optional=True)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # the file type decides what the file holds: report a contradiction before the training
        expected_by_suffix = {".keras": False, ".weights.h5": True}
        for suffix, expected in expected_by_suffix.items():
            if self.filepath.endswith(suffix) and self.save_weights_only is not expected:
                other_suffix = ".weights.h5" if suffix == ".keras" else ".keras"
                raise ValueError(
                    f"{_WHERE}: save_weights_only: expected {expected} for a {suffix} file, "
                    f"received {self.save_weights_only}. Write save_weights_only={expected}, or a "
                    f"filepath that ends in {other_suffix}."
                )

    @property
    def _watches_batches(self) -> bool:
        """Returns whether the callback saves after a number of steps."""
        return self.save_freq != "epoch"

    def check_logs(self, names: Sequence[str]) -> None:
        if self.save_best_only:
            watch.check(_WHERE, self.monitor, names)
            watch.direction(_WHERE, self.monitor, self.mode)
        # fill in the path once: a missing log is an error before the first epoch, not after it
        if self.save_freq == "epoch":
            self._path(1, 1, dict.fromkeys(names, 0.0))

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        folder = os.path.dirname(self.filepath)
        if not self.filepath.endswith(".npz"):
            _require_h5py(self.filepath)
        # a folder with fields is known only when a file is written
        if "{" not in folder:
            files.require_folder(_WHERE, "filepath", folder)
        if self.save_freq != "epoch" and self.recall(run) is None:
            return self.remember(run, _NOTHING | {"step": int(run.step)})
        return None

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        if self.save_freq == "epoch":
            return None
        memory = self.recall(run, _NOTHING)
        if step - int(memory["step"]) < self.save_freq:
            return None
        return self._save(int(run.position[0]), step, run, logs, memory)

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        if self.save_freq != "epoch":
            return None
        memory = self.recall(run, _NOTHING)
        return self._save(epoch, int(run.step), run, logs, memory)

    def on_train_end(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        memory = self.recall(run)
        if self.save_best_only and memory is not None and not int(memory["seen"]):
            watch.tell_unseen(_WHERE, self.monitor)

    def _save(
        self, epoch: int, step: int, run: TrainState[Any], logs: Mapping, memory: Mapping
    ) -> Any:
        memory = {**memory, "step": step}
        reason = ""
        if self.save_best_only:
            value = watch.current(_WHERE, self.monitor, logs)
            if value is None:
                return self.remember(run, memory)
            # nan is the value before the first comparison
            best, threshold = float(memory["best"]), self.initial_value_threshold
            best = float(threshold) if math.isnan(best) and threshold is not None else best
            memory["seen"] = 1
            direction = watch.direction(_WHERE, self.monitor, self.mode)
            if not watch.improves(direction, value, best):
                if self.verbose:
                    print_once(
                        run, f"Epoch {epoch + 1}: {self.monitor} {value:.5f}, best {best:.5f}."
                    )
                return self.remember(run, memory)
            memory["best"] = value
            reason = f" {self.monitor} {value:.5f}, before {best:.5f};"
        path = self._path(epoch, step, logs)
        try:
            _write(path, run, self.save_weights_only)
        except OSError as error:
            raise OSError(
                f"{_WHERE}, epoch {epoch + 1}: {path!r} could not be written: "
                f"{error.strerror or error}. An existing file is unchanged. Free disk space, or "
                "pass another filepath."
            ) from error
        if self.verbose:
            print_once(run, f"Epoch {epoch + 1}:{reason} saved {path}.")
        return self.remember(run, memory)

    def _path(self, epoch: int, step: int, logs: Mapping[str, float]) -> str:
        values = {**logs, "epoch": epoch + 1, "step": step}
        for _, field, _, _ in string.Formatter().parse(self.filepath):
            if field is not None and field not in values:
                raise ValueError(
                    f"{_WHERE}: unknown field {field!r} in the filepath {self.filepath!r}."
                    f"{suggest(field, values)} The fields are: {', '.join(values)}."
                )
        try:
            return self.filepath.format(**values)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{_WHERE}: cannot format the filepath {self.filepath!r}: {error}. Write fields "
                "such as {epoch:02d} and {val_loss:.2f}."
            ) from error
