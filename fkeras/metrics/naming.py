"""Metrics by name, and what "accuracy" means for given shapes."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.configurable import lookup
from fkeras.losses.loss import Loss
from fkeras.losses.naming import kind_of_classes
from fkeras.metrics import accuracies as right
from fkeras.metrics import confusion, correlation, counts, mean_losses, overlap
from fkeras.metrics import operating_points as points
from fkeras.metrics.auc import AUC
from fkeras.metrics.f_score import F1Score, FBetaScore
from fkeras.metrics.metric import Mean, MeanMetricWrapper, Metric, Sum

_CLASSES: Mapping[str, type[Metric]] = types.MappingProxyType(
    {
        "mean": Mean,
        "sum": Sum,
        "accuracy": right.Accuracy,
        "binary_accuracy": right.BinaryAccuracy,
        "categorical_accuracy": right.CategoricalAccuracy,
        "sparse_categorical_accuracy": right.SparseCategoricalAccuracy,
        "top_k_categorical_accuracy": right.TopKCategoricalAccuracy,
        "sparse_top_k_categorical_accuracy": right.SparseTopKCategoricalAccuracy,
        "mean_squared_error": mean_losses.MeanSquaredError,
        "mean_absolute_error": mean_losses.MeanAbsoluteError,
        "mean_absolute_percentage_error": mean_losses.MeanAbsolutePercentageError,
        "mean_squared_logarithmic_error": mean_losses.MeanSquaredLogarithmicError,
        "root_mean_squared_error": mean_losses.RootMeanSquaredError,
        "log_cosh_error": mean_losses.LogCoshError,
        "cosine_similarity": mean_losses.CosineSimilarity,
        "binary_crossentropy": mean_losses.BinaryCrossentropy,
        "categorical_crossentropy": mean_losses.CategoricalCrossentropy,
        "sparse_categorical_crossentropy": mean_losses.SparseCategoricalCrossentropy,
        "kl_divergence": mean_losses.KLDivergence,
        "poisson": mean_losses.Poisson,
        "hinge": mean_losses.Hinge,
        "squared_hinge": mean_losses.SquaredHinge,
        "categorical_hinge": mean_losses.CategoricalHinge,
        "precision": confusion.Precision,
        "recall": confusion.Recall,
        "auc": AUC,
        "f1_score": F1Score,
        "f_beta_score": FBetaScore,
        "true_positives": counts.TruePositives,
        "true_negatives": counts.TrueNegatives,
        "false_positives": counts.FalsePositives,
        "false_negatives": counts.FalseNegatives,
        "precision_at_recall": points.PrecisionAtRecall,
        "recall_at_precision": points.RecallAtPrecision,
        "sensitivity_at_specificity": points.SensitivityAtSpecificity,
        "specificity_at_sensitivity": points.SpecificityAtSensitivity,
        "binary_io_u": overlap.BinaryIoU,
        "io_u": overlap.IoU,
        "mean_io_u": overlap.MeanIoU,
        "one_hot_io_u": overlap.OneHotIoU,
        "one_hot_mean_io_u": overlap.OneHotMeanIoU,
        "concordance_correlation": correlation.ConcordanceCorrelation,
        "pearson_correlation": correlation.PearsonCorrelation,
        "r2_score": correlation.R2Score,
    }
)

_ALIASES: Mapping[str, type[Metric]] = types.MappingProxyType(
    {
        "bce": mean_losses.BinaryCrossentropy,
        "mse": mean_losses.MeanSquaredError,
        "mae": mean_losses.MeanAbsoluteError,
        "mape": mean_losses.MeanAbsolutePercentageError,
        "msle": mean_losses.MeanSquaredLogarithmicError,
    }
)

NAMES: Mapping[str, type[Metric]] = types.MappingProxyType(
    {
        **_CLASSES,
        **{cls.__name__: cls for cls in _CLASSES.values()},
        **_ALIASES,
        **{alias.upper(): cls for alias, cls in _ALIASES.items()},
        "fbeta_score": FBetaScore,
    }
)


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
            "binary": right.BinaryAccuracy,
            "sparse": right.SparseCategoricalAccuracy,
            "categorical": right.CategoricalAccuracy,
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
