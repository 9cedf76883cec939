"""What callbacks report to tracking services: logs, learning rate, options of a trainer."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.engine import Configurable
from fkeras.engine.config.converters import choice, either, integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.optimizers.base import BaseOptimizer
from fkeras.optimizers.updates.rates import learning_rate
from fkeras.training.callbacks.base.callback import Callback
from fkeras.training.records.state import TrainState

# MLflow rejects longer values of parameters
_LONGEST_TEXT = 500
_PERIOD = either(choice("epoch", "batch"), integer(minimum=1))


def service(where: str, module: str) -> Any:
    """Returns a module of an optional package, such as wandb.

    Raises:
        ImportError: if the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_package(where, module.partition(".")[0], error) from error


def period(value: object) -> Any:
    """Converts a period of logs: "epoch", or a number of steps, which is 1 for "batch"."""
    checked = _PERIOD(value)
    return 1 if checked == "batch" else checked


def flat(logs: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Returns the logs as numbers; a log with a number for each class becomes several logs."""
    numbers = {}
    for name, value in logs.items():
        if isinstance(value, list | tuple):
            numbers |= {f"{prefix}{name}_{i}": float(part) for i, part in enumerate(value)}
        else:
            numbers[prefix + name] = float(value)
    return numbers


def rate(run: TrainState[Any]) -> dict[str, float]:
    """Returns the learning rate as a log; empty if the optimizer state has no single rate."""
    try:
        return {"learning_rate": float(learning_rate(run.opt_state))}
    except ValueError:
        return {}


def due(callback: Callback, run: TrainState[Any], step: int, period: int) -> bool:
    """Returns whether `period` steps have passed since the step that the callback remembers."""
    memory = callback.recall(run)
    passed = step - (int(memory["step"]) if isinstance(memory, Mapping) and "step" in memory else 0)
    # negative for a run that starts again from step 0 with an old memory
    return not 0 <= passed < period


def as_options(value: object) -> Any:
    """Returns a trainer, an optimizer or a dictionary with string keys.

    Raises:
        TypeError: for another value.
    """
    # a trainer is recognized by its optimizer: the class Trainer imports the callbacks
    is_trainer = isinstance(value, Configurable) and hasattr(value, "optimizer")
    if value is None or is_trainer or isinstance(value, BaseOptimizer):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise TypeError(
        "expected a trainer, an optimizer, a dictionary with string keys, or None, received "
        f"{describe_value(value)}. Write config=trainer."
    )


def options(value: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the options of a trainer, optimizer or dictionary as numbers and texts.

    The options of an option follow under names with an underscore. Options that are None are
    omitted.
    """
    if isinstance(value, Configurable):
        fields = [field.name for field in dataclasses.fields(value) if field.name != "name"]
        value = {name: getattr(value, name) for name in fields}
    entries: dict[str, Any] = {}
    for name, option in (value or {}).items():
        if isinstance(option, np.generic):
            option = option.item()
        if isinstance(option, Configurable):
            entries[prefix + name] = type(option).__name__
            entries |= options(option, f"{prefix}{name}_")
        elif isinstance(option, bool | int | float):
            entries[prefix + name] = option
        elif option is not None and not (isinstance(option, tuple | Mapping) and not option):
            entries[prefix + name] = _text(option)[:_LONGEST_TEXT]
    return entries


def _text(value: object) -> str:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(part)}" for name, part in value.items())
    if isinstance(value, str):
        return value
    # not the repr of a function, an optimizer of optax or an array: it has addresses or many lines
    return str(getattr(value, "__name__", type(value).__name__))
