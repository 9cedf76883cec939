"""F scores: weighted harmonic means of precision and recall."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import choice, real, text
from fkeras.engine.config.field_types import OptionalReal, Real
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.checks import check_call
from fkeras.metrics import exact
from fkeras.metrics.metric import Batch, BatchMetric, State, weighted
from fkeras.nn.numerics.stable import EPSILON

_NAMES = ("true_positives", "false_positives", "false_negatives", "intermediate_weights")


class _FScore(BatchMetric):
    """Base class of the F scores: weighted counts of each class.

    Targets and predictions are (b, classes).

    Args of the family:
        average: None for one score per class; "micro" for one score of the pooled counts; "macro"
            for the mean of the classes; "weighted" for their mean weighted by class frequency.
        threshold: score above which a class is predicted; None to predict the largest score.

    Raises of the family:
        ValueError: if `average` is unknown, `beta` is not above 0, or `threshold` is outside of
            (0, 1]; in `init`, if `y_pred` is missing and `average` is not "micro".
    """

    average: str | None = option(
        default=None, convert=choice("micro", "macro", "weighted", optional=True)
    )

    @property
    def _rule(self) -> tuple[float, float | None]:
        """The weight of recall, and the threshold."""
        raise NotImplementedError

    def init(self, y_pred: HasShape | None = None) -> State:
        if self.average != "micro" and y_pred is None:
            raise ValueError(
                f"{self._label}: unknown number of classes. Pass predictions or their specs, "
                "metric.init(y_pred), or use average='micro'."
            )
        shape = () if self.average == "micro" or y_pred is None else (y_pred.shape[-1],)
        return exact.zeros(_NAMES, shape, self.dtype)

    def _add(self, state: State, batch: Batch) -> State:
        true = as_operand(batch.y_true, "y_true").astype(self.dtype)
        pred = as_operand(batch.y_pred, "y_pred").astype(self.dtype)
        check_call(self._label, true, pred)
        _, threshold = self._rule
        if threshold is None:
            # as in Keras: a row of zeros predicts no class, and ties predict several
            predicted = (pred >= jnp.max(pred, axis=-1, keepdims=True)) & (jnp.abs(pred) > 1e-9)
        else:
            predicted = pred > threshold
        predicted = predicted.astype(self.dtype)
        _, weights = weighted(pred, batch.sample_weight, batch.mask)
        # counts of a class reduce all axes but the last; "micro" pools the classes too
        axes = None if state["true_positives"].ndim == 0 else tuple(range(pred.ndim - 1))
        # in the order of `_NAMES`; the last part is the support of each class
        parts = (predicted * true, predicted * (1.0 - true), (1.0 - predicted) * true, true)
        return exact.add(
            state,
            {
                # NaN * 0 is NaN: removed entries may hold NaN
                name: jnp.sum(jnp.where(weights == 0, 0.0, part * weights), axis=axes)
                for name, part in zip(_NAMES, parts, strict=True)
            },
        )

    def result(self, state: State) -> jax.Array:
        tp, fp, fn, support = (state[name] for name in _NAMES)
        beta, _ = self._rule
        # the formula keeps Keras's order of operations, so that results agree in float32
        # a class without samples has a score of 0
        precision, recall = tp / (tp + fp + EPSILON), tp / (tp + fn + EPSILON)
        score = precision * recall / (beta**2 * precision + recall + EPSILON) * (1.0 + beta**2)
        if self.average == "weighted":
            return jnp.sum(score * (support / (jnp.sum(support) + EPSILON)))
        return score if self.average is None else jnp.mean(score)


class FBetaScore(_FScore):
    """F-beta score: (1 + beta**2) * precision * recall / (beta**2 * precision + recall).

    Targets and predictions are (b, classes).

    Args:
        beta: weight of recall relative to precision.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.FBetaScore(average="micro", beta=2.0, threshold=0.5)
        >>> y_true, y_pred = [[1, 0], [0, 1]], [[0.9, 0.6], [0.8, 0.7]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred)).round(4)
        Array(0.8333, dtype=float32)
    """

    beta: Real = option(default=1.0, convert=real(above=0))
    threshold: OptionalReal = option(default=None, convert=real(above=0, maximum=1, optional=True))
    name: str | None = option(default="fbeta_score", convert=text(optional=True), kw_only=True)

    @property
    def _rule(self) -> tuple[float, float | None]:
        return self.beta, self.threshold


class F1Score(_FScore):
    """F1 score: 2 * precision * recall / (precision + recall).

    Targets and predictions are (b, classes).

    Raises:
        ValueError: if `average` is unknown, or `threshold` is outside of (0, 1]; in `init`, if
            `y_pred` is missing and `average` is not "micro".

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.F1Score(average="micro")
        >>> y_true, y_pred = [[1, 0], [0, 1]], [[0.9, 0.1], [0.8, 0.2]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred)).round(4)
        Array(0.5, dtype=float32)
    """

    threshold: OptionalReal = option(default=None, convert=real(above=0, maximum=1, optional=True))
    name: str | None = option(default="f1_score", convert=text(optional=True), kw_only=True)

    @property
    def _rule(self) -> tuple[float, float | None]:
        return 1.0, self.threshold


METRICS = (
    named(FBetaScore, "fbeta_score", "f_beta_score"),
    named(F1Score, "f1_score"),
)
