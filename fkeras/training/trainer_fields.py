"""Converters of the fields of a `Trainer`: losses, metrics and their weights, by output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras import losses, metrics
from fkeras.engine.config.converters import real
from fkeras.transforms.remat import get_policy


def as_loss(value: Any) -> Any:
    """The losses of a trainer: values of `fk.losses`, in the tree of the outputs."""
    if isinstance(value, Mapping) and "class_name" not in value:
        return {name: as_loss(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(as_loss(v) for v in value)
    if isinstance(value, str) and value.lower() in ("crossentropy", "ce"):
        return value
    return losses.get(value)


def as_metrics(value: Any) -> Any:
    """The metrics of a trainer: names and values of `fk.metrics`, in the tree of the outputs."""
    if value is None:
        return ()
    if isinstance(value, Mapping) and "class_name" not in value:
        return {name: as_metrics(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(as_metrics(v) if isinstance(v, list | tuple) else _metric(v) for v in value)
    return (_metric(value),)


def _metric(value: Any) -> Any:
    # these take their meaning from the loss and the shapes
    if isinstance(value, str) and value.lower() in ("accuracy", "acc", "crossentropy", "ce"):
        return value
    found = metrics.get(value)
    # the name that was written is the name in the logs
    return value if isinstance(value, str) else found


_factor = real(optional=True)


def as_loss_weights(value: Any) -> Any:
    """The factors of the losses of a trainer, in the tree of the outputs."""
    if isinstance(value, Mapping):
        return {name: _factor(weight) for name, weight in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_factor, value))
    return _factor(value)


def as_remat(value: Any) -> Any:
    """The rematerialization of a trainer; rejects an unknown name."""
    get_policy(value)
    return value
