"""Intersection over union (IoU), computed from a confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.typing import DTypeLike

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, integer, real, several, text
from fkeras.engine.config.field_types import (
    Integer,
    Integers,
    OptionalDTypeName,
    OptionalInteger,
    Real,
)
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.loss import dtype_name
from fkeras.losses.reducing import merge_weights
from fkeras.metrics import exact
from fkeras.metrics.metric import Batch, BatchMetric, Metric, State
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.numerics.stable import EPSILON

# the confusion matrix has the square of this number of cells
_classes = integer(minimum=1, maximum=1 << 20)
_TABLE = "total_confusion_matrix"
_ONE_HOT = ("name", "dtype", "ignore_class", "sparse_y_pred", "axis")
_SPARSE = (*_ONE_HOT[:3], "sparse_y_true", *_ONE_HOT[3:])


def _counter(dtype: DTypeLike | None) -> str:
    """Returns the dtype of the counts; int32 for None, since float32 is exact only up to 2**24."""
    name = "int32" if dtype is None or dtype == "int" else dtype_name(dtype)
    return name


def confusion_table(
    labels: jax.Array, found: jax.Array, weights: jax.Array, classes: int
) -> jax.Array:
    """Returns the weighted confusion matrix: rows are true classes, columns predicted classes.

    Returns:
        (classes, classes), of the weights' dtype.
    """
    labels, found, weights = (y.reshape(-1) for y in (labels, found, weights))
    # check both numbers: an invalid class could still give a valid cell
    is_valid = (labels >= 0) & (labels < classes) & (found >= 0) & (found < classes)
    # one segment per cell of the flattened matrix
    cell = jnp.where(is_valid, labels * classes + found, 0)
    weights = jnp.where(is_valid, weights, jnp.zeros_like(weights))
    sums = jax.ops.segment_sum(weights, cell, num_segments=classes * classes)
    return sums.reshape(classes, classes)


def mean_overlap(table: jax.Array, classes: Sequence[int]) -> jax.Array:
    """Returns the mean IoU of the chosen classes, without classes that do not occur."""
    class_ids = jnp.asarray(tuple(classes), "int32")
    table = table.astype("float32")
    # union = true + predicted - intersection
    intersection = jnp.diagonal(table)
    union = jnp.sum(table, axis=0) + jnp.sum(table, axis=1) - intersection
    intersection, union = intersection[class_ids], union[class_ids]
    # a class that neither targets nor predictions have would count as an IoU of 0
    occurs = union > 1e-9
    shares = jnp.where(occurs, intersection / (union + EPSILON), 0.0)
    return jnp.sum(shares) / (jnp.sum(occurs.astype("float32")) + EPSILON)


def _check_numbers(
    metric: Metric, labels: jax.Array, predicted: jax.Array, weights: jax.Array, classes: int
) -> None:
    """Rejects class numbers out of range, outside of traces; numbers of weight 0 do not count."""
    for what, numbers in (("targets", labels), ("predictions", predicted)):
        if isinstance(numbers, Tracer) or isinstance(weights, Tracer):
            return
        outside = ((numbers < 0) | (numbers >= classes)) & (weights != 0)
        if outside.any():
            raise ValueError(
                f"{metric._label}: expected {what} from 0 to {classes - 1}, received "
                f"{numbers[outside][0]}. Increase num_classes, or give these samples a weight of 0."
            )


class _Overlap(BatchMetric):
    """Base class of the IoU metrics: a confusion matrix as the state."""

    dtype: OptionalDTypeName = option(default=None, convert=_counter, kw_only=True)

    @property
    def _number(self) -> int:
        """Number of classes."""
        raise NotImplementedError

    def init(self, y_pred: HasShape | None = None) -> State:
        return exact.zeros([_TABLE], (self._number, self._number), self.dtype)

    def _count(
        self,
        state: State,
        labels: jax.Array,
        predicted: jax.Array,
        batch: Batch,
        ignore_class: int | None = None,
    ) -> State:
        """Returns the state after the pairs of true and predicted classes of a batch."""
        if predicted.size != labels.size:
            raise ValueError(
                f"{self._label}: expected one class number for each target and each prediction, received "
                f"targets {format_shape(labels.shape)} and predictions {format_shape(predicted.shape)}. For "
                "scores write sparse_y_pred=False, for one-hot targets sparse_y_true=False."
            )
        # only one of the two may have a last axis of size 1
        predicted = predicted.reshape(labels.shape)
        counts_integers = jnp.issubdtype(jnp.dtype(self.dtype), jnp.integer)
        sample_weight = batch.sample_weight
        if sample_weight is not None:
            sample_weight = as_operand(sample_weight, "sample_weight")
            # Keras truncates fractional weights to integers without an error
            if counts_integers and jnp.issubdtype(sample_weight.dtype, jnp.floating):
                raise ValueError(
                    f"{self._label}: expected integer sample weights, since the counts have dtype "
                    f"{self.dtype}, received {sample_weight.dtype}. Create the metric with "
                    "dtype='float32' for fractional weights."
                )
        ones = jnp.ones(labels.shape, self.dtype)
        weight, merged_mask = merge_weights(ones, sample_weight, batch.mask)
        weights = ones if weight is None else ones * weight
        if merged_mask is not None:
            weights = jnp.where(merged_mask, weights, jnp.zeros_like(weights))
        if ignore_class is not None:
            weights = jnp.where(labels == ignore_class, jnp.zeros_like(weights), weights)
        table = confusion_table(labels, predicted, weights, self._number)
        _check_numbers(self, labels, predicted, weights, self._number)
        return exact.add(state, {_TABLE: table})

    def result(self, state: State) -> jax.Array:
        table = exact.as_float(state, _TABLE)
        return mean_overlap(table, getattr(self, "target_class_ids", range(self._number)))


class _ClassOverlap(_Overlap):
    """Base class of the IoU metrics of any number of classes.

    Args of the family:
        num_classes: number of classes.
        target_class_ids: classes to average; classes that do not occur are excluded.
        dtype: dtype of the counts.
        ignore_class: a class number whose samples do not count.
        sparse_y_true: whether targets are class numbers instead of one-hot.
        sparse_y_pred: whether predictions are class numbers instead of one score per class.
        axis: the class axis of one-hot targets and of scores.
    """

    _positional: ClassVar[tuple[str, ...]] = _ONE_HOT

    num_classes: Integer = option(convert=_classes)
    ignore_class: OptionalInteger = option(
        default=None, convert=integer(optional=True), kw_only=True
    )
    sparse_y_pred: bool = option(default=True, convert=boolean, kw_only=True)
    axis: Integer = option(default=-1, convert=integer(), kw_only=True)

    @property
    def _number(self) -> int:
        return self.num_classes

    @property
    def _sparse_targets(self) -> bool:
        """Whether targets are class numbers."""
        return False

    def init(self, y_pred: HasShape | None = None) -> State:
        if y_pred is not None and not self.sparse_y_pred:
            self._check_scores(y_pred.shape)
        return super().init(y_pred)

    def _add(self, state: State, batch: Batch) -> State:
        labels = self._class_numbers(batch.y_true, self._sparse_targets)
        predicted = self._class_numbers(batch.y_pred, self.sparse_y_pred)
        return self._count(state, labels, predicted, batch, self.ignore_class)

    def _class_numbers(self, y: Numbers, sparse: bool) -> jax.Array:
        y = as_operand(y, "y_true or y_pred")
        if not sparse:
            self._check_scores(y.shape)
            # `argmax` of one-hot targets gives class numbers, so all variants share one matrix
            y = jnp.argmax(y, axis=self.axis)
        return y.astype("int32")

    def _check_scores(self, shape: Sequence[Any]) -> None:
        """Rejects one-hot targets and scores of more classes than the confusion matrix has."""
        classes = shape[self.axis] if -len(shape) <= self.axis < len(shape) else None
        if isinstance(classes, int) and classes > self.num_classes:
            raise ValueError(
                f"{self._label}: expected at most {self.num_classes} classes along axis "
                f"{self.axis}, received shape {format_shape(shape)}. Write num_classes={classes}."
            )


def _check_ids(metric: IoU | OneHotIoU) -> None:
    invalid_ids = [c for c in metric.target_class_ids if not 0 <= c < metric.num_classes]
    if invalid_ids:
        raise ValueError(
            f"{type(metric).__name__}: target_class_ids: expected numbers of the "
            f"{metric.num_classes} classes (0..{metric.num_classes - 1}), received "
            f"{invalid_ids[0]}. Correct the number, or increase num_classes."
        )


class IoU(_ClassOverlap):
    """Mean IoU of chosen classes: intersection / union of true and predicted regions.

    The IoU of a class is tp / (tp + fp + fn). Counts are int32, so weights must be integers unless
    `dtype` is a float; Keras truncates fractional weights.

    Raises:
        ValueError: if a class of `target_class_ids` is not below `num_classes`; in `init` and
            `update`, if scores have more than `num_classes` classes; in `update`, if weights are
            floats and `dtype` is an integer, or a class number outside of traces is out of range.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.IoU(num_classes=2, target_class_ids=[0])
        >>> metric.result(metric.update(metric.init(), [0, 0, 1, 1], [0, 1, 0, 1])).round(4)
        Array(0.3333, dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = _SPARSE

    name: str | None = option(default="io_u", convert=text(optional=True), kw_only=True)
    target_class_ids: Integers = option(convert=several(integer(), "class numbers such as [0, 2]"))
    sparse_y_true: bool = option(default=True, convert=boolean, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ids(self)

    @property
    def _sparse_targets(self) -> bool:
        return self.sparse_y_true


class BinaryIoU(_Overlap):
    """Mean IoU of the classes 0 and 1, with a threshold on the scores.

    Args:
        target_class_ids: classes to average: 0, 1 or both.
        threshold: minimum score of a prediction of class 1.
        dtype: dtype of the counts.

    Raises:
        ValueError: if a class is neither 0 nor 1; for weights as in `IoU`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.BinaryIoU()
        >>> metric.result(metric.update(metric.init(), [0, 1, 0, 1], [0.1, 0.2, 0.4, 0.7])).round(4)
        Array(0.5833, dtype=float32)
    """

    target_class_ids: Integers = option(
        default=(0, 1), convert=several(integer(), "class numbers such as [0, 2]")
    )
    threshold: Real = option(default=0.5, convert=real())
    name: str | None = option(default="binary_io_u", convert=text(optional=True), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(c not in (0, 1) for c in self.target_class_ids):
            raise ValueError(
                f"BinaryIoU: target_class_ids: expected 0, 1 or both, received "
                f"{list(self.target_class_ids)}. For more classes use IoU."
            )

    @property
    def _number(self) -> int:
        return 2

    def _add(self, state: State, batch: Batch) -> State:
        # as in Keras: a score equal to the threshold is positive here, unlike in `Precision`
        scores = as_operand(batch.y_pred, "y_pred").astype("float32")
        predicted = (scores >= self.threshold).astype("int32")
        labels = as_operand(batch.y_true, "y_true").astype("int32")
        return self._count(state, labels, predicted, batch)


class MeanIoU(_ClassOverlap):
    """Mean IoU of all classes that occur.

    Raises:
        ValueError: if `num_classes` is below 1; for weights as in `IoU`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.MeanIoU(num_classes=2)
        >>> metric.result(metric.update(metric.init(), [0, 0, 1, 1], [0, 1, 0, 1])).round(4)
        Array(0.3333, dtype=float32)
    """

    _positional: ClassVar[tuple[str, ...]] = _SPARSE

    name: str | None = option(default="mean_io_u", convert=text(optional=True), kw_only=True)
    sparse_y_true: bool = option(default=True, convert=boolean, kw_only=True)

    @property
    def _sparse_targets(self) -> bool:
        return self.sparse_y_true


class OneHotIoU(_ClassOverlap):
    """Mean IoU of chosen classes, for one-hot targets.

    Raises:
        ValueError: if a class of `target_class_ids` is not below `num_classes`; for weights as in
            `IoU`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.OneHotIoU(num_classes=2, target_class_ids=[0])
        >>> y_true, y_pred = [[1, 0], [1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred)).round(4)
        Array(0.5, dtype=float32)
    """

    name: str | None = option(default="one_hot_io_u", convert=text(optional=True), kw_only=True)
    target_class_ids: Integers = option(convert=several(integer(), "class numbers such as [0, 2]"))
    sparse_y_pred: bool = option(default=False, convert=boolean, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ids(self)


class OneHotMeanIoU(_ClassOverlap):
    """Mean IoU of all classes that occur, for one-hot targets.

    Raises:
        ValueError: if `num_classes` is below 1; for weights as in `IoU`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.OneHotMeanIoU(num_classes=2)
        >>> y_true, y_pred = [[1, 0], [1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred)).round(4)
        Array(0.5, dtype=float32)
    """

    name: str | None = option(
        default="one_hot_mean_io_u", convert=text(optional=True), kw_only=True
    )
    sparse_y_pred: bool = option(default=False, convert=boolean, kw_only=True)


METRICS = (
    named(IoU, "io_u"),
    named(BinaryIoU, "binary_io_u"),
    named(MeanIoU, "mean_io_u"),
    named(OneHotIoU, "one_hot_io_u"),
    named(OneHotMeanIoU, "one_hot_mean_io_u"),
)
