"""`load_training`: loads a saved training as a `Trainer` and a run to resume."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from fkeras.files import atomic
from fkeras.saving import legacy
from fkeras.saving.containers.errors import FileError, reading
from fkeras.saving.containers.hdf5 import open_store
from fkeras.saving.containers.limits import Limits
from fkeras.saving.containers.strict_json import field
from fkeras.saving.keras import keras_file
from fkeras.saving.models import content
from fkeras.saving.trained.compile_config import CONFIG, read_optimizer, read_trainer
from fkeras.saving.trained.first_run import first_run
from fkeras.saving.trained.optimizer_slots import trained
from fkeras.training import Trainer, TrainState


def load_training(
    path: str | os.PathLike[str],
    *,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> tuple[Trainer, TrainState]:
    """Loads `(trainer, run)` of a compiled model, to resume training.

    The `Trainer` holds optimizer, losses and metrics; the `TrainState` holds weights, state, the
    optimizer's state, the learning rate and the number of steps. The next steps on the same batches
    equal those of Keras. Files hold no JAX key: the run's key, which shuffles rows and draws
    dropout masks, is `jax.random.key(0)`. To set another key, call `run.replace(key=...)`.

    Args:
        path: a file of `save_model` or of Keras.
        custom_objects: custom classes and functions, losses and metrics included, by their names in
            the file.
        limits: limits on sizes.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: as in `load_model`; also for a model that was not compiled, and for optimizer
            state that does not match the weights.
        ImportError: if h5py is not installed.

    Example:
        >>> import jax, pathlib, tempfile, numpy as np, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2)])
        >>> trainer = fk.Trainer(fk.optimizers.Adam(), "mse")
        >>> run = trainer.init(model, jax.random.key(0))
        >>> run, _ = trainer.step(run, (np.ones((4, 3), "float32"), np.ones((4, 2), "float32")))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "m.keras")
        >>> fk.save_model(path, run.model, run.state, trainer=trainer, run=run)
        >>> again, resumed = fk.load_training(path)
        >>> again == trainer, int(resumed.step)
        (True, 1)
    """
    limits, path = limits or Limits(), atomic.as_path(path)
    if content(path) == "hdf5":
        with open_store(path, path, limits=limits) as store:
            return legacy.load_training(store, path, custom_objects, limits)

    # a continuation: the archive is open only inside `keras_file.read`
    finish = functools.partial(_read_training, limits)
    return keras_file.read(path, custom_objects, limits, finish)


def _read_training(limits: Limits, opened: keras_file.Opened) -> tuple[Trainer, TrainState]:
    model, state, config, store = opened.model, opened.state, opened.config, opened.store
    # a converter marks an archive of tf.keras, whose optimizers have other variables
    if opened.converter is not None:
        return legacy.archive_training(model, state, config, store, opened.converter, limits)
    place = {"file": store.file, "member": CONFIG}
    compiled = field(config, "compile_config", (dict, type(None)), None, **place)
    trainer = read_trainer(compiled, opened.custom_objects, store.file, store)
    if trainer is None or not model.built:
        missing_step = "compiled" if trainer is None else "built"
        raise FileError(
            f"the model was never {missing_step} ('compile_config' is empty, or the input is unknown), so "
            "the file holds no training to resume. Load the model with "
            "model, state = fk.load_model(path), and train it with your own Trainer.",
            **place,
        )
    with reading(store.file, f"{CONFIG}: compile_config"):
        run = first_run(trainer, model, state, list(trained(model)), limits)
    return trainer, read_optimizer(store, compiled, trainer, run)
