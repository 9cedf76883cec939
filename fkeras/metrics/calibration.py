"""Calibration: whether predicted probabilities are the shares of correct predictions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, choice, integer, text
from fkeras.engine.config.field_types import Integer
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.checks import check_call
from fkeras.losses.crossentropy import class_numbers
from fkeras.losses.naming import kind_of_classes
from fkeras.losses.reducing import divide_no_nan
from fkeras.metrics import exact
from fkeras.metrics.metric import Batch, BatchMetric, State, weighted
from fkeras.nn.numerics.indices import valid_indices

_SUMS = ("count", "confidence", "correct")


class CalibrationError(BatchMetric):
    """Mean difference between confidence and accuracy, over bins of equal confidence (ECE).

    The confidence of a sample is its largest probability; for predictions of one unit, the probability
    of class 1, and the accuracy is the share of class 1. Bin i of n has the confidences above i / n, up
    to (i + 1) / n.

    Args:
        bins: number of bins from 0 to 1.
        norm: "l1" for the mean of |accuracy - confidence| over the samples, by bins; "l2" for the root
            of the mean square; "max" for the largest difference.
        from_logits: whether predictions are logits (before the softmax, or the sigmoid of one unit).

    Shapes:
        targets are class numbers (b, ...) or one-hot, and predictions (b, ..., classes); of one unit, both
        (b, ..., 1).

    Raises:
        ValueError: for an unknown `norm`; in `update`, for shapes that do not fit.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.CalibrationError()
        >>> scores = [[0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]
        >>> metric.result(metric.update(metric.init(), [0, 1, 0], scores)).round(4)
        Array(0.2333, dtype=float32)

    References:
        Guo et al. 2017, On calibration of modern neural networks, https://arxiv.org/abs/1706.04599
    """

    bins: Integer = option(default=15, convert=integer(minimum=1, maximum=1 << 20))
    norm: str = option(default="l1", convert=choice("l1", "l2", "max"))
    from_logits: bool = option(default=False, convert=boolean)
    name: str | None = option(
        default="calibration_error", convert=text(optional=True), kw_only=True
    )

    def init(self, y_pred: HasShape | None = None) -> State:
        return exact.zeros(_SUMS, (self.bins,), self.dtype)

    def _add(self, state: State, batch: Batch) -> State:
        confidence, correct = self._decisions(batch)
        confidence, correct = confidence.astype(self.dtype), correct.astype(self.dtype)
        # NaN of an invalid class number, or of a score, reaches the result through both sums
        _, weights = weighted(confidence, batch.sample_weight, batch.mask)
        place = jnp.clip(jnp.ceil(confidence * self.bins) - 1.0, 0, self.bins - 1)
        place = jnp.where(jnp.isnan(place), 0, place).astype("int32")
        for bins, weight, *values in exact.chunks(
            *(a.reshape(-1) for a in (place, weights, confidence, correct))
        ):
            parts = [weight, *(jnp.where(weight == 0, 0.0, weight * v) for v in values)]
            sums = [jax.ops.segment_sum(a, bins, num_segments=self.bins) for a in parts]
            state = exact.add(state, dict(zip(_SUMS, sums, strict=True)))
        return state

    def _decisions(self, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Returns confidence and correctness (0, 1 or NaN) of each sample."""
        y_true, y_pred = as_operand(batch.y_true, "y_true"), as_operand(batch.y_pred, "y_pred")
        y_pred = y_pred.astype("float32") if y_pred.dtype.itemsize < 4 else y_pred
        kind = kind_of_classes(y_true, y_pred)
        if kind == "binary":
            y_true = y_true[..., None] if y_true.ndim == y_pred.ndim - 1 else y_true
            check_call(self._label, y_true, y_pred)
            shares = jax.nn.sigmoid(y_pred) if self.from_logits else y_pred
            return shares[..., 0], y_true[..., 0]
        shares = jax.nn.softmax(y_pred, axis=-1) if self.from_logits else y_pred
        confidence, predicted = (
            jnp.max(shares, axis=-1),
            jnp.argmax(shares, axis=-1).astype("int32"),
        )
        if kind == "sparse":
            labels = class_numbers(y_true, y_pred, -1, self._label)
            labels, valid = valid_indices(labels, y_pred.shape[-1])
        else:
            check_call(self._label, y_true, y_pred, "sparse_categorical_crossentropy")
            labels, valid = jnp.argmax(y_true, axis=-1).astype("int32"), jnp.ones((), bool)
        correct = jnp.where(valid, (labels == predicted).astype(confidence.dtype), jnp.nan)
        return confidence, correct

    def result(self, state: State) -> jax.Array:
        count = state["count"]
        gaps = jnp.abs(divide_no_nan(state["correct"] - state["confidence"], count))
        if self.norm == "max":
            return jnp.max(gaps)
        shares = divide_no_nan(count, jnp.broadcast_to(jnp.sum(count), count.shape))
        if self.norm == "l1":
            return jnp.sum(shares * gaps)
        return jnp.sqrt(jnp.sum(shares * jnp.square(gaps)))


METRICS = (named(CalibrationError, "calibration_error"),)
