"""Correlation metrics: Pearson and concordance correlation, and R2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import axes, choice, integer, text
from fkeras.engine.config.field_types import Axes, Integer
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.engine.values.registry import named
from fkeras.losses.reducing import divide_no_nan
from fkeras.losses.regression import floats
from fkeras.metrics import exact
from fkeras.metrics.metric import Batch, BatchMetric, FunctionMean, State, weighted
from fkeras.nn.numerics.stable import EPSILON


def _centred(y: jax.Array, axis: int | Sequence[int]) -> jax.Array:
    return y - jnp.mean(y, axis=axis, keepdims=True)


def pearson_correlation(
    y_true: Numbers, y_pred: Numbers, axis: int | Sequence[int] = -1
) -> jax.Array:
    """Returns cov(y_true, y_pred) / (std(y_true) * std(y_pred)) along `axis`.

    Args:
        axis: the axis along which to correlate.

    Returns:
        Numbers from -1 to 1, without `axis`. If targets or predictions are constant, the
        correlation is undefined: the result is 0 here, and NaN in Keras.

    Example:
        >>> import fkeras as fk
        >>> y_true, y_pred = [[0.0, 1.0, 2.0]], [[1.0, 3.0, 5.0]]
        >>> fk.metrics.pearson_correlation(y_true, y_pred).round(4)
        Array([1.], dtype=float32)
    """
    y_true, y_pred = (_centred(y, axis) for y in floats(y_true, y_pred))
    # scale deviations to unit variance before the product: the product of two variances overflows
    # or underflows in float32
    scales = [jnp.mean(jnp.square(y), axis=axis, keepdims=True) for y in (y_true, y_pred)]
    varies = [scale > 0 for scale in scales]
    y_true, y_pred = (
        jnp.where(v, y * jax.lax.rsqrt(jnp.where(v, scale, 1.0)), 0.0)
        for y, scale, v in zip((y_true, y_pred), scales, varies, strict=True)
    )
    return jnp.mean(y_true * y_pred, axis=axis)


def concordance_correlation(
    y_true: Numbers, y_pred: Numbers, axis: int | Sequence[int] = -1
) -> jax.Array:
    """Returns 2 * cov / (var(y_true) + var(y_pred) + (mean(y_true) - mean(y_pred))**2 + 1e-7).

    Unlike the Pearson correlation, the result is 1 only if predictions equal targets.

    Args:
        axis: the axis along which to correlate.

    Returns:
        Numbers from -1 to 1, without `axis`.

    Example:
        >>> import fkeras as fk
        >>> y_true, y_pred = [[0.0, 1.0, 2.0]], [[1.0, 2.0, 3.0]]
        >>> fk.metrics.concordance_correlation(y_true, y_pred).round(4)
        Array([0.5714], dtype=float32)

    References:
        Lin 1989, A concordance correlation coefficient to evaluate reproducibility,
        https://doi.org/10.2307/2532051
    """
    y_true, y_pred = floats(y_true, y_pred)
    squared_bias = jnp.square(jnp.mean(y_true, axis=axis) - jnp.mean(y_pred, axis=axis))
    true, pred = _centred(y_true, axis), _centred(y_pred, axis)
    variances = jnp.mean(jnp.square(true), axis=axis) + jnp.mean(jnp.square(pred), axis=axis)
    return 2.0 * jnp.mean(true * pred, axis=axis) / (variances + squared_bias + EPSILON)


class PearsonCorrelation(FunctionMean):
    """Mean Pearson correlation, cov(y_true, y_pred) / (std(y_true) * std(y_pred)), over samples.

    Args:
        axis: the axis along which to correlate. For the batch axis, 0, the result is the mean of
            the batches' correlations, not the correlation of the whole data set.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.PearsonCorrelation()
        >>> y_true, y_pred = [[0.0, 1.0, 2.0]], [[1.0, 3.0, 5.0]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred)).round(4)
        Array(1., dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = ("name", "dtype", "axis")

    _function = staticmethod(pearson_correlation)
    name: str | None = option(default="pearson_correlation", convert=text(optional=True))
    axis: Axes = option(default=-1, convert=axes(), kw_only=True)


class ConcordanceCorrelation(FunctionMean):
    """Mean concordance correlation over all samples.

    Args:
        axis: the axis along which to correlate; for the batch axis see `PearsonCorrelation`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.ConcordanceCorrelation()
        >>> y_true, y_pred = [[0.0, 1.0, 2.0]], [[1.0, 2.0, 3.0]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred)).round(4)
        Array(0.5714, dtype=float32)

    References:
        Lin 1989, A concordance correlation coefficient to evaluate reproducibility,
        https://doi.org/10.2307/2532051
    """

    _positional: ClassVar[tuple[str, ...]] = ("name", "dtype", "axis")

    _function = staticmethod(concordance_correlation)
    name: str | None = option(default="concordance_correlation", convert=text(optional=True))
    axis: Axes = option(default=-1, convert=axes(), kw_only=True)


class R2Score(BatchMetric):
    """R2 score: 1 - sum((y_true - y_pred)**2) / sum((y_true - mean(y_true))**2).

    Targets and predictions are (b, d). The score of an output with constant targets is 0.

    Args:
        class_aggregation: None for one score per output; "uniform_average" for the mean score;
            "variance_weighted_average" for the mean weighted by the variances of the targets.
        num_regressors: number of independent variables for the adjusted score; 0 for the plain
            score. The plain score is also returned if the data has too few samples. As in Keras,
            a sample counts once per output; unlike in Keras, samples with weight 0 do not count.

    Raises:
        ValueError: in `init`, if `y_pred` is missing or not (b, d); in `update`, if the shapes do
            not fit the state.

    Example:
        >>> import fkeras as fk, jax.numpy as jnp
        >>> metric = fk.metrics.R2Score()
        >>> state = metric.init(y_pred=jnp.zeros((3, 1)))
        >>> metric.result(metric.update(state, [[1.0], [2.0], [3.0]], [[1.0], [2.0], [2.0]]))
        Array(0.5, dtype=float32)
    """

    class_aggregation: str | None = option(
        default="uniform_average",
        convert=choice("uniform_average", "variance_weighted_average", optional=True),
    )
    num_regressors: Integer = option(default=0, convert=integer(minimum=0))
    name: str | None = option(default="r2_score", convert=text(optional=True), kw_only=True)

    def init(self, y_pred: HasShape | None = None) -> State:
        if y_pred is None or len(y_pred.shape) != 2:
            received = "none" if y_pred is None else f"shape {tuple(y_pred.shape)}"
            raise ValueError(
                f"{self._label}: expected predictions (b, d) for the initial state, received "
                f"{received}. Pass predictions or their specs: metric.init(y_pred)."
            )
        sums = ("squared_sum", "sum", "residual", "count")
        output_sums = exact.zeros(sums, (y_pred.shape[-1],), self.dtype)
        return output_sums | exact.zeros(["num_samples"], (), self.dtype)

    def _add(self, state: State, batch: Batch) -> State:
        pair = floats(batch.y_true, batch.y_pred)
        y_true, y_pred = (y.astype(self.dtype) for y in pair)
        if y_pred.shape[1:] != state["sum"].shape or y_true.shape != y_pred.shape:
            raise ValueError(
                f"{self._label}: expected targets and predictions (b, {state['sum'].shape[0]}), "
                f"received shapes {y_true.shape} and {y_pred.shape}. Reshape them to two axes."
            )
        products, weights = weighted(y_true, batch.sample_weight, batch.mask)
        # removed samples may hold NaN, so select in both products
        residuals = jnp.where(weights == 0, 0.0, jnp.square(y_true - y_pred) * weights)
        parts = {
            "squared_sum": jnp.sum(jnp.where(weights == 0, 0.0, y_true * products), axis=0),
            "sum": jnp.sum(products, axis=0),
            "residual": jnp.sum(residuals, axis=0),
            "count": jnp.sum(weights, axis=0),
            "num_samples": jnp.sum((weights != 0).astype(self.dtype)),
        }
        return exact.add(state, parts)

    def result(self, state: State) -> jax.Array:
        mean = divide_no_nan(state["sum"], state["count"])
        # the state holds additive sums only; the variance follows from them here
        total = state["squared_sum"] - state["sum"] * mean
        scores = jnp.where(total == 0, 0.0, 1.0 - divide_no_nan(state["residual"], total))
        if self.class_aggregation == "uniform_average":
            score = jnp.mean(scores)
        elif self.class_aggregation == "variance_weighted_average":
            # `total` is proportional to the variance of each output's targets
            score = divide_no_nan(jnp.sum(total * scores), jnp.sum(total))
        else:
            score = scores
        if self.num_regressors == 0:
            return score
        degrees_of_freedom = state["num_samples"] - self.num_regressors - 1.0
        adjusted_score = 1.0 - divide_no_nan(
            (1.0 - score) * (state["num_samples"] - 1.0), degrees_of_freedom
        )
        # without degrees of freedom, the adjusted score is undefined
        return jnp.where(degrees_of_freedom > 0, adjusted_score, score)


METRICS = (
    named(PearsonCorrelation, "pearson_correlation"),
    named(ConcordanceCorrelation, "concordance_correlation"),
    named(R2Score, "r2_score"),
)
