"""Converts the fields of a `Trainer`: losses, metrics and loss weights, by output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import optax

from fkeras import losses, metrics, optimizers
from fkeras.engine.config.converters import real
from fkeras.transforms.remat import get_policy

#: types of arguments: names, configurations, functions, and values of fkeras
Optimizer: TypeAlias = optimizers.BaseOptimizer | optax.GradientTransformation
OptimizerLike: TypeAlias = str | Mapping[str, Any] | Optimizer
LossLike: TypeAlias = str | Callable[..., Any] | Mapping[str, Any] | None
MetricLike: TypeAlias = str | metrics.Metric | Callable[..., Any] | Mapping[str, Any]
Metrics: TypeAlias = (
    MetricLike | Sequence[MetricLike | Sequence[MetricLike]] | Mapping[str, Any] | None
)
Factors: TypeAlias = float | Sequence[float | None] | Mapping[str, float | None] | None


def as_loss(value: Any) -> Any:
    """Returns the losses of a trainer as values of `fk.losses`, in the tree of the outputs."""
    # A dictionary with "class_name" is the config of one loss; any other dictionary is by output.
    if isinstance(value, Mapping) and "class_name" not in value:
        return {name: as_loss(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(as_loss(v) for v in value)
    # The class for "crossentropy" depends on the shapes of targets, known only in `fit`.
    if isinstance(value, str) and value.lower() in ("crossentropy", "ce"):
        return value
    return losses.get(value)


def as_metrics(value: Any) -> Any:
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


_factor = real(optional=True)


def as_loss_weights(value: Any) -> Any:
    """Returns the loss weights of a trainer, in the tree of the outputs."""
    if isinstance(value, Mapping):
        return {name: _factor(weight) for name, weight in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_factor, value))
    return _factor(value)


def as_remat(value: Any) -> Any:
    """Returns the rematerialization policy of a trainer; rejects an unknown name."""
    get_policy(value)
    return value
