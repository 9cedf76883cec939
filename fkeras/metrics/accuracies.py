"""How often predictions are right."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config import option
from fkeras.losses.crossentropy import class_numbers
from fkeras.losses.loss import dtype_name
from fkeras.losses.reducing import align_pair
from fkeras.metrics.metric import MeanMetric


def accuracy(y_true: Any, y_pred: Any) -> jax.Array:
    """1 where y_true equals y_pred, else 0.

    Args:
        y_true: targets, (b, ...).
        y_pred: predictions of the same kind, (b, ...).

    Returns:
        Zeros and ones, float32. So do all functions of this module.

    Example:
        >>> import jax.numpy as jnp
        >>> accuracy(jnp.array([1, 2]), jnp.array([1, 3]))
        Array([1., 0.], dtype=float32)
    """
    y_true, y_pred = align_pair(y_true, y_pred)
    return (y_true.astype(y_pred.dtype) == y_pred).astype("float32")


def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> jax.Array:
    """1 where y_true is 1 and y_pred above the threshold, or y_true 0 and y_pred not above.

    Args:
        y_true: 0 or 1, (b, ..., d).
        y_pred: probabilities, (b, ..., d).
        threshold: where 1 begins.
    """
    y_true, y_pred = align_pair(y_true, y_pred)
    return (y_true == (y_pred > threshold).astype(y_true.dtype)).astype("float32")


def categorical_accuracy(y_true: Any, y_pred: Any) -> jax.Array:
    """1 where the largest prediction is that of the true class.

    Args:
        y_true: one-hot targets, (b, ..., classes).
        y_pred: probabilities or scores, (b, ..., classes).
    """
    best = jnp.argmax(jnp.asarray(y_pred), axis=-1)
    return (jnp.argmax(jnp.asarray(y_true), axis=-1) == best).astype("float32")


def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> jax.Array:
    """1 where the largest prediction is that of the class that y_true numbers.

    Args:
        y_true: class numbers, (b, ...) or (b, ..., 1).
        y_pred: probabilities or scores, (b, ..., classes).
    """
    y_pred = jnp.asarray(y_pred)
    labels = class_numbers(y_true, y_pred, -1).astype("int32")
    return (labels == jnp.argmax(y_pred, axis=-1).astype("int32")).astype("float32")


def sparse_top_k_categorical_accuracy(
    y_true: Any, y_pred: Any, k: int = 5, from_sorted_ids: bool = False
) -> jax.Array:
    """1 where fewer than k predictions are larger than that of the class that y_true numbers.

    Args:
        y_true: class numbers, (b, ...).
        y_pred: probabilities or scores, (b, ..., classes).
        k: how many guesses are allowed.
        from_sorted_ids: whether `y_pred` are class numbers, best first, instead.
    """
    y_pred = jnp.asarray(y_pred)
    labels = jnp.expand_dims(class_numbers(y_true, y_pred, -1), -1)
    if from_sorted_ids:
        found = y_pred[..., :k] == labels.astype(y_pred.dtype)
        return jnp.any(found, axis=-1).astype("float32")
    own = jnp.take_along_axis(y_pred, labels.astype("int32"), axis=-1)
    own = jnp.where(jnp.isnan(own), -jnp.inf, own)
    return (jnp.sum(y_pred > own, axis=-1) < k).astype("float32")


def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> jax.Array:
    """1 where fewer than k predictions are larger than that of the true class.

    Args:
        y_true: one-hot targets, (b, ..., classes).
        y_pred: probabilities or scores, (b, ..., classes).
        k: how many guesses are allowed.
    """
    return sparse_top_k_categorical_accuracy(jnp.argmax(jnp.asarray(y_true), axis=-1), y_pred, k)


class Accuracy(MeanMetric):
    """The mean of `accuracy`. The arguments are those of `Metric`.

    Example:
        >>> metric = Accuracy()
        >>> metric.result(metric.update(metric.init(), [[1], [2]], [[1], [3]]))
        Array(0.5, dtype=float32)
    """

    name: str | None = option("accuracy")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return accuracy(y_true, y_pred)


class BinaryAccuracy(MeanMetric):
    """The mean of `binary_accuracy`. The further arguments are those of `Metric`.

    Args:
        threshold: where 1 begins.
    """

    name: str | None = option("binary_accuracy")
    threshold: float = option(0.5)

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return binary_accuracy(y_true, y_pred, self.threshold)


class CategoricalAccuracy(MeanMetric):
    """The mean of `categorical_accuracy`. The arguments are those of `Metric`."""

    name: str | None = option("categorical_accuracy")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return categorical_accuracy(y_true, y_pred)


class SparseCategoricalAccuracy(MeanMetric):
    """The mean of `sparse_categorical_accuracy`. The arguments are those of `Metric`.

    Example:
        >>> metric = SparseCategoricalAccuracy()
        >>> metric.result(metric.update(metric.init(), [1, 1], [[0.1, 0.9], [0.9, 0.1]]))
        Array(0.5, dtype=float32)
    """

    name: str | None = option("sparse_categorical_accuracy")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return sparse_categorical_accuracy(y_true, y_pred)


class TopKCategoricalAccuracy(MeanMetric):
    """The mean of `top_k_categorical_accuracy`. The further arguments are those of `Metric`.

    Args:
        k: how many guesses are allowed.
    """

    k: int = option(5)
    name: str | None = option("top_k_categorical_accuracy", kw_only=True)
    dtype: str = option("float32", convert=dtype_name, kw_only=True)

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return top_k_categorical_accuracy(y_true, y_pred, self.k)


class SparseTopKCategoricalAccuracy(MeanMetric):
    """The mean of `sparse_top_k_categorical_accuracy`. Further arguments are those of `Metric`.

    Args:
        k: how many guesses are allowed.
        from_sorted_ids: whether predictions are class numbers, best first.
    """

    k: int = option(5)
    name: str | None = option("sparse_top_k_categorical_accuracy", kw_only=True)
    dtype: str = option("float32", convert=dtype_name, kw_only=True)
    from_sorted_ids: bool = option(False, kw_only=True)

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return sparse_top_k_categorical_accuracy(y_true, y_pred, self.k, self.from_sorted_ids)
