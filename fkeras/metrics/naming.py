"""Metrics by name, and the meaning of "accuracy" for given shapes.

The names stand in the rows at the end of each family module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, overload

from fkeras.engine.config.configurable import lookup
from fkeras.engine.values.registry import by_name
from fkeras.losses.loss import Loss
from fkeras.losses.naming import kind_of_classes
from fkeras.metrics import (
    accuracies,
    auc,
    confusion,
    correlation,
    counts,
    f_score,
    mean_losses,
    metric,
    operating_points,
    overlap,
)
from fkeras.metrics.metric import MeanMetricWrapper, Metric

NAMES: Mapping[str, type[Metric]] = by_name(
    metric.METRICS,
    accuracies.METRICS,
    mean_losses.METRICS,
    confusion.METRICS,
    auc.METRICS,
    f_score.METRICS,
    counts.METRICS,
    operating_points.METRICS,
    overlap.METRICS,
    correlation.METRICS,
)


@overload
def get(identifier: None, custom_objects: Mapping[str, Any] | None = None) -> None: ...


@overload
def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Metric: ...


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Metric | None:
    """The metric that a name, a function, a configuration or a metric means; None for none.

    Args:
        identifier: Keras's name of a metric, a `Metric` or its class, what `serialize` wrote, a
            `Loss`, or any function (y_true, y_pred) that returns one number a sample.
        custom_objects: your own by name.

    Returns:
        A `Metric`; a loss or a function of your own is wrapped in a `MeanMetricWrapper`.

    Raises:
        ValueError: for an unknown name, with the nearest one.
        TypeError: for anything else.

    Example:
        >>> import fkeras as fk
        >>> fk.metrics.get("mse")
        MeanSquaredError()
    """
    if isinstance(identifier, Mapping) and identifier.get("class_name") == "function":
        identifier = identifier["config"]
    metric = lookup(identifier, "metric", NAMES, custom_objects)
    if metric is None or isinstance(metric, Metric):
        return metric
    name = metric.label if isinstance(metric, Loss) else getattr(metric, "__name__", None)
    return MeanMetricWrapper(metric, name=name)


def resolve(identifier: Any, y_true: Any, y_pred: Any, loss: Any = None) -> Metric:
    """As `get`, and "accuracy" and "crossentropy" mean those that fit the shapes.

    For predictions of one unit they are binary, for class numbers sparse, else categorical. A
    name that was given is the name in the logs.

    Args:
        identifier: what `get` takes, "accuracy" or "acc", "crossentropy" or "ce".
        y_true: anything with the targets' `shape`.
        y_pred: anything with the predictions' `shape`.
        loss: the loss that the model is trained with: a crossentropy takes its `from_logits`.

    Raises:
        ValueError: for an unknown name, or None.

    Example:
        >>> import fkeras as fk
        >>> import jax
        >>> labels, scores = (jax.ShapeDtypeStruct(s, "float32") for s in ((8,), (8, 10)))
        >>> fk.metrics.resolve("accuracy", labels, scores)
        SparseCategoricalAccuracy('accuracy')
    """
    if identifier is None:
        raise ValueError("Expected a metric, received None. Leave it out, or pass 'accuracy'.")
    if not isinstance(identifier, str):
        return get(identifier)
    word, kind = identifier.lower(), kind_of_classes(y_true, y_pred)
    if word in ("accuracy", "acc"):
        chosen = {
            "binary": accuracies.BinaryAccuracy,
            "sparse": accuracies.SparseCategoricalAccuracy,
            "categorical": accuracies.CategoricalAccuracy,
        }[kind]
        return chosen(name=identifier)
    if word in ("crossentropy", "ce"):
        chosen = {
            "binary": mean_losses.BinaryCrossentropy,
            "sparse": mean_losses.SparseCategoricalCrossentropy,
            "categorical": mean_losses.CategoricalCrossentropy,
        }[kind]
        return chosen(name=identifier, from_logits=bool(getattr(loss, "from_logits", False)))
    return dataclasses.replace(get(identifier), name=identifier)
