"""Losses as metrics: their means over all samples."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config import option
from fkeras.losses import crossentropy, margin, regression
from fkeras.losses.reducing import divide_no_nan
from fkeras.metrics.metric import MeanMetric, Metric, State, add_to_mean, empty_mean


class MeanSquaredError(MeanMetric):
    """The mean of `losses.mean_squared_error`. The arguments are those of `Metric`.

    Example:
        >>> metric = MeanSquaredError()
        >>> metric.result(metric.update(metric.init(), [[0.0], [0.0]], [[1.0], [3.0]]))
        Array(5., dtype=float32)
    """

    name: str | None = option("mean_squared_error")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return regression.mean_squared_error(y_true, y_pred)


class MeanAbsoluteError(MeanMetric):
    """The mean of `losses.mean_absolute_error`. The arguments are those of `Metric`."""

    name: str | None = option("mean_absolute_error")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return regression.mean_absolute_error(y_true, y_pred)


class MeanAbsolutePercentageError(MeanMetric):
    """The mean of `losses.mean_absolute_percentage_error`. The arguments are those of `Metric`."""

    name: str | None = option("mean_absolute_percentage_error")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return regression.mean_absolute_percentage_error(y_true, y_pred)


class MeanSquaredLogarithmicError(MeanMetric):
    """The mean of `losses.mean_squared_logarithmic_error`. The arguments are those of `Metric`."""

    name: str | None = option("mean_squared_logarithmic_error")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return regression.mean_squared_logarithmic_error(y_true, y_pred)


class RootMeanSquaredError(Metric):
    """The square root of the mean of (y_true - y_pred)**2. The arguments are those of `Metric`.

    Example:
        >>> metric = RootMeanSquaredError()
        >>> metric.result(metric.update(metric.init(), [[0.0, 0.0]], [[3.0, 3.0]]))
        Array(3., dtype=float32)
    """

    name: str | None = option("root_mean_squared_error")

    def init(self, y_pred: Any = None) -> State:
        return empty_mean(self.dtype)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        y_true, y_pred = regression.floats(y_true, y_pred)
        values = jnp.square(y_true.astype(self.dtype) - y_pred.astype(self.dtype))
        return add_to_mean(state, values, sample_weight, mask)

    def result(self, state: State) -> jax.Array:
        mean = divide_no_nan(state["total"], state["count"])
        # the root has no slope at 0: there it is given the slope 0
        return jnp.where(mean == 0, 0.0, jnp.sqrt(jnp.where(mean == 0, 1.0, mean)))


class LogCoshError(MeanMetric):
    """The mean of `losses.log_cosh`. The arguments are those of `Metric`."""

    name: str | None = option("logcosh")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return regression.log_cosh(y_true, y_pred)


class CosineSimilarity(MeanMetric):
    """The mean cosine of the angle between y_true and y_pred: 1 for the same direction.

    The further arguments are those of `Metric`.

    Args:
        axis: the axis of the vectors.
    """

    name: str | None = option("cosine_similarity")
    axis: int = option(-1)

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return -regression.cosine_similarity(y_true, y_pred, self.axis)


class BinaryCrossentropy(MeanMetric):
    """The mean of `losses.binary_crossentropy`. The further arguments are those of `Metric`.

    Args:
        from_logits: whether predictions are scores, before a sigmoid.
        label_smoothing: how far targets move towards 0.5.
    """

    name: str | None = option("binary_crossentropy")
    from_logits: bool = option(False)
    label_smoothing: float = option(0.0)

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return crossentropy.binary_crossentropy(
            y_true, y_pred, self.from_logits, self.label_smoothing
        )


class CategoricalCrossentropy(MeanMetric):
    """The mean of `losses.categorical_crossentropy`. The further arguments are those of `Metric`.

    Args:
        from_logits: whether predictions are scores, before a softmax.
        label_smoothing: the share of each target that is spread evenly over the classes.
        axis: the class axis.
    """

    name: str | None = option("categorical_crossentropy")
    from_logits: bool = option(False)
    label_smoothing: float = option(0.0)
    axis: int = option(-1)

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return crossentropy.categorical_crossentropy(
            y_true, y_pred, self.from_logits, self.label_smoothing, self.axis
        )


class SparseCategoricalCrossentropy(MeanMetric):
    """The mean of `losses.sparse_categorical_crossentropy`. Further arguments as of `Metric`.

    Args:
        from_logits: whether predictions are scores, before a softmax.
        ignore_class: a class number that takes its prediction out of the mean. In Keras it does
            so only where there are sample weights; without them it counts there as a 0.
        axis: the class axis.
    """

    name: str | None = option("sparse_categorical_crossentropy")
    from_logits: bool = option(False)
    ignore_class: int | None = option(None)
    axis: int = option(-1)

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return crossentropy.sparse_categorical_crossentropy(
            y_true, y_pred, self.from_logits, self.ignore_class, self.axis
        )

    def target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        if self.ignore_class is None:
            return None
        return crossentropy.class_numbers(y_true, y_pred, self.axis) != self.ignore_class


class KLDivergence(MeanMetric):
    """The mean of `losses.kl_divergence`. The arguments are those of `Metric`."""

    name: str | None = option("kl_divergence")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return crossentropy.kl_divergence(y_true, y_pred)


class Poisson(MeanMetric):
    """The mean of `losses.poisson`. The arguments are those of `Metric`."""

    name: str | None = option("poisson")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return crossentropy.poisson(y_true, y_pred)


class Hinge(MeanMetric):
    """The mean of `losses.hinge`. The arguments are those of `Metric`."""

    name: str | None = option("hinge")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return margin.hinge(y_true, y_pred)


class SquaredHinge(MeanMetric):
    """The mean of `losses.squared_hinge`. The arguments are those of `Metric`."""

    name: str | None = option("squared_hinge")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return margin.squared_hinge(y_true, y_pred)


class CategoricalHinge(MeanMetric):
    """The mean of `losses.categorical_hinge`. The arguments are those of `Metric`."""

    name: str | None = option("categorical_hinge")

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return margin.categorical_hinge(y_true, y_pred)
