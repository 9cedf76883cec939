"""Resumes the training of a `.keras` archive of tf.keras 2.12 to 2.15.

The optimizer's state has the layout of Keras 3's archives, with three differences: the learning
rate is in the configuration; variables beyond the slots are missing (Nadam's product, Adafactor's
rows and columns of weights with one axis); and SGD stores momentums even if it uses none.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from fkeras import optimizers
from fkeras.authoring.engine import within
from fkeras.authoring.saving import Entry, first_run, layout, restored
from fkeras.authoring.training import output_specs
from fkeras.engine import Network, trainable_weights
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.stored import unread
from fkeras.host.containers.strict_json import ParsedJson, check, field
from fkeras.saving.legacy.configs.converter import Converter
from fkeras.saving.legacy.trained.compiled import trainer_of
from fkeras.saving.legacy.training import trainable_paths
from fkeras.training import Trainer, TrainState

_OPTIMIZER = "optimizer/vars"


def archive_training(
    model: Network,
    state: Mapping[str, Any],
    config: Mapping[str, Any],
    store: Store,
    converter: Converter,
    limits: Limits,
) -> tuple[Trainer, TrainState]:
    """Returns `(trainer, run)` of a compiled model in an archive of tf.keras 2.12 to 2.15.

    Archives do not store the state of a `tf.keras.optimizers.legacy` optimizer: as in Keras, the
    state starts from its initial values. A warning reports the missing state.

    Raises:
        FileError: if the model was not compiled, or the optimizer cannot be built.
    """
    origin = converter.origin
    compiled = field(config, "compile_config", (dict, type(None)), None, **origin.place())
    if not compiled or not model.built:
        missing_step = "built" if compiled else "compiled"
        raise origin.error(
            f"no training: the model was never {missing_step}. Open the model with fk.load_model, and make a "
            "Trainer."
        )
    with reading(origin.file, f"{origin.member}: compile_config"), within("compile_config"):
        with within("optimizer"):
            optimizer = _optimizer_config(compiled.get("optimizer"), converter)
        names = [str(name) for name in output_specs(model)]
        # Archives use the key "optimizer" where HDF5 files use "optimizer_config".
        training_config = {**compiled, "optimizer_config": optimizer}
        trainer = trainer_of(training_config, names, origin, converter.all_objects)
        run = first_run(trainer, model, state, list(trainable_weights(model)), limits)
    paths = trainable_paths(store, run, converter.orders, origin)
    return trainer, _with_optimizer_state(store, trainer, run, paths)


def _optimizer_config(value: ParsedJson, converter: Converter) -> Any:
    """Returns the optimizer's configuration, also if the model was compiled with a name."""
    if isinstance(value, str) and value not in converter.custom_objects:
        # `is_legacy_optimizer: False` selects the arguments and epsilon of the new optimizers,
        # which a name means since Keras 2.11.
        kind = type(optimizers.get(value)).__name__
        return {"class_name": kind, "config": {"name": value, "is_legacy_optimizer": False}}
    if value is None:
        raise FileError(
            "the model was compiled without an optimizer. Open the model with fk.load_model, and "
            "train it with your own Trainer."
        )
    return check(value, dict, "the optimizer")


def _with_optimizer_state(
    store: Store, trainer: Trainer, run: TrainState, paths: list[str]
) -> TrainState:
    """Returns the run with the optimizer state and the step count of the file."""
    optimizer, all_weights = trainer.optimizer, trainable_weights(run.model)
    weights = {path: all_weights[path] for path in paths}
    if "optimizer" not in store.groups():
        warnings.warn(
            f"{store.file}: the file holds no state of the optimizer {type(optimizer).__name__}: archives "
            "of tf.keras omit the state of tf.keras.optimizers.legacy. The run starts with a new state, at "
            "step 0. An .h5 file of the same model holds the state.",
            stacklevel=2,
        )
        init = optimizers.transformation(optimizer).init
        return run.replace(opt_state=init(weights))
    with reading(store.file, store.place(_OPTIMIZER)):
        if not isinstance(optimizer, optimizers.Optimizer):
            raise FileError(
                f"cannot read the state of {type(optimizer).__name__} from an archive of Keras 2. "
                "Open the model with fk.load_model, and make your own Trainer."
            )
        names = set(store.datasets(_OPTIMIZER))
        entries = _entries(optimizer, weights)
        # Keras creates the slots at the first step; before, the file holds only the step count.
        if len(names) == 1:
            entries = entries[:1]
        # Arrays have numbers instead of names, so a wrong count would assign slots silently.
        if names != {str(number) for number in range(len(entries))}:
            raise FileError(
                f"expected {len(entries)} arrays of {type(optimizer).__name__} for {len(weights)} "
                f"trainable weights, received {len(names)}. The state belongs to another optimizer or "
                "to other weights; fk.load_model opens the model alone."
            )
        pairs = [(entry, unread(store, f"{_OPTIMIZER}/{n}")) for n, entry in enumerate(entries)]
        return restored(run, optimizer, weights, pairs, lacks_products=True)


def _entries(optimizer: optimizers.Optimizer, weights: Mapping[str, Any]) -> list[Entry]:
    """Returns the optimizer's arrays in the archive's order."""
    # Archives lack the same variables as Keras 3's files do inside a LossScaleOptimizer.
    entries = layout(optimizer, {}, weights, scaled=True)[0][1]
    entries = [entry for entry in entries if entry.what != "learning rate"]
    if isinstance(optimizer, optimizers.SGD) and not any(e.what == "momentum" for e in entries):
        entries += [Entry("momentum", path, tuple(w.shape)) for path, w in weights.items()]
    return entries
