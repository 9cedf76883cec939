"""Counts of true and false positives and negatives at thresholds."""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import text
from fkeras.engine.config.field_types import OptionalReals
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.registry import named
from fkeras.metrics import exact
from fkeras.metrics.confusion import as_thresholds, check_thresholds, count, decisions
from fkeras.metrics.metric import Batch, BatchMetric, State


class _Count(BatchMetric):
    """Base class of metrics with one sum for each threshold.

    Args of the family:
        thresholds: scores above which a prediction is positive: one number from 0 to 1, or
            several, with one result each; None for 0.5.

    Raises of the family:
        ValueError: if a threshold is outside of [0, 1].
    """

    #: the count, one of `COUNTS`
    kind: ClassVar[str]

    thresholds: OptionalReals = option(default=None, convert=check_thresholds)

    @property
    def _all_thresholds(self) -> tuple[float, ...]:
        """Thresholds as a tuple; (0.5,) by default."""
        return as_thresholds(self.thresholds)

    def init(self, y_pred: HasShape | None = None) -> State:
        return exact.zeros(["accumulator"], (len(self._all_thresholds),), self.dtype)

    def _add(self, state: State, batch: Batch) -> State:
        # float32 counts each chunk exactly; `exact.add` keeps the sum of the chunks exact
        for labels, scores, weights in exact.chunks(
            *(y.reshape(-1) for y in decisions(self, batch))
        ):
            counts = count(labels, scores, weights, self._all_thresholds)
            state = exact.add(state, {"accumulator": counts[self.kind]})
        return state

    def result(self, state: State) -> jax.Array:
        counts = state["accumulator"]
        # as in Keras: a scalar for one threshold, also for a list of one
        return counts[0] if counts.shape == (1,) else counts


class TruePositives(_Count):
    """Weighted number of targets 1 with a score above the threshold.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.TruePositives()
        >>> metric.result(metric.update(metric.init(), [0, 1, 1, 1], [1, 0, 1, 1]))
        Array(2., dtype=float32)
    """

    kind: ClassVar[str] = "true_positives"

    name: str | None = option(default="true_positives", convert=text(optional=True), kw_only=True)


class FalsePositives(_Count):
    """Weighted number of targets 0 with a score above the threshold.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.FalsePositives()
        >>> metric.result(metric.update(metric.init(), [0, 1, 0, 0], [0, 0, 1, 1]))
        Array(2., dtype=float32)
    """

    kind: ClassVar[str] = "false_positives"

    name: str | None = option(default="false_positives", convert=text(optional=True), kw_only=True)


class TrueNegatives(_Count):
    """Weighted number of targets 0 with a score up to the threshold.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.TrueNegatives()
        >>> metric.result(metric.update(metric.init(), [0, 1, 0, 0], [1, 1, 0, 0]))
        Array(2., dtype=float32)
    """

    kind: ClassVar[str] = "true_negatives"

    name: str | None = option(default="true_negatives", convert=text(optional=True), kw_only=True)


class FalseNegatives(_Count):
    """Weighted number of targets 1 with a score up to the threshold.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.FalseNegatives()
        >>> metric.result(metric.update(metric.init(), [0, 1, 1, 1], [0, 1, 0, 0]))
        Array(2., dtype=float32)
    """

    kind: ClassVar[str] = "false_negatives"

    name: str | None = option(default="false_negatives", convert=text(optional=True), kw_only=True)


METRICS = (
    named(TruePositives, "true_positives"),
    named(FalsePositives, "false_positives"),
    named(TrueNegatives, "true_negatives"),
    named(FalseNegatives, "false_negatives"),
)
