"""Conversion between a `Trainer` and the `compile_config` in Keras's files.

Options that change the results (optimizer, losses, metrics, their weights) are converted, or
rejected with an error. Options that only control execution are not converted: the reader ignores
Keras's `run_eagerly`, `steps_per_execution` and `jit_compile`; the writer omits a trainer's `mesh`,
`sharding`, `remat` and `on_nonfinite`, with a warning.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import jax
import numpy as np

from fkeras import losses, metrics, optimizers
from fkeras.engine import Layer, trainable_weights
from fkeras.engine.config.custom_objects import CustomObjects, custom_code
from fkeras.engine.config.public_names import public_names
from fkeras.engine.config.serialization import deserialize, serialize
from fkeras.engine.messages.key_paths import within
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.stored import unread
from fkeras.host.containers.strict_json import ParsedJson, check, field
from fkeras.losses import Loss, LossFunctionWrapper
from fkeras.losses.naming import as_loss
from fkeras.metrics import MeanMetricWrapper, Metric
from fkeras.saving.trained.optimizer_slots import (
    Entry,
    as_trained,
    layout,
    restored,
    trained,
    written,
)
from fkeras.training import Trainer, TrainState
from fkeras.training.step.masters import inner_state
from fkeras.training.step.optimizer_state import follow
from fkeras.training.trainer import Optimizer

CONFIG = "config.json"
_GROUP = "optimizer/vars"
_OMITTED = ("mesh", "sharding", "master", "remat", "on_nonfinite")


def read_trainer(
    compiled: ParsedJson,
    custom_objects: Mapping[str, Any] | None = None,
    file: str | None = None,
    store: Store | None = None,
) -> Trainer | None:
    """Returns the `Trainer` of a `compile_config`; None for a model that was not compiled.

    Args:
        store: arrays of the file. Their groups show whether Keras wrapped the optimizer in a
            LossScaleOptimizer, as Keras does for a model with the policy "mixed_float16".
    """
    place = {"file": file, "member": CONFIG}
    config = check(compiled, (dict, type(None)), "'compile_config'", **place)
    if not config:
        return None
    objects = CustomObjects(custom_objects or {})
    # `within` collects the keys that lead to a value, for the messages
    with reading(file, f"{CONFIG}: compile_config"), within("compile_config"):
        optimizer_config = field(config, "optimizer", (dict, str, type(None)))
        with within("optimizer"):
            optimizer = _optimizer(optimizer_config, objects)
        group_names = store.groups("optimizer") if store is not None else ()
        # the configuration holds the unwrapped optimizer, but the arrays are those of the wrapper
        is_wrapped = isinstance(optimizer, optimizers.LossScaleOptimizer)
        if "inner_optimizer" in group_names and not is_wrapped:
            optimizer = optimizers.LossScaleOptimizer(optimizer)
        weights = field(config, "loss_weights", (list, dict, float, type(None)), None)
        loss, unweighted, weighted = (
            _tree(config.get(key), functools.partial(convert, custom_objects=objects), key)
            for key, convert in (
                ("loss", _loss),
                ("metrics", _metric),
                ("weighted_metrics", _metric),
            )
        )
        loss_weights = _tree(weights, _weight, "loss_weights")
        try:
            return Trainer(
                optimizer, loss, unweighted, loss_weights=loss_weights, weighted_metrics=weighted
            )
        except (TypeError, ValueError) as error:
            raise FileError(
                f"'loss', 'loss_weights', 'metrics' and 'weighted_metrics' do not fit: {error}"
            ) from error


def _tree(value: ParsedJson, convert: Callable[[Any], Any], what: str, depth: int = 0) -> Any:
    """Applies `convert` to the entries of lists and dictionaries by output; None stays None."""
    if value is None:
        return None
    # a limit on the recursion: configurations are nested by output, then by metric
    if depth > 2:
        raise FileError(
            f"the lists in {what!r} are nested deeper than outputs. The file is damaged."
        )
    if isinstance(value, list):
        # in a list of metrics for one output, every entry must be a metric
        has_metrics = what != "loss" and any(isinstance(part, str | Mapping) for part in value)
        for index, part in enumerate(value if has_metrics else ()):
            with within(what), within(index):
                check(part, (str, dict), f"a metric of {what!r}")
        return [_tree_at(index, part, convert, what, depth + 1) for index, part in enumerate(value)]
    if isinstance(value, Mapping) and "class_name" not in value:
        if {"module", "config"} <= set(value):
            with within(what) if depth == 0 else contextlib.nullcontext():
                field(value, "class_name", str)  # a damaged object, not a dictionary by output
        return {
            name: _tree_at(name, part, convert, what, depth + 1) for name, part in value.items()
        }
    with within(what) if depth == 0 else contextlib.nullcontext():
        return convert(value)


def _tree_at(
    key: str | int, value: ParsedJson, convert: Callable[[Any], Any], what: str, depth: int
) -> Any:
    with within(what) if depth == 1 else contextlib.nullcontext(), within(key):
        return _tree(value, convert, what, depth)


def _weight(value: ParsedJson) -> float:
    return float(check(value, float, "a loss weight"))


def _optimizer(value: Mapping[str, Any] | str | None, custom_objects: Mapping[str, Any]) -> Any:
    if value is None:
        raise FileError(
            "the model was compiled without an optimizer. Load the model with fk.load_model, and "
            "train it with your own Trainer."
        )
    optimizer = optimizers.get(value, custom_objects)
    if not isinstance(optimizer, optimizers.BaseOptimizer):
        raise FileError(
            f"expected an optimizer, received {type(optimizer).__name__}. Pass your own class in "
            "custom_objects, as a subclass of fk.optimizers.Optimizer."
        )
    return optimizer


def _loss(value: ParsedJson, custom_objects: Mapping[str, Any]) -> Any:
    # "crossentropy" stays a name: the Trainer chooses the loss by the shapes of output and targets
    name = _function(value, custom_objects, "loss", losses)
    if isinstance(name, str) and name.lower() in ("crossentropy", "ce"):
        return name
    loss = _object(as_loss, name, custom_objects)
    return _check_converted(loss, Loss, "a loss", name, custom_objects)


def _metric(value: ParsedJson, custom_objects: Mapping[str, Any]) -> Any:
    name = _function(value, custom_objects, "metric", metrics)
    # names stay names: the Trainer chooses the class of "accuracy" by shapes. `metrics.get` serves
    # for its error on unknown names only.
    if isinstance(name, str) and name not in custom_objects:
        if name.lower() not in ("accuracy", "acc", "crossentropy", "ce"):
            metrics.get(name)
        return name
    metric = _object(metrics.get, name, custom_objects)
    if isinstance(metric, Loss):
        metric = metrics.get(metric)
    return _check_converted(metric, Metric, "a metric", name, custom_objects)


def _object(get: Callable[..., Any], name: ParsedJson, custom_objects: Mapping[str, Any]) -> Any:
    is_config = isinstance(name, Mapping)
    return deserialize(name, custom_objects) if is_config else get(name, custom_objects)


def _function(
    value: ParsedJson, custom_objects: Mapping[str, Any], kind: str, library: ModuleType
) -> Any:
    """Returns `value`; for a function, the entry of `custom_objects` or the name in the library."""
    check(value, (str, dict), f"a {kind}")
    if isinstance(value, str):
        return value
    if field(value, "class_name", str) != "function":
        return value
    # files hold functions by name only: the name is looked up, and never imported
    name = field(value, "config", str)
    registered = field(value, "registered_name", (str, type(None)), None)
    for candidate in (name, registered):
        if candidate in custom_objects:
            return custom_objects[candidate]
    if name in public_names(library) or (hasattr(library, "get") and _is_in_library(library, name)):
        return name
    raise FileError(
        f"the {kind} {name[:80]!r} is a custom function, and files hold no code. Pass the function: "
        f"{custom_code(name, 'function')}; or load the model alone with fk.load_model, and make a "
        "Trainer."
    )


def _is_in_library(library: ModuleType, name: str) -> bool:
    try:
        return library.get(name) is not None
    except ValueError:
        return False


def _check_converted(
    converted: object, kind: type, what: str, value: Any, custom_objects: Mapping[str, Any]
) -> Any:
    # custom objects may be any callable; a name of the library must give a loss or a metric
    name = value["class_name"] if isinstance(value, Mapping) else value
    if (
        isinstance(converted, kind)
        or (isinstance(name, str) and name in custom_objects)
        or callable(value)
    ):
        return converted
    raise FileError(
        f"expected {what}, received {type(converted).__name__}. The file is damaged; fk.load_model "
        "loads the model alone."
    )


def write_compile_config(trainer: Trainer) -> dict[str, Any]:
    """Returns the `compile_config` with which Keras computes the same results as the trainer.

    Raises:
        TypeError: for options that change the results and have no form in Keras: a transformation
            of optax, a function without a name, weights excluded from weight decay by name.
    """
    _check_optimizer(trainer.optimizer)
    default_trainer = Trainer()
    omitted = [
        name for name in _OMITTED if getattr(trainer, name) != getattr(default_trainer, name)
    ]
    if omitted:
        warnings.warn(
            f"save_model: {', '.join(omitted)} of the trainer cannot be stored in the file. "
            "After loading write dataclasses.replace(trainer, "
            f"{omitted[0]}=...).",
            stacklevel=4,
        )
    return {
        "optimizer": serialize(trainer.optimizer),
        "loss": _json(trainer.loss),
        "loss_weights": _json(trainer.loss_weights),
        "metrics": _json(trainer.metrics),
        "weighted_metrics": _json(trainer.weighted_metrics),
        "run_eagerly": False,
        "steps_per_execution": 1,
        "jit_compile": "auto",
        # a Trainer scales the loss only with a LossScaleOptimizer, whatever the dtype policy
        "auto_scale_loss": False,
    }


def _check_optimizer(optimizer: Optimizer) -> None:
    if not isinstance(optimizer, optimizers.BaseOptimizer):
        raise TypeError(
            "save_model: expected an optimizer of fkeras, received a transformation of optax, "
            "which has no JSON form. Save the model alone, or the run with fit(checkpoint=...)."
        )
    if isinstance(optimizer, optimizers.Rowwise):
        raise TypeError(
            "save_model: expected an optimizer of Keras, received a Rowwise. Save the trainer "
            "dataclasses.replace(trainer, optimizer=trainer.optimizer.inner_optimizer): the state of both "
            "is the same."
        )
    excluded = getattr(optimizer, "exclude_from_weight_decay", ())
    if excluded:
        raise TypeError(
            f"save_model: {type(optimizer).__name__}: Keras's format cannot store "
            f"exclude_from_weight_decay={list(excluded)}, and without "
            "it these weights would decay. Save the model alone, or the run with "
            "fit(checkpoint=...)."
        )
    # the options of inner optimizers are written too
    if isinstance(optimizer, optimizers.LossScaleOptimizer):
        _check_optimizer(optimizer.inner_optimizer)
    if isinstance(optimizer, optimizers.MultiOptimizer):
        for _, inner in optimizer.optimizer_map:
            _check_optimizer(inner)


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_json(part) for part in value]
    if isinstance(value, LossFunctionWrapper) and as_loss(value.fn) == value:
        return serialize(value.fn)  # Keras has no public class for the function
    if isinstance(value, MeanMetricWrapper) and metrics.get(value.fn) == value:
        return serialize(value.fn)
    return serialize(value) if isinstance(value, Loss | Metric) else value


def read_optimizer(
    store: Store, compiled: Mapping, trainer: Trainer, run: TrainState
) -> TrainState:
    """Returns the run with the optimizer's state and the step count of a weight file.

    The stored learning rate, which training may have changed, overrides that of the configuration.

    Args:
        run: run of the loaded model; its optimizer state is ignored.
    """
    config: Any = compiled.get("optimizer")
    optimizer = trainer.optimizer
    if "inner_optimizer" in store.groups("optimizer") and not _is_loss_scale(config):
        config = {"config": {"inner_optimizer": config}}
    weights = trained(run.model)
    with reading(store.file, store.place(_GROUP)):
        entries = layout(optimizer, config, weights)[0][1]
        count = len(store.datasets(_GROUP))
        unbuilt = layout(optimizer, config, weights, built=False)[0][1]
        if count != len(entries) and count == len(unbuilt):
            entries = unbuilt  # compiled, but never trained
        _check_numbers(store, optimizer, entries, len(weights))
        pairs = [(entry, unread(store, f"{_GROUP}/{n}")) for n, entry in enumerate(entries)]
        return restored(run, optimizer, weights, pairs)


def _is_loss_scale(config: ParsedJson) -> bool:
    return isinstance(config, Mapping) and config.get("class_name") == "LossScaleOptimizer"


def _check_numbers(
    store: Store, optimizer: Optimizer, entries: Sequence[Entry], weights: int
) -> None:
    names = set(store.datasets(_GROUP))
    missing = next((n for n in range(len(entries)) if str(n) not in names), None)
    if missing is None and len(names) == len(entries):
        return
    missing_note = f"; {_GROUP}/{missing} is missing" if missing is not None else ""
    raise FileError(
        f"expected {len(entries)} arrays of {type(optimizer).__name__} for {weights} trainable "
        f"weights, received {len(names)}{missing_note}. The state belongs to another optimizer or to other "
        "trainable weights; fk.load_model loads the model alone."
    )


def optimizer_arrays(trainer: Trainer, run: TrainState) -> list[tuple[str, np.ndarray]]:
    """Returns `(path, array)` for the arrays of an optimizer in Keras's weight file."""
    # weights frozen or unfrozen since the last step change the state: `follow` adapts it first
    opt_state = follow(trainer.optimizer, run.opt_state, run.model)
    groups = layout(trainer.optimizer, serialize(trainer.optimizer), trained(run.model))
    return written(groups, opt_state, run.step)


