"""Converts the arguments of a `Trainer`: losses, metrics, loss weights and others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras import metrics
from fkeras.atomic_files.atomic import as_path
from fkeras.engine.config.converters import real
from fkeras.losses.naming import as_loss
from fkeras.transforms.remat import get_policy


def as_losses(value: Any) -> Any:
    """Returns the losses of a trainer as values of `fk.losses`, in the tree of the outputs."""
    # A dictionary with "class_name" is the config of one loss; any other dictionary is by output.
    if isinstance(value, Mapping) and "class_name" not in value:
        return {name: as_losses(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(as_losses(v) for v in value)
    # The class for "crossentropy" depends on the shapes of targets, known only in `fit`.
    if isinstance(value, str) and value.lower() in ("crossentropy", "ce"):
        return value
    return as_loss(value)


def as_metrics(value: object) -> Any:
    """Returns the metrics of a trainer, names or `fk.metrics` values, in the tree of the outputs."""
    if value is None:
        return ()
    if isinstance(value, Mapping) and "class_name" not in value:
        return {name: as_metrics(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(as_metrics(v) if isinstance(v, list | tuple) else _metric(v) for v in value)
    return (_metric(value),)


def _metric(value: Any) -> Any:
    # The class for these names depends on the loss and the shapes, known only in `fit`.
    if isinstance(value, str) and value.lower() in ("accuracy", "acc", "crossentropy", "ce"):
        return value
    metric = metrics.get(value)  # also for a name: an unknown name is reported here
    # A name stays a string: the logs use the name as written ("mse", not "mean_squared_error").
    return value if isinstance(value, str) else metric


def shown(value: object) -> str:
    """Returns a value of an argument as text: names without quotes, functions by name."""
    if isinstance(value, tuple):  # transformations of optax are named tuples of functions
        return f"optax.{type(value).__name__}"
    return str(getattr(value, "__name__", value))


_factor = real(optional=True)


def as_loss_weights(value: object) -> Any:
    """Returns the loss weights of a trainer, in the tree of the outputs."""
    if isinstance(value, Mapping):
        return {name: _factor(weight) for name, weight in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_factor, value))
    return _factor(value)


def as_remat(value: object) -> Any:
    """Returns the rematerialization policy of a trainer; rejects an unknown name."""
    get_policy(value)
    return value


def as_cache(value: object) -> bool | str:
    """Returns whether to cache the frozen part, or the folder for it."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise TypeError(
            f"expected True, False or a folder, received {value!r}. Write cache_frozen=True, or "
            "cache_frozen='features'."
        )
    return os.path.expanduser(as_path(value))
