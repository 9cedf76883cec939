"""Accuracies: shares of correct predictions.

If a prediction or a target is NaN, or a class number invalid, the accuracy is NaN. Keras counts
these samples as wrong, or, depending on `argmax`, as correct.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, integer, real, text
from fkeras.engine.config.field_types import DTypeName, Integer, Real
from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.checks import check_call
from fkeras.losses.crossentropy import class_numbers
from fkeras.losses.loss import dtype_name
from fkeras.losses.reducing import align_pair, require_axis
from fkeras.metrics.metric import FunctionMean
from fkeras.nn.cpu.extremes import position
from fkeras.nn.numerics.indices import valid_indices


def accuracy(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns 1 where y_true equals y_pred, else 0.

    Returns:
        Zeros and ones, float32, as all functions of this module.
    """
    y_true, y_pred = align_pair(y_true, y_pred)
    # one dtype: strict dtype promotion rejects a comparison of integers and floats
    y_true = y_true.astype(y_pred.dtype)
    return _or_nan(y_true == y_pred, jnp.isnan(y_true) | jnp.isnan(y_pred))


def _or_nan(is_correct: jax.Array, is_unknown: jax.Array) -> jax.Array:
    """Returns 1 for correct, 0 for wrong and NaN for unknown."""
    return jnp.where(is_unknown, jnp.nan, is_correct.astype("float32"))


def _any_nan(scores: jax.Array) -> jax.Array:
    return jnp.any(jnp.isnan(require_axis(scores)), axis=-1)


def binary_accuracy(y_true: Numbers, y_pred: Numbers, threshold: float = 0.5) -> jax.Array:
    """Returns 1 where `y_pred > threshold` equals the target, else 0.

    Args:
        y_true: 0 or 1, (b, ..., d).
        y_pred: probabilities, (b, ..., d).
        threshold: probability above which a prediction is 1.

    Returns:
        Zeros and ones, float32, (b, ..., d).

    Example:
        >>> import fkeras as fk
        >>> fk.metrics.binary_accuracy([[1, 0]], [[0.7, 0.6]])
        Array([[1., 0.]], dtype=float32)
    """
    y_true, y_pred = align_pair(y_true, y_pred)
    is_correct = y_true == (y_pred > threshold).astype(y_true.dtype)
    return _or_nan(is_correct, jnp.isnan(y_true) | jnp.isnan(y_pred))


