"""Metrics at operating points: the best rate under a lower bound on another rate."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import integer, probability, text
from fkeras.engine.config.field_types import Integer, OptionalInteger, Real
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.registry import named
from fkeras.losses.reducing import divide_no_nan
from fkeras.metrics import exact
from fkeras.metrics.confusion import COUNTS, add_counts, check_selection, decisions
from fkeras.metrics.metric import Batch, BatchMetric, State


def best_under(constrained: jax.Array, dependent: jax.Array, least: float) -> jax.Array:
    """Returns the largest `dependent` where `constrained >= least`, or 0 if that holds nowhere."""
    # `initial` also covers an empty array; rates are never negative
    return jnp.max(jnp.where(constrained >= least, dependent, 0.0), initial=0.0)


def sensitivity(state: State) -> jax.Array:
    """Returns the recall, true positives / (true positives + false negatives), per threshold."""
    true_positives = state["true_positives"]
    return divide_no_nan(true_positives, true_positives + state["false_negatives"])


def specificity(state: State) -> jax.Array:
    """Returns true negatives / (true negatives + false positives) per threshold."""
    true_negatives = state["true_negatives"]
    return divide_no_nan(true_negatives, true_negatives + state["false_positives"])


def precision(state: State) -> jax.Array:
    """Returns true positives / (true positives + false positives) per threshold."""
    true_positives = state["true_positives"]
    return divide_no_nan(true_positives, true_positives + state["false_positives"])


class _OperatingPoint(BatchMetric):
    """Base class of metrics with confusion counts at evenly spaced thresholds.

    Args of the family:
        num_thresholds: number of thresholds, evenly spaced from 0 to 1.
        class_id: the entry of the last axis that counts; None for all entries.

    Raises of the family:
        ValueError: if a rate is outside of [0, 1], or `num_thresholds` is below 1.
    """

    @property
    def _counting(self) -> tuple[int, int | None]:
        """Number of thresholds, and the class to count."""
        metric: Any = self  # each subclass declares these two fields after its own
        return metric.num_thresholds, metric.class_id

    @property
    def _all_thresholds(self) -> tuple[float, ...]:
        """Thresholds: (0.5,), or evenly spaced from just below 0 (all scores are positive) to 1."""
        number, _ = self._counting
        if number == 1:
            return (0.5,)
        inner_thresholds = tuple((i + 1) / (number - 1) for i in range(number - 2))
        # below 0 every score is positive, at 1 none: both ends of the curve are reachable
        return (-1e-7, *inner_thresholds, 1.0)

    def init(self, y_pred: HasShape | None = None) -> State:
        number, class_id = self._counting
        check_selection(self._label, y_pred, class_id=class_id)
        return exact.zeros(COUNTS, (number,), self.dtype)

    def _add(self, state: State, batch: Batch) -> State:
        found = decisions(self, batch, class_id=self._counting[1])
        return add_counts(state, found, self._all_thresholds)


class SensitivityAtSpecificity(_OperatingPoint):
    """Best sensitivity (recall) over all thresholds with at least the given specificity.

    Args:
        specificity: minimum specificity, from 0 to 1.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.SensitivityAtSpecificity(0.5)
        >>> scores = [0.0, 0.3, 0.8, 0.3, 0.8]
        >>> metric.result(metric.update(metric.init(), [0, 0, 0, 1, 1], scores))
        Array(0.5, dtype=float32)
    """

    name: str | None = option(
        default="sensitivity_at_specificity", convert=text(optional=True), kw_only=True
    )
    specificity: Real = option(convert=probability)
    num_thresholds: Integer = option(default=200, convert=integer(minimum=1, maximum=1 << 20))
    class_id: OptionalInteger = option(default=None, convert=integer(minimum=0, optional=True))

    def result(self, state: State) -> jax.Array:
        return best_under(specificity(state), sensitivity(state), self.specificity)


class SpecificityAtSensitivity(_OperatingPoint):
    """Best specificity over all thresholds with at least the given sensitivity (recall).

    Args:
        sensitivity: minimum sensitivity, from 0 to 1.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.SpecificityAtSensitivity(0.5)
        >>> scores = [0.0, 0.3, 0.8, 0.3, 0.8]
        >>> metric.result(metric.update(metric.init(), [0, 0, 0, 1, 1], scores)).round(4)
        Array(0.6667, dtype=float32)
    """

    name: str | None = option(
        default="specificity_at_sensitivity", convert=text(optional=True), kw_only=True
    )
    sensitivity: Real = option(convert=probability)
    num_thresholds: Integer = option(default=200, convert=integer(minimum=1, maximum=1 << 20))
    class_id: OptionalInteger = option(default=None, convert=integer(minimum=0, optional=True))

    def result(self, state: State) -> jax.Array:
        return best_under(sensitivity(state), specificity(state), self.sensitivity)


class PrecisionAtRecall(_OperatingPoint):
    """Best precision over all thresholds with at least the given recall.

    Args:
        recall: minimum recall, from 0 to 1.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.PrecisionAtRecall(0.5)
        >>> scores = [0.0, 0.3, 0.8, 0.3, 0.8]
        >>> metric.result(metric.update(metric.init(), [0, 0, 0, 1, 1], scores))
        Array(0.5, dtype=float32)
    """

    name: str | None = option(
        default="precision_at_recall", convert=text(optional=True), kw_only=True
    )
    recall: Real = option(convert=probability)
    num_thresholds: Integer = option(default=200, convert=integer(minimum=1, maximum=1 << 20))
    class_id: OptionalInteger = option(default=None, convert=integer(minimum=0, optional=True))

    def result(self, state: State) -> jax.Array:
        return best_under(sensitivity(state), precision(state), self.recall)


class RecallAtPrecision(_OperatingPoint):
    """Best recall over all thresholds with at least the given precision.

    Args:
        precision: minimum precision, from 0 to 1.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.RecallAtPrecision(0.8)
        >>> metric.result(metric.update(metric.init(), [0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9]))
        Array(0.5, dtype=float32)
    """

    name: str | None = option(
        default="recall_at_precision", convert=text(optional=True), kw_only=True
    )
    precision: Real = option(convert=probability)
    num_thresholds: Integer = option(default=200, convert=integer(minimum=1, maximum=1 << 20))
    class_id: OptionalInteger = option(default=None, convert=integer(minimum=0, optional=True))

    def result(self, state: State) -> jax.Array:
        return best_under(precision(state), sensitivity(state), self.precision)


METRICS = (
    named(SensitivityAtSpecificity, "sensitivity_at_specificity"),
    named(SpecificityAtSensitivity, "specificity_at_sensitivity"),
    named(PrecisionAtRecall, "precision_at_recall"),
    named(RecallAtPrecision, "recall_at_precision"),
)
