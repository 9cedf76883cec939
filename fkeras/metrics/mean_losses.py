"""Losses as metrics, averaged over all samples."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, integer, probability, text
from fkeras.engine.config.field_types import Integer, OptionalInteger, Real
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.engine.values.registry import named
from fkeras.losses import crossentropy, margin, regression
from fkeras.metrics.metric import (
    FunctionMean,
    MeanMetric,
    Metric,
    State,
    add_to_mean,
    empty_mean,
    mean_of,
)


class MeanSquaredError(FunctionMean):
    """Mean of (y_true - y_pred)**2 over all samples.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.MeanSquaredError()
        >>> metric.result(metric.update(metric.init(), [[0.0], [0.0]], [[1.0], [3.0]]))
        Array(5., dtype=float32)
    """

    _function = staticmethod(regression.mean_squared_error)
    name: str | None = option(default="mean_squared_error", convert=text(optional=True))


class MeanAbsoluteError(FunctionMean):
    """Mean of |y_true - y_pred| over all samples.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.MeanAbsoluteError()
        >>> metric.result(metric.update(metric.init(), [[0.0], [0.0]], [[1.0], [-3.0]]))
        Array(2., dtype=float32)
    """

    _function = staticmethod(regression.mean_absolute_error)
    name: str | None = option(default="mean_absolute_error", convert=text(optional=True))


class MeanAbsolutePercentageError(FunctionMean):
    """Mean of 100 * |y_true - y_pred| / |y_true| over all samples, in percent.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.MeanAbsolutePercentageError()
        >>> metric.result(metric.update(metric.init(), [[2.0], [4.0]], [[1.0], [5.0]]))
        Array(37.5, dtype=float32)
    """

    _function = staticmethod(regression.mean_absolute_percentage_error)
    name: str | None = option(default="mean_absolute_percentage_error", convert=text(optional=True))


class MeanSquaredLogarithmicError(FunctionMean):
    """Mean of (log(y_true + 1) - log(y_pred + 1))**2 over all samples.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.MeanSquaredLogarithmicError()
        >>> metric.result(metric.update(metric.init(), [[0.0], [1.0]], [[1.0], [1.0]])).round(4)
        Array(0.2402, dtype=float32)
    """

    _function = staticmethod(regression.mean_squared_logarithmic_error)
    name: str | None = option(default="mean_squared_logarithmic_error", convert=text(optional=True))


class RootMeanSquaredError(Metric):
    """Root mean squared error over all samples.

    Args:
        Arguments: those of `Metric`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.RootMeanSquaredError()
        >>> metric.result(metric.update(metric.init(), [[0.0, 0.0]], [[3.0, 3.0]]))
        Array(3., dtype=float32)
    """

    name: str | None = option(default="root_mean_squared_error", convert=text(optional=True))

    def init(self, y_pred: HasShape | None = None) -> State:
        return empty_mean(self.dtype)

    def update(
        self,
        state: State,
        y_true: Numbers,
        y_pred: Numbers,
        sample_weight: Numbers | None = None,
        mask: Numbers | None = None,
    ) -> State:
        y_true, y_pred = regression.floats(y_true, y_pred)
        values = jnp.square(y_true.astype(self.dtype) - y_pred.astype(self.dtype))
        return add_to_mean(state, values, sample_weight, mask)

    def result(self, state: State) -> jax.Array:
        mean = mean_of(state)
        # the derivative of a square root at 0 is infinite; define the gradient as 0
        return jnp.where(mean == 0, 0.0, jnp.sqrt(jnp.where(mean == 0, 1.0, mean)))


class LogCoshError(FunctionMean):
    """Mean of log(cosh(y_pred - y_true)) over all samples.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.LogCoshError()
        >>> metric.result(metric.update(metric.init(), [[0.0], [0.0]], [[1.0], [3.0]])).round(2)
        Array(1.37, dtype=float32)
    """

    _function = staticmethod(regression.log_cosh)
    name: str | None = option(default="logcosh", convert=text(optional=True))


class CosineSimilarity(MeanMetric):
    """Mean cosine of the angle between y_true and y_pred: 1 for the same direction.

    Args:
        axis: the axis of the vectors.
        Other arguments: those of `Metric`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.CosineSimilarity()
        >>> y_true, y_pred = [[1.0, 0.0], [1.0, 0.0]], [[2.0, 0.0], [0.0, 2.0]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred))
        Array(0.5, dtype=float32)
    """

    name: str | None = option(default="cosine_similarity", convert=text(optional=True))
    axis: Integer = option(default=-1, convert=integer())

    def values(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        # the loss is negated, since it is minimized; the metric reports the similarity
        return -regression.cosine_similarity(y_true, y_pred, self.axis)


class BinaryCrossentropy(FunctionMean):
    """Mean of -(y * log(p) + (1 - y) * log(1 - p)) over all samples.

    Args:
        from_logits: whether predictions are logits (before the sigmoid).
        label_smoothing: share by which targets move towards 0.5, from 0 to 1.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.BinaryCrossentropy()
        >>> metric.result(metric.update(metric.init(), [[0.0], [1.0]], [[0.5], [0.5]])).round(4)
        Array(0.6931, dtype=float32)
    """

    _function = staticmethod(crossentropy.binary_crossentropy)
    name: str | None = option(default="binary_crossentropy", convert=text(optional=True))
    from_logits: bool = option(default=False, convert=boolean)
    label_smoothing: Real = option(default=0.0, convert=probability)


class CategoricalCrossentropy(FunctionMean):
    """Mean of -sum(y * log(p)) over the classes.

    Args:
        from_logits: whether predictions are logits (before the softmax).
        label_smoothing: share of each target that is distributed equally over the classes, from
            0 to 1.
        axis: the class axis.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.CategoricalCrossentropy()
        >>> metric.result(metric.update(metric.init(), [[0.0, 1.0]], [[0.5, 0.5]])).round(4)
        Array(0.6931, dtype=float32)
    """

    _function = staticmethod(crossentropy.categorical_crossentropy)
    name: str | None = option(default="categorical_crossentropy", convert=text(optional=True))
    from_logits: bool = option(default=False, convert=boolean)
    label_smoothing: Real = option(default=0.0, convert=probability)
    axis: Integer = option(default=-1, convert=integer())


class SparseCategoricalCrossentropy(FunctionMean):
    """Mean of -log(p) for the probability p of the true class, with class numbers as targets.

    Args:
        from_logits: whether predictions are logits (before the softmax).
        ignore_class: a class number whose samples are excluded from the mean. Keras excludes them
            only if sample weights are given; without weights they count as losses of 0.
        axis: the class axis.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.SparseCategoricalCrossentropy(ignore_class=0)
        >>> metric.result(metric.update(metric.init(), [1, 0], [[0.5, 0.5], [0.1, 0.9]])).round(4)
        Array(0.6931, dtype=float32)
    """

    _function = staticmethod(crossentropy.sparse_categorical_crossentropy)
    name: str | None = option(
        default="sparse_categorical_crossentropy", convert=text(optional=True)
    )
    from_logits: bool = option(default=False, convert=boolean)
    ignore_class: OptionalInteger = option(default=None, convert=integer(optional=True))
    axis: Integer = option(default=-1, convert=integer())

    def _target_mask(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        # unlike Keras, also without sample weights: a loss of 0 would lower the mean
        if self.ignore_class is None:
            return None
        labels = crossentropy.class_numbers(y_true, y_pred, self.axis, self._label)
        return labels != self.ignore_class


class KLDivergence(FunctionMean):
    """Mean of sum(y * log(y / p)) over the last axis.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.KLDivergence()
        >>> metric.result(metric.update(metric.init(), [[0.0, 1.0]], [[0.5, 0.5]])).round(4)
        Array(0.6931, dtype=float32)

    References:
        Kullback and Leibler 1951, On information and sufficiency,
        https://doi.org/10.1214/aoms/1177729694
    """

    _function = staticmethod(crossentropy.kl_divergence)
    name: str | None = option(default="kl_divergence", convert=text(optional=True))


class Poisson(FunctionMean):
    """Mean of p - y * log(p + 1e-7) for counts y and expected counts p.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.Poisson()
        >>> metric.result(metric.update(metric.init(), [[1.0], [2.0]], [[1.0], [1.0]])).round(4)
        Array(1., dtype=float32)
    """

    _function = staticmethod(crossentropy.poisson)
    name: str | None = option(default="poisson", convert=text(optional=True))


class Hinge(FunctionMean):
    """Mean of max(1 - y_true * y_pred, 0) over all samples.

    targets are -1 or 1, or 0 or 1.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.Hinge()
        >>> metric.result(metric.update(metric.init(), [[-1.0], [1.0]], [[0.5], [0.75]]))
        Array(0.875, dtype=float32)
    """

    _function = staticmethod(margin.hinge)
    name: str | None = option(default="hinge", convert=text(optional=True))


class SquaredHinge(FunctionMean):
    """Mean of max(1 - y_true * y_pred, 0)**2 over all samples.

    targets are -1 or 1, or 0 or 1.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.SquaredHinge()
        >>> metric.result(metric.update(metric.init(), [[-1.0], [1.0]], [[0.5], [0.5]]))
        Array(1.25, dtype=float32)
    """

    _function = staticmethod(margin.squared_hinge)
    name: str | None = option(default="squared_hinge", convert=text(optional=True))


class CategoricalHinge(FunctionMean):
    """Mean of max(highest wrong score - true score + 1, 0) over all samples.

    targets are one-hot.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.CategoricalHinge()
        >>> y_true, y_pred = [[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.75], [0.0, 2.0]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred))
        Array(1.875, dtype=float32)
    """

    _function = staticmethod(margin.categorical_hinge)
    name: str | None = option(default="categorical_hinge", convert=text(optional=True))


METRICS = (
    named(MeanSquaredError, "mean_squared_error", "mse", "MSE"),
    named(MeanAbsoluteError, "mean_absolute_error", "mae", "MAE"),
    named(MeanAbsolutePercentageError, "mean_absolute_percentage_error", "mape", "MAPE"),
    named(MeanSquaredLogarithmicError, "mean_squared_logarithmic_error", "msle", "MSLE"),
    named(RootMeanSquaredError, "root_mean_squared_error"),
    named(LogCoshError, "log_cosh_error"),
    named(CosineSimilarity, "cosine_similarity"),
    named(BinaryCrossentropy, "binary_crossentropy", "bce", "BCE"),
    named(CategoricalCrossentropy, "categorical_crossentropy"),
    named(SparseCategoricalCrossentropy, "sparse_categorical_crossentropy"),
    named(KLDivergence, "kl_divergence"),
    named(Poisson, "poisson"),
    named(Hinge, "hinge"),
    named(SquaredHinge, "squared_hinge"),
    named(CategoricalHinge, "categorical_hinge"),
)
