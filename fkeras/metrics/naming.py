"""Lookup of metrics by name, function or configuration; "accuracy" selects by the shapes.

The `METRICS` table at the end of each family module lists the names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, overload

from fkeras.engine.config.configurable import deserializer, lookup
from fkeras.engine.config.field_types import Named
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.registry import by_name
from fkeras.losses.loss import Loss
from fkeras.losses.naming import kind_of_classes
from fkeras.metrics import (
    accuracies,
    auc,
    calibration,
    confusion,
    correlation,
    counts,
    error_rates,
    f_score,
    mean_losses,
    metric,
    operating_points,
    overlap,
    retrieval,
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
    retrieval.METRICS,
    calibration.METRICS,
    error_rates.METRICS,
)


@overload
def get(identifier: None, custom_objects: Mapping[str, Any] | None = None) -> None: ...


@overload
def get(identifier: Named, custom_objects: Mapping[str, Any] | None = None) -> Metric: ...


@hides_internal_frames
def get(identifier: Named | None, custom_objects: Mapping[str, Any] | None = None) -> Metric | None:
    """Returns the metric for a name, a function, a class, a configuration, a loss or a metric.

    Args:
        identifier: Keras's name of a metric, a `Metric`, a subclass of `Metric`, a configuration
            from `serialize`, a `Loss`, a function (y_true, y_pred) that returns one value per
            sample, or None.
        custom_objects: user-defined metrics and functions by name.

    Returns:
        A `Metric`, or None for None. A loss or a user's function is wrapped in a
        `MeanMetricWrapper`.

    Raises:
        ValueError: if the name is unknown; suggests the nearest name.
        TypeError: if `identifier` has an unsupported type.

    Example:
        >>> import fkeras as fk
        >>> fk.metrics.get("mse")
        MeanSquaredError()
    """
    # Keras serializes a plain function as {"class_name": "function", "config": its name}
    if isinstance(identifier, Mapping) and identifier.get("class_name") == "function":
        identifier = identifier["config"]
    metric = lookup(identifier, "metric", NAMES, custom_objects)
    if metric is None or isinstance(metric, Metric):
        return metric
    name = metric._label if isinstance(metric, Loss) else getattr(metric, "__name__", None)
    return MeanMetricWrapper(metric, name=name)


deserialize = deserializer(get)


def resolve(
    identifier: Named | None, y_true: HasShape, y_pred: HasShape, loss: object = None
) -> Metric:
    """Returns the metric for an identifier; "accuracy" and "crossentropy" select by the shapes.

    They select the binary metric for predictions of one unit, the sparse metric for class numbers,
    else the categorical metric. A name is also the metric's key in the logs.

    Args:
        identifier: an identifier for `get`, "accuracy" or "acc", "crossentropy" or "ce".
        y_true: an object with the targets' `shape`.
        y_pred: an object with the predictions' `shape`.
        loss: the model's training loss; "crossentropy" copies `from_logits` from `loss`.

    Raises:
        ValueError: if the name is unknown, or `identifier` is None.

    Example:
        >>> import fkeras as fk
        >>> import jax
        >>> labels, scores = (jax.ShapeDtypeStruct(s, "float32") for s in ((8,), (8, 10)))
        >>> fk.metrics.resolve("accuracy", labels, scores)
        SparseCategoricalAccuracy('accuracy')
    """
    if identifier is None:
        raise ValueError("Expected a metric, received None. Omit None, or pass 'accuracy'.")
    if not isinstance(identifier, str):
        return get(identifier)
    name, kind = identifier.lower(), kind_of_classes(y_true, y_pred)
    if name in ("accuracy", "acc"):
        metric_class = {
            "binary": accuracies.BinaryAccuracy,
            "sparse": accuracies.SparseCategoricalAccuracy,
            "categorical": accuracies.CategoricalAccuracy,
        }[kind]
        return metric_class(name=identifier)
    if name in ("crossentropy", "ce"):
        metric_class = {
            "binary": mean_losses.BinaryCrossentropy,
            "sparse": mean_losses.SparseCategoricalCrossentropy,
            "categorical": mean_losses.CategoricalCrossentropy,
        }[kind]
        # a metric of probabilities on logits would be wrong without an error
        return metric_class(name=identifier, from_logits=bool(getattr(loss, "from_logits", False)))
    # log under the name that the user passed: "mse", not "mean_squared_error"
    return dataclasses.replace(get(identifier), name=identifier)
