"""AUC: the area under the ROC, precision-recall or precision-recall-gain curve."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import (
    boolean,
    choice,
    integer,
    probability,
    real,
    several,
    text,
)
from fkeras.engine.config.field_types import OptionalInteger, OptionalReals
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.reducing import divide_no_nan
from fkeras.metrics import exact
from fkeras.metrics.confusion import COUNTS, add_counts, count, decisions
from fkeras.metrics.metric import Batch, BatchMetric, State

# an empty list leaves the thresholds below 0 and above 1, which `AUC` adds
_thresholds = several(probability, "a list of numbers from 0 to 1", least=0, optional=True)
_weights = several(real(minimum=0), "a list of numbers of 0 or more", optional=True)


def _label_weights(value: Any) -> tuple[float, ...] | None:
    """Converts label weights; float32 values, as Keras writes them, to their shortest decimal."""
    weights = _weights(value)
    if weights is not None and np.asarray(value).dtype == np.float32:
        return tuple(float(str(np.float32(weight))) for weight in weights)
    return weights


def interpolated_pr_area(state: State) -> jax.Array:
    """Returns the area under the precision-recall curve, interpolated as in Davis and Goadrich.

    References:
        Davis and Goadrich 2006, The Relationship Between Precision-Recall and ROC Curves,
        https://www.biostat.wisc.edu/~page/rocpr.pdf
    """
    tp, fp, fn = (state[n] for n in ("true_positives", "false_positives", "false_negatives"))
    positive = tp + fp
    tp_step, step = tp[:-1] - tp[1:], positive[:-1] - positive[1:]
    slope = divide_no_nan(tp_step, jnp.maximum(step, 0.0))
    intercept = tp[1:] - slope * positive[1:]
    # log(1) = 0 removes the term where a ratio is undefined, as in Keras
    is_defined = (positive[:-1] > 0) & (positive[1:] > 0)
    ratio = jnp.where(is_defined, divide_no_nan(positive[:-1], positive[1:]), 1.0)
    parts = slope * (tp_step + intercept * jnp.log(ratio))
    return jnp.sum(divide_no_nan(parts, jnp.maximum(tp[1:] + fn[1:], 0.0)), axis=0)


def curve_points(state: State, curve: str) -> tuple[jax.Array, jax.Array]:
    """Returns the x and y coordinates of the curve at each threshold."""
    tp, fp, tn, fn = (state[name] for name in COUNTS)
    recall = divide_no_nan(tp, tp + fn)
    if curve == "ROC":
        return divide_no_nan(fp, fp + tn), recall
    if curve == "PR":
        return recall, divide_no_nan(tp, tp + fp)
    scale = divide_no_nan(tp + fn, tn + fp)
    recall_gain = jnp.where(tp == 0, 0.0, 1.0 - scale * divide_no_nan(fn, tp))
    precision_gain = jnp.where(tp == 0, 1.0, 1.0 - scale * divide_no_nan(fp, tp))
    return jnp.maximum(recall_gain, 0.0), precision_gain


class AUC(BatchMetric):
    """Area under the ROC, precision-recall or precision-recall-gain curve.

    Args:
        num_thresholds: number of thresholds, evenly spaced from 0 to 1; None with `thresholds`.
        curve: "ROC", true over false positive rate; "PR", precision over recall; "PRGAIN", the
            gains of both over a classifier that predicts only positives.
        summation_method: the height between two points: "interpolation", "majoring" (the larger)
            or "minoring" (the smaller).
        thresholds: custom thresholds between the first and the last one; they set
            `num_thresholds` to their number plus 2.
        multi_label: whether to compute one area per entry of the last axis; the result is the
            mean of the areas.
        num_labels: size of the last axis for `multi_label`; None to use `y_pred` of `init`.
        label_weights: weights of the entries of the last axis; None for equal weights.
        from_logits: whether predictions are logits (before the sigmoid).

    Raises:
        ValueError: if a threshold is outside of [0, 1], `num_thresholds` is below 2, `curve` or
            `summation_method` is unknown, or `num_labels` is given without `multi_label`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.AUC()
        >>> metric.result(metric.update(metric.init(), [0, 0, 1, 1], [0.1, 0.6, 0.5, 0.9]))
        Array(0.75, dtype=float32)

    References:
        Davis and Goadrich 2006, The relationship between precision-recall and ROC curves,
        https://www.biostat.wisc.edu/~page/rocpr.pdf
        Flach and Kull 2015, Precision-recall-gain curves,
        https://papers.nips.cc/paper/2015/file/33e8075e9970de0cfea955afd4644bb2-Paper.pdf
    """

    _positional: ClassVar[tuple[str, ...]] = (
        "name",
        "dtype",
        "thresholds",
        "multi_label",
        "num_labels",
        "label_weights",
        "from_logits",
    )

    num_thresholds: OptionalInteger = option(
        default=200, convert=integer(minimum=2, maximum=1 << 20, optional=True)
    )
    curve: str = option(default="ROC", convert=choice("ROC", "PR", "PRGAIN"))
    summation_method: str = option(
        default="interpolation",
        convert=choice("interpolation", "majoring", "minoring"),
    )
    name: str | None = option(default="auc", convert=text(optional=True), kw_only=True)
    thresholds: OptionalReals = option(default=None, convert=_thresholds, kw_only=True)
    multi_label: bool = option(default=False, convert=boolean, kw_only=True)
    num_labels: OptionalInteger = option(
        default=None, convert=integer(minimum=1, maximum=1 << 31, optional=True), kw_only=True
    )
    label_weights: OptionalReals = option(default=None, convert=_label_weights, kw_only=True)
    from_logits: bool = option(default=False, convert=boolean, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_labels is not None and not self.multi_label:
            raise ValueError(
                f"AUC: expected num_labels only with multi_label=True, received num_labels="
                f"{self.num_labels}. Add multi_label=True or leave num_labels out."
            )
        if self.num_thresholds is None and self.thresholds is None:
            raise ValueError(
                "AUC: expected num_thresholds or thresholds, received None for both. Leave "
                "num_thresholds out for 200 thresholds."
            )
        if self.thresholds is not None:  # `_all_thresholds` adds one below 0 and one above 1
            object.__setattr__(self, "num_thresholds", len(self.thresholds) + 2)

    @property
    def _all_thresholds(self) -> tuple[float, ...]:
        """Thresholds in ascending order, from just below 0 to just above 1."""
        if self.thresholds is not None:
            inner_thresholds = tuple(sorted(self.thresholds))
        else:
            last = (self.num_thresholds or 0) - 1
            # computed in Python floats, as in Keras: equal thresholds give equal counts
            inner_thresholds = tuple((i + 1) / last for i in range(last - 1))
        return (-1e-7, *inner_thresholds, 1.0 + 1e-7)

    def init(self, y_pred: HasShape | None = None) -> State:
        shape: tuple[int, ...] = (len(self._all_thresholds),)
        if self.multi_label:
            labels = self.num_labels
            if labels is None and y_pred is not None:
                labels = y_pred.shape[-1]
            if labels is None:
                raise ValueError(
                    f"{self._label}: unknown number of labels. Pass num_labels, or predictions or "
                    "their specs: metric.init(y_pred)."
                )
            shape += (labels,)
        return exact.zeros(COUNTS, shape, self.dtype)

    def _add(self, state: State, batch: Batch) -> State:
        y_pred = as_operand(batch.y_pred, "y_pred").astype(self.dtype)
        y_pred = jax.nn.sigmoid(y_pred) if self.from_logits else y_pred
        labels, scores, weights = decisions(self, batch._replace(y_pred=y_pred))
        if not self.multi_label:
            if self.label_weights is not None:
                # one area for all labels: weight the decisions, not the areas as in `result`
                label_weights = jnp.asarray(self.label_weights, self.dtype)
                weights = weights * label_weights.reshape((1,) * (weights.ndim - 1) + (-1,))
            return add_counts(state, (labels, scores, weights), self._all_thresholds)
        # `count` flattens its arrays, so map it over labels instead of adding an axis to it
        columns = [y.reshape(-1, y.shape[-1]) for y in (labels, scores, weights)]
        count_labels = jax.vmap(
            lambda y, s, w: count(y, s, w, self._all_thresholds), in_axes=1, out_axes=1
        )
        for part in exact.chunks(*columns):
            state = exact.add(state, count_labels(*part))
        return state

    def result(self, state: State) -> jax.Array:
        if self.curve == "PR" and self.summation_method == "interpolation":
            area = interpolated_pr_area(state)
        else:
            x, y = curve_points(state, self.curve)
            if self.summation_method == "interpolation":
                heights = (y[:-1] + y[1:]) / 2.0
            else:
                choose = jnp.minimum if self.summation_method == "minoring" else jnp.maximum
                heights = choose(y[:-1], y[1:])
            # x falls with rising thresholds, so widths are x[i] - x[i + 1]
            area = jnp.sum((x[:-1] - x[1:]) * heights, axis=0)
        if not self.multi_label:
            return area
        if self.label_weights is None:
            return jnp.mean(area)
        weights = jnp.asarray(self.label_weights, self.dtype)
        return divide_no_nan(jnp.sum(area * weights), jnp.sum(weights))


METRICS = (named(AUC, "auc"),)
