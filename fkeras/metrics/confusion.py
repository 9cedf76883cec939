"""Confusion counts at thresholds; precision and recall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import either, integer, probability, several, text
from fkeras.engine.config.field_types import OptionalInteger, OptionalReals
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.registry import named
from fkeras.losses.checks import check_call
from fkeras.losses.reducing import align_pair, divide_no_nan
from fkeras.metrics import exact
from fkeras.metrics.metric import Batch, BatchMetric, Metric, State, weighted
from fkeras.nn.numerics.axes import format_shape

# score of the classes that `top_k` excludes, and the threshold of `top_k` alone: the score is not
# above the threshold, so excluded classes are negative
LOWEST = -1e10
COUNTS = ("true_positives", "false_positives", "true_negatives", "false_negatives")


def evenly_spaced(thresholds: Sequence[float]) -> bool:
    """Returns whether thresholds are evenly spaced from 0 to 1, within 1e-7."""
    if len(thresholds) < 3:
        return False
    even_thresholds = np.arange(len(thresholds), dtype="float32") / (len(thresholds) - 1)
    return bool(np.allclose(thresholds, even_thresholds, atol=1e-7))


def check_selection(
    where: str, y_pred: HasShape | None, top_k: int | None = None, class_id: int | None = None
) -> None:
    """Rejects a class or a number of classes that predictions of this shape do not have."""
    shape = () if y_pred is None else tuple(y_pred.shape)
    if class_id is not None and len(shape) == 1:
        raise ValueError(
            f"{where}: expected predictions of shape (b, classes) for class_id={class_id}, received "
            f"{format_shape(shape)}. Drop class_id."
        )
    classes = shape[-1] if shape else None
    if not isinstance(classes, int):  # unknown
        return
    if top_k is not None and top_k > classes:
        raise ValueError(
            f"{where}: expected top_k from 1 to {classes} for predictions of shape "
            f"{format_shape(shape)}, received {top_k}. Write top_k=None to count all classes."
        )
    if class_id is not None and class_id >= classes:
        raise ValueError(
            f"{where}: expected class_id from 0 to {classes - 1} for predictions of shape "
            f"{format_shape(shape)}, received {class_id}."
        )


def decisions(
    metric: Metric, batch: Batch, top_k: int | None = None, class_id: int | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns labels (0 or 1), scores and weights of one shape; masked entries have weight 0.

    Args:
        batch: every target except 0 is positive.
        top_k: number of the largest scores along the last axis that may be positive; None for all.
        Other arguments: those of `Precision`.
    """
    y_true, y_pred = align_pair(batch.y_true, batch.y_pred)
    check_selection(metric._label, y_pred, top_k, class_id)
    check_call(metric._label, y_true, y_pred)
    labels, scores = (y_true != 0).astype(metric.dtype), y_pred.astype(metric.dtype)
    if top_k is not None:
        top_classes = jax.lax.top_k(scores, top_k)[1]
        in_top_k = jnp.any(jax.nn.one_hot(top_classes, scores.shape[-1], dtype=bool), axis=-2)
        scores = jnp.where(in_top_k, scores, LOWEST)
    if class_id is not None:
        labels, scores = (y[..., class_id : class_id + 1] for y in (labels, scores))
    # after the selection of a class: the weights take the shape of the selected scores
    _, weights = weighted(scores, batch.sample_weight, batch.mask)
    return labels, scores, weights


def count(
    labels: jax.Array, scores: jax.Array, weights: jax.Array, thresholds: Sequence[float]
) -> State:
    """Returns weighted confusion counts for the decision "score > threshold".

    If a score with a weight other than 0 is NaN, all counts are NaN.

    Args:
        labels: 0 or 1, any shape.
        thresholds: thresholds in ascending order.

    Returns:
        Counts of shape (thresholds,), keyed by the names in `COUNTS`.
    """
    labels, scores, weights = (y.reshape(-1) for y in (labels, scores, weights))
    true, false = labels * weights, (1.0 - labels) * weights
    number = len(thresholds)
    if evenly_spaced(thresholds):
        # a histogram over the thresholds and its cumulative sum need O(n + t) memory; a comparison
        # of all scores with all thresholds needs O(n * t)
        bucket = jnp.ceil(jnp.clip(scores, 0.0, 1.0) * (number - 1.0)) - 1.0
        # a threshold below 0 counts scores of 0 as positive; a threshold of 0 does not
        bucket = jnp.maximum(bucket, 0.0) if thresholds[0] < 0 else bucket
        # `segment_sum` drops negative ids: NaN enters no bucket
        bucket = jnp.where(jnp.isnan(bucket), -1.0, bucket).astype("int32")
        sums = [jax.ops.segment_sum(y, bucket, num_segments=number) for y in (true, false)]
        positive = [jax.lax.cumsum(y, reverse=True) for y in sums]
    else:
        limits = jnp.asarray(thresholds, scores.dtype)[:, None]
        is_above = (scores[None, :] > limits).astype(scores.dtype)
        positive = [jnp.sum(is_above * y[None, :], axis=1) for y in (true, false)]
    # a NaN in the sum makes all counts NaN, without a branch; scores of weight 0 are excluded
    nan_term = jnp.sum(jnp.where(jnp.isnan(scores) & (weights != 0), jnp.nan, 0.0))
    tp, fp = (y + nan_term.astype(y.dtype) for y in positive)
    # negatives are the rest of the total, so they need no second comparison
    return dict(zip(COUNTS, (tp, fp, jnp.sum(false) - fp, jnp.sum(true) - tp), strict=True))