def categorical_accuracy(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns 1 where the true class has the largest prediction, for one-hot targets.

    Returns:
        Zeros and ones, float32, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.metrics.categorical_accuracy([[0, 1], [1, 0]], [[0.1, 0.9], [0.2, 0.8]])
        Array([1., 0.], dtype=float32)
    """
    y_true, y_pred = as_operand(y_true, "y_true"), as_operand(y_pred, "y_pred")
    check_call("categorical_accuracy", y_true, y_pred, "sparse_categorical_accuracy")
    is_unknown = _any_nan(y_true) | _any_nan(y_pred)
    return _or_nan(position(y_true, -1) == position(y_pred, -1), is_unknown)


def sparse_categorical_accuracy(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns 1 where the true class has the largest prediction, for class numbers as targets.

    Args:
        y_true: class numbers, (b, ...) or (b, ..., 1).

    Returns:
        Zeros and ones, float32, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.metrics.sparse_categorical_accuracy([1, 0], [[0.1, 0.9], [0.2, 0.8]])
        Array([1., 0.], dtype=float32)
    """
    y_pred = as_operand(y_pred, "y_pred")
    labels = class_numbers(y_true, y_pred, -1, "sparse_categorical_accuracy")
    labels, valid = valid_indices(labels, y_pred.shape[-1])
    is_correct = labels == position(y_pred, -1).astype("int32")
    return _or_nan(is_correct, ~valid | _any_nan(y_pred))


def sparse_top_k_categorical_accuracy(
    y_true: Numbers, y_pred: Numbers, k: int = 5, from_sorted_ids: bool = False
) -> jax.Array:
    """Returns 1 where fewer than k predictions exceed the true class's, for class numbers.

    Args:
        y_true: class numbers, (b, ...).
        k: number of the largest predictions that may contain the true class.
        from_sorted_ids: whether `y_pred` holds class numbers in descending order of their scores.

    Returns:
        Zeros and ones, float32, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> y_pred = [[0.1, 0.6, 0.3], [0.1, 0.6, 0.3]]
        >>> fk.metrics.sparse_top_k_categorical_accuracy([2, 0], y_pred, k=2)
        Array([1., 0.], dtype=float32)
    """
    y_pred = as_operand(y_pred, "y_pred")
    labels = class_numbers(y_true, y_pred, -1, "sparse_top_k_categorical_accuracy")
    if from_sorted_ids:
        in_top_k = y_pred[..., :k] == jnp.expand_dims(labels, -1).astype(y_pred.dtype)
        return _or_nan(jnp.any(in_top_k, axis=-1), _any_nan(y_pred[..., :k]))
    labels, valid = valid_indices(labels, y_pred.shape[-1])
    # the rank of the true class needs one comparison per class, not a sort; ties are correct
    label_scores = jnp.take_along_axis(y_pred, jnp.expand_dims(labels, -1), axis=-1)
    return _or_nan(jnp.sum(y_pred > label_scores, axis=-1) < k, ~valid | _any_nan(y_pred))


def top_k_categorical_accuracy(y_true: Numbers, y_pred: Numbers, k: int = 5) -> jax.Array:
    """Returns 1 where fewer than k predictions exceed the true class's, for one-hot targets.

    Args:
        k: number of the largest predictions that may contain the true class.

    Returns:
        Zeros and ones, float32, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> y_pred = [[0.1, 0.6, 0.3], [0.1, 0.6, 0.3]]
        >>> fk.metrics.top_k_categorical_accuracy([[0, 0, 1], [1, 0, 0]], y_pred, k=2)
        Array([1., 0.], dtype=float32)
    """
    y_true, y_pred = as_operand(y_true, "y_true"), as_operand(y_pred, "y_pred")
    sparse = "sparse_top_k_categorical_accuracy"
    check_call("top_k_categorical_accuracy", y_true, y_pred, sparse)
    values = sparse_top_k_categorical_accuracy(position(y_true, -1), y_pred, k)
    # `argmax` returns the index of a NaN, so test the targets themselves
    return jnp.where(_any_nan(y_true), jnp.nan, values)


class Accuracy(FunctionMean):
    """Share of predictions that equal their targets.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.Accuracy()
        >>> metric.result(metric.update(metric.init(), [[1], [2]], [[1], [3]]))
        Array(0.5, dtype=float32)
    """

    _function = staticmethod(accuracy)
    name: str | None = option(default="accuracy", convert=text(optional=True))


class BinaryAccuracy(FunctionMean):
    """Share of predictions that are correct after a threshold, for targets 0 and 1.

    Args:
        threshold: probability above which a prediction is 1.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.BinaryAccuracy()
        >>> metric.result(metric.update(metric.init(), [[1], [0]], [[0.7], [0.6]]))
        Array(0.5, dtype=float32)
    """

    _function = staticmethod(binary_accuracy)
    name: str | None = option(default="binary_accuracy", convert=text(optional=True))
    threshold: Real = option(default=0.5, convert=real())


class CategoricalAccuracy(FunctionMean):
    """Share of samples whose true class has the largest prediction, for one-hot targets.

    targets are one-hot.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.CategoricalAccuracy()
        >>> metric.result(metric.update(metric.init(), [[0, 1], [1, 0]], [[0.1, 0.9], [0.2, 0.8]]))
        Array(0.5, dtype=float32)
    """

    _function = staticmethod(categorical_accuracy)
    name: str | None = option(default="categorical_accuracy", convert=text(optional=True))


class SparseCategoricalAccuracy(FunctionMean):
    """Share of samples whose true class has the largest prediction, for class numbers.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.SparseCategoricalAccuracy()
        >>> metric.result(metric.update(metric.init(), [1, 1], [[0.1, 0.9], [0.9, 0.1]]))
        Array(0.5, dtype=float32)
    """

    _function = staticmethod(sparse_categorical_accuracy)
    name: str | None = option(default="sparse_categorical_accuracy", convert=text(optional=True))


class TopKCategoricalAccuracy(FunctionMean):
    """Share of samples whose true class is among the k largest predictions (one-hot targets).

    targets are one-hot.

    Args:
        k: number of the largest predictions that may contain the true class.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.TopKCategoricalAccuracy(k=2)
        >>> y_pred = [[0.1, 0.6, 0.3], [0.1, 0.6, 0.3]]
        >>> metric.result(metric.update(metric.init(), [[0, 0, 1], [1, 0, 0]], y_pred))
        Array(0.5, dtype=float32)
    """

    _function = staticmethod(top_k_categorical_accuracy)
    k: Integer = option(default=5, convert=integer(minimum=1))
    name: str | None = option(
        default="top_k_categorical_accuracy", convert=text(optional=True), kw_only=True
    )
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)


class SparseTopKCategoricalAccuracy(FunctionMean):
    """Share of samples whose true class is among the k largest predictions (class numbers).

    Args:
        k: number of the largest predictions that may contain the true class.
        from_sorted_ids: whether predictions are class numbers in descending order of their scores.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.SparseTopKCategoricalAccuracy(k=2)
        >>> y_pred = [[0.1, 0.6, 0.3], [0.1, 0.6, 0.3]]
        >>> metric.result(metric.update(metric.init(), [2, 0], y_pred))
        Array(0.5, dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name", "dtype", "from_sorted_ids")

    _function = staticmethod(sparse_top_k_categorical_accuracy)
    k: Integer = option(default=5, convert=integer(minimum=1))
    name: str | None = option(
        default="sparse_top_k_categorical_accuracy", convert=text(optional=True), kw_only=True
    )
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)
    from_sorted_ids: bool = option(default=False, convert=boolean, kw_only=True)


METRICS = (
    named(Accuracy, "accuracy"),
    named(BinaryAccuracy, "binary_accuracy"),
    named(CategoricalAccuracy, "categorical_accuracy"),
    named(SparseCategoricalAccuracy, "sparse_categorical_accuracy"),
    named(TopKCategoricalAccuracy, "top_k_categorical_accuracy"),
    named(SparseTopKCategoricalAccuracy, "sparse_top_k_categorical_accuracy"),
)
