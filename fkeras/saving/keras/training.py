"""Reads the training that a `.keras` file holds as a `Trainer` and a run to resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.strict_json import field
from fkeras.saving import wings
from fkeras.saving.keras import keras_file
from fkeras.saving.trained.compile_config import CONFIG, read_optimizer, read_trainer
from fkeras.saving.trained.first_run import first_run
from fkeras.saving.trained.optimizer_slots import trained
from fkeras.training import Trainer, TrainState


def read_training(
    path: str, custom_objects: Mapping[str, Any] | None, limits: Limits
) -> tuple[Trainer, TrainState]:
    """Returns `(trainer, run)` of a compiled model in a `.keras` file."""
    with keras_file.opened(path, custom_objects, limits) as file:
        model, state, config, store = file.model, file.state, file.config, file.store
        # a converter marks an archive of tf.keras, whose optimizers have other variables
        if file.converter is not None:
            return wings.legacy.archive_training(
                model, state, config, store, file.converter, limits
            )
        place = {"file": store.file, "member": CONFIG}
        compiled = field(config, "compile_config", (dict, type(None)), None, **place)
        trainer = read_trainer(compiled, file.custom_objects, store.file, store)
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
