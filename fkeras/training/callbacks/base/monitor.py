"""Monitors one log: checks its name, decides the direction of better values, compares values."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from fkeras.engine import suggest
from fkeras.engine.config.converters import boolean, either, integer

_UP = (
    "accuracy",
    "acc",
    "binary_accuracy",
    "categorical_accuracy",
    "sparse_categorical_accuracy",
    "top_k_categorical_accuracy",
    "sparse_top_k_categorical_accuracy",
    "auc",
    "precision",
    "recall",
    "precision_at_recall",
    "recall_at_precision",
    "sensitivity_at_specificity",
    "specificity_at_sensitivity",
    "f1_score",
    "fbeta_score",
    "io_u",
    "binary_io_u",
    "mean_io_u",
    "one_hot_io_u",
    "one_hot_mean_io_u",
    "cosine_similarity",
    "r2_score",
    "pearson_correlation",
    "concordance_correlation",
)
_DOWN = (
    "loss",
    "mse",
    "mae",
    "mape",
    "msle",
    "rmse",
    "crossentropy",
    "ce",
    "binary_crossentropy",
    "categorical_crossentropy",
    "sparse_categorical_crossentropy",
    "mean_squared_error",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_logarithmic_error",
    "root_mean_squared_error",
    "hinge",
    "squared_hinge",
    "categorical_hinge",
    "kl_divergence",
    "poisson",
    "logcosh",
    "huber",
    "error",
)
# direction of better values, by the name of a log
_DIRECTIONS: Mapping[str, str] = types.MappingProxyType(
    {**dict.fromkeys(_UP, "max"), **dict.fromkeys(_DOWN, "min")}
)


verbosity = either(integer(minimum=0), boolean)


def direction(where: str, name: str, mode: str) -> str:
    """Returns the direction of better values of a log, "min" or "max".

    Mode "auto" decides by the name, without the prefix "val_", the name of an output, and the
    numbers of metrics with equal names ("auc_1").

    Raises:
        ValueError: for "auto" and a name of unknown direction.
    """
    if mode != "auto":
        return mode
    words = name.removeprefix("val_").split("_")
    while words and words[-1].isdigit():
        words.pop()
    # the longest known suffix: an output's name may precede the metric's name
    for start in range(len(words)):
        better_values = _DIRECTIONS.get("_".join(words[start:]))
        if better_values is not None:
            return better_values
    raise ValueError(
        f"{where}: the name {name!r} does not show whether larger or smaller values are better. "
        f'Write {where}(monitor={name!r}, mode="max"), or mode="min".'
    )


def check(where: str, name: str, names: Sequence[str]) -> None:
    """Raises a `ValueError` if a training has no log of this name."""
    if name in names:
        return
    shown = ", ".join(names) or "none"
    if _lacks_validation(name, names):
        raise ValueError(
            f"{where}: expected a log named {name!r}, but this training has no validation (its "
            f"logs are: {shown}). Pass validation_data=(x, y) or validation_split=0.1 to fit, or "
            f"monitor={name.removeprefix('val_')!r}."
        )
    raise ValueError(
        f"{where}: unknown log {name!r}.{suggest(name, names)} The logs are: {shown}. Pass the "
        "name of a log as monitor."
    )


def _lacks_validation(name: str, names: Sequence[str]) -> bool:
    validated = any(log_name.startswith("val_") for log_name in names)
    return name.startswith("val_") and name.removeprefix("val_") in names and not validated


def current(where: str, name: str, logs: Mapping[str, Any]) -> float | None:
    """Returns the value of a log; None for a validation log in an epoch without validation.

    Raises:
        ValueError: for a missing log, or a log with several values.
    """
    if name not in logs:
        if not _lacks_validation(name, list(logs)):
            check(where, name, list(logs))
        return None
    if isinstance(logs[name], list | tuple):
        raise ValueError(
            f"{where}: expected a scalar to monitor, but {name!r} has {len(logs[name])} values. "
            "Monitor another log, or average the metric."
        )
    return float(logs[name])


def improves(way: str, value: float, best: float, min_delta: float = 0.0) -> bool:
    """Returns whether a value improves on the best value by more than `min_delta`.

    Args:
        way: direction of better values, "min" or "max".
        best: best value before; NaN if none, so that any number is an improvement.
    """
    if math.isnan(best):
        return not math.isnan(value)
    # as in Keras's EarlyStopping, the sign of min_delta has no effect
    delta = abs(min_delta)
    return value + delta < best if way == "min" else value - delta > best


def ongoing(kept: Mapping[str, Any] | None, epoch: int) -> Any:
    """Returns a callback's values if they belong to this training; None for a new training.

    A training continues if its epochs continue to count, also after a resume. A training is new if
    it starts with an epoch that is already over.
    """
    return None if kept is None or int(kept["epoch"]) >= epoch else kept


def tell_unseen(where: str, name: str) -> None:
    """Warns that no epoch had the log that a callback monitors."""
    warnings.warn(
        f"{where}: no epoch had a log named {name!r}, so the callback had no effect. Pass "
        f"validation_data to fit, or monitor={name.removeprefix('val_')!r}.",
        stacklevel=2,
    )