def add_counts(
    state: State, found: tuple[jax.Array, jax.Array, jax.Array], thresholds: Sequence[float]
) -> State:
    """Returns the state after the decisions of a batch.

    Args:
        state: counts by name; a subset of `COUNTS`.
        found: labels, scores and weights from `decisions`.
    """
    for labels, scores, weights in exact.chunks(*(y.reshape(-1) for y in found)):
        counts = count(labels, scores, weights, thresholds)
        state = exact.add(state, {name: counts[name] for name in COUNTS if name in state})
    return state


check_thresholds = either(
    probability, several(probability, "a list of numbers from 0 to 1"), optional=True
)


def as_thresholds(
    thresholds: float | tuple[float, ...] | None, top_k: int | None = None
) -> tuple[float, ...]:
    """Returns thresholds as a tuple: by default 0.5, or with `top_k` the lowest score."""
    if thresholds is None:
        return (0.5,) if top_k is None else (LOWEST,)
    return thresholds if isinstance(thresholds, tuple) else (thresholds,)


class _Share(BatchMetric):
    """Share of true positives in the sum of true positives and another count.

    Args of the family:
        thresholds: scores above which a prediction is positive: one number from 0 to 1, or
            several, with one result each. None for 0.5, or for no threshold with `top_k`.
        top_k: number of the largest scores of a sample that may be positive.
        class_id: the entry of the last axis that counts; None for all entries.

    Raises of the family:
        ValueError: if a threshold is outside of [0, 1]; in `init` and `update`, if the predictions
            have fewer classes than `top_k` or `class_id` needs.
    """

    other_count: ClassVar[str]

    thresholds: OptionalReals = option(default=None, convert=check_thresholds)
    top_k: OptionalInteger = option(default=None, convert=integer(minimum=1, optional=True))
    class_id: OptionalInteger = option(default=None, convert=integer(minimum=0, optional=True))

    def init(self, y_pred: HasShape | None = None) -> State:
        check_selection(self._label, y_pred, self.top_k, self.class_id)
        shape = (len(as_thresholds(self.thresholds, self.top_k)),)
        return exact.zeros(["true_positives", self.other_count], shape, self.dtype)

    def _add(self, state: State, batch: Batch) -> State:
        found = decisions(self, batch, self.top_k, self.class_id)
        return add_counts(state, found, as_thresholds(self.thresholds, self.top_k))

    def result(self, state: State) -> jax.Array:
        true_positives = state["true_positives"]
        share = divide_no_nan(true_positives, true_positives + state[self.other_count])
        return share[0] if share.shape == (1,) else share


class Precision(_Share):
    """Precision: true positives / (true positives + false positives).

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.Precision()
        >>> metric.result(metric.update(metric.init(), [0, 1, 1], [0.9, 0.8, 0.1]))
        Array(0.5, dtype=float32)
    """

    other_count: ClassVar[str] = "false_positives"

    name: str | None = option(default="precision", convert=text(optional=True), kw_only=True)


class Recall(_Share):
    """Recall: true positives / (true positives + false negatives).

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.Recall()
        >>> metric.result(metric.update(metric.init(), [0, 1, 1, 1], [0.9, 0.8, 0.1, 0.2]))
        Array(0.33333334, dtype=float32)
    """

    other_count: ClassVar[str] = "false_negatives"

    name: str | None = option(default="recall", convert=text(optional=True), kw_only=True)


METRICS = (
    named(Precision, "precision"),
    named(Recall, "recall"),
)
