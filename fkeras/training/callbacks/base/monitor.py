"""Watching one log: is it there, which way is better, and is it better now."""

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
# which way is better, by the name of a log
_DIRECTIONS: Mapping[str, str] = types.MappingProxyType(
    {**dict.fromkeys(_UP, "max"), **dict.fromkeys(_DOWN, "min")}
)


verbosity = either(integer(minimum=0), boolean)


def direction(where: str, name: str, mode: str) -> str:
    """Which values of a log are better, "min" or "max".

    The name decides in mode "auto", after "val_" and the name of an output, without the numbers
    that tell metrics of one name apart ("auc_1").

    Args:
        where: the callback, for the message.
        name: the name of the log.
        mode: "auto", "min" or "max".

    Raises:
        ValueError: for "auto" and a name that says nothing.

    Example:
        >>> direction("EarlyStopping", "val_accuracy", "auto")
        'max'
    """
    if mode != "auto":
        return mode
    words = name.removeprefix("val_").split("_")
    while words and words[-1].isdigit():
        words.pop()
    for start in range(len(words)):
        found = _DIRECTIONS.get("_".join(words[start:]))
        if found is not None:
            return found
    raise ValueError(
        f"{where}: whether {name!r} is better large or small cannot be told by its name. Write "
        f'{where}(monitor={name!r}, mode="max"), or mode="min".'
    )


def check(where: str, name: str, names: Sequence[str]) -> None:
    """Raises where a training has no log of this name.

    Args:
        where: the callback, for the message.
        name: the name of the log.
        names: the names of all logs.
    """
    if name in names:
        return
    shown = ", ".join(names) or "none"
    if _lacks_validation(name, names):
        raise ValueError(
            f"{where}: expected a log named {name!r}, and this training has no validation (its "
            f"logs are: {shown}). Pass validation_data=(x, y) or validation_split=0.1 to fit, or "
            f"monitor={name.removeprefix('val_')!r}."
        )
    raise ValueError(
        f"{where}: there is no log named {name!r}.{suggest(name, names)} The logs are: {shown}. "
        "Write one of them as monitor."
    )


def _lacks_validation(name: str, names: Sequence[str]) -> bool:
    validated = any(one.startswith("val_") for one in names)
    return name.startswith("val_") and name.removeprefix("val_") in names and not validated


def current(where: str, name: str, logs: Mapping[str, Any]) -> float | None:
    """The value of a log; None in an epoch without the validation that would give it.

    Args:
        where: the callback, for the message.
        name: the name of the log.
        logs: the logs of an epoch.

    Raises:
        ValueError: where there is no such log, or it is several numbers.
    """
    if name not in logs:
        if not _lacks_validation(name, list(logs)):
            check(where, name, list(logs))
        return None
    if isinstance(logs[name], list | tuple):
        raise ValueError(
            f"{where}: expected one number to monitor, and {name!r} is {len(logs[name])} numbers. "
            "Monitor another log, or average the metric."
        )
    return float(logs[name])


def improves(way: str, value: float, best: float, min_delta: float = 0.0) -> bool:
    """Whether a value is better than the best by more than `min_delta`; any is better than nan.

    Args:
        way: "min" or "max".
        value: the new value.
        best: the best one before; nan for none.
        min_delta: by how much.

    Example:
        >>> improves("min", 0.4, 0.5), improves("min", 0.4, 0.5, 0.2), improves("max", 1.0, math.nan)
        (True, False, True)
    """
    if math.isnan(best):
        return not math.isnan(value)
    delta = abs(min_delta)
    return value + delta < best if way == "min" else value - delta > best


def ongoing(kept: Any, epoch: int) -> Any:
    """What is remembered where it is of this training; None where that began anew.

    A training goes on where its epochs go on counting, in another process too; one that begins
    with an epoch that was over begins anew.
    """
    return None if kept is None or int(kept["epoch"]) >= epoch else kept


def tell_unseen(where: str, name: str) -> None:
    """Warns that a callback never saw what it monitors."""
    warnings.warn(
        f"{where}: no epoch had a log named {name!r}, so it did nothing. Pass validation_data to "
        f"fit, or monitor={name.removeprefix('val_')!r}.",
        stacklevel=2,
    )