def compiled_parts(
    trainer: Trainer | None, run: TrainState | None, model: Layer
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns `(compile_config, arrays by path)` of a training, for a file of `model`."""
    if not isinstance(trainer, Trainer) or not isinstance(run, TrainState | None):
        raise ValueError(
            f"save_model: expected trainer= and run= of one training, received "
            f"{type(trainer).__name__} and {type(run).__name__}. Write fk.save_model(path, "
            "run.model, run.state, trainer=trainer, run=run)."
        )
    if trainer.objective is not None:
        raise TypeError(
            "save_model: the trainer has an objective, a custom function, and files hold no code. "
            "Save the model alone, fk.save_model(path, run.model, run.state), or the "
            "whole run with fit(checkpoint=...)."
        )
    _check_optimizer(trainer.optimizer)
    # without a run, the file holds the initial state: Keras then opens the model compiled
    if run is None:
        opt_state = optimizers.transformation(trainer.optimizer).init(trainable_weights(model))
        run = TrainState(model, {}, opt_state, {}, np.zeros((), "int32"), jax.random.key(0))
    run = run.replace(opt_state=inner_state(run.opt_state))
    optimizer = as_trained(trainer.optimizer, run.opt_state)
    trainer = dataclasses.replace(trainer, optimizer=optimizer)
    arrays = optimizer_arrays(trainer, run.replace(model=model))
    return write_compile_config(trainer), dict(arrays)
