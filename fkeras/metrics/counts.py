"""How many decisions at thresholds are right or wrong, each kind by itself."""

from __future__ import annotations

from typing import Any

import jax

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import text
from fkeras.engine.config.field_types import DTypeName, OptionalReals
from fkeras.engine.values.registry import named
from fkeras.losses.loss import dtype_name
from fkeras.metrics import exact
from fkeras.metrics.confusion import check_thresholds, count, decisions
from fkeras.metrics.metric import Metric, State


def _listed(thresholds: Any) -> tuple[float, ...]:
    if thresholds is None:
        return (0.5,)
    return thresholds if isinstance(thresholds, tuple) else (thresholds,)


def _add(
    metric: _Count, kind: str, state: State, y_true: Any, y_pred: Any, weight: Any, mask: Any
) -> State:
    found = decisions(y_true, y_pred, weight, mask, metric.dtype)
    thresholds = metric.all_thresholds
    for labels, scores, weights in exact.chunks(*(y.reshape(-1) for y in found)):
        counts = count(labels, scores, weights, thresholds)
        state = exact.add(state, {"accumulator": counts[kind]})
    return state


class _Count(Metric):
    """Base class of metrics with one sum for each threshold."""

    @property
    def all_thresholds(self) -> tuple[float, ...]:
        """The thresholds as a tuple; 0.5 alone by default."""
        metric: Any = self  # each subclass declares the field `thresholds`
        return _listed(metric.thresholds)

    def init(self, y_pred: Any = None) -> State:
        return exact.zeros(["accumulator"], (len(self.all_thresholds),), self.dtype)

    def result(self, state: State) -> jax.Array:
        counts = state["accumulator"]
        return counts[0] if counts.shape == (1,) else counts


class TruePositives(_Count):
    """The sum of the weights of the targets 1 with a score above the threshold.

    See `Metric` for `name` and `dtype`.

    Args:
        thresholds: above which score a prediction is positive: a number from 0 to 1, or several
            for as many results; 0.5 for None.

    Raises:
        ValueError: for a threshold outside of [0, 1].

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.TruePositives()
        >>> metric.result(metric.update(metric.init(), [0, 1, 1, 1], [1, 0, 1, 1]))
        Array(2., dtype=float32)
    """

    thresholds: OptionalReals = option(default=None, convert=check_thresholds)
    name: str | None = option(default="true_positives", convert=text(optional=True), kw_only=True)
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        return _add(self, "true_positives", state, y_true, y_pred, sample_weight, mask)


class FalsePositives(_Count):
    """The sum of the weights of the targets 0 with a score above the threshold.

    See `Metric` for `name` and `dtype`.

    Args:
        thresholds: above which score a prediction is positive: a number from 0 to 1, or several
            for as many results; 0.5 for None.

    Raises:
        ValueError: for a threshold outside of [0, 1].

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.FalsePositives()
        >>> metric.result(metric.update(metric.init(), [0, 1, 0, 0], [0, 0, 1, 1]))
        Array(2., dtype=float32)
    """

    thresholds: OptionalReals = option(default=None, convert=check_thresholds)
    name: str | None = option(default="false_positives", convert=text(optional=True), kw_only=True)
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        return _add(self, "false_positives", state, y_true, y_pred, sample_weight, mask)


class TrueNegatives(_Count):
    """The sum of the weights of the targets 0 with a score not above the threshold.

    See `Metric` for `name` and `dtype`.

    Args:
        thresholds: above which score a prediction is positive: a number from 0 to 1, or several
            for as many results; 0.5 for None.

    Raises:
        ValueError: for a threshold outside of [0, 1].

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.TrueNegatives()
        >>> metric.result(metric.update(metric.init(), [0, 1, 0, 0], [1, 1, 0, 0]))
        Array(2., dtype=float32)
    """

    thresholds: OptionalReals = option(default=None, convert=check_thresholds)
    name: str | None = option(default="true_negatives", convert=text(optional=True), kw_only=True)
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        return _add(self, "true_negatives", state, y_true, y_pred, sample_weight, mask)


class FalseNegatives(_Count):
    """The sum of the weights of the targets 1 with a score not above the threshold.

    See `Metric` for `name` and `dtype`.

    Args:
        thresholds: above which score a prediction is positive: a number from 0 to 1, or several
            for as many results; 0.5 for None.

    Raises:
        ValueError: for a threshold outside of [0, 1].

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.FalseNegatives()
        >>> metric.result(metric.update(metric.init(), [0, 1, 1, 1], [0, 1, 0, 0]))
        Array(2., dtype=float32)
    """

    thresholds: OptionalReals = option(default=None, convert=check_thresholds)
    name: str | None = option(default="false_negatives", convert=text(optional=True), kw_only=True)
    dtype: DTypeName = option(default="float32", convert=dtype_name, kw_only=True)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        return _add(self, "false_negatives", state, y_true, y_pred, sample_weight, mask)


METRICS = (
    named(TruePositives, "true_positives"),
    named(FalsePositives, "false_positives"),
    named(TrueNegatives, "true_negatives"),
    named(FalseNegatives, "false_negatives"),
)
