"""Intersection over union of regions, from a table of true and predicted classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, integer, real, several, text
from fkeras.engine.config.field_types import (
    Integer,
    Integers,
    OptionalDTypeName,
    OptionalInteger,
    Real,
)
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.loss import dtype_name
from fkeras.losses.reducing import merge_weights
from fkeras.metrics import exact
from fkeras.metrics.metric import Metric, State

_EPSILON = 1e-7
_TABLE = "total_confusion_matrix"


def _counter(dtype: Any) -> str:
    """The dtype of the counts: int32 for None, since float32 counts pixels to 2**24 only."""
    name = "int32" if dtype is None or dtype == "int" else dtype_name(dtype)
    return name


def confusion_table(
    labels: jax.Array, found: jax.Array, weights: jax.Array, classes: int
) -> jax.Array:
    """The sums of the weights by true class (rows) and predicted class (columns).

    Args:
        labels: class numbers, any shape; pairs with a number out of range do not count, as integer
            tables hold no NaN.
        found: predicted class numbers, the same shape.
        weights: the same shape.
        classes: how many classes.

    Returns:
        (classes, classes), of the weights' dtype.

    Example:
        >>> import jax.numpy as jnp
        >>> confusion_table(jnp.array([0, 1, 1]), jnp.array([0, 0, 1]), jnp.ones(3, int), 2)
        Array([[1, 0],
               [1, 1]], dtype=int32)
    """
    labels, found, weights = (y.reshape(-1) for y in (labels, found, weights))
    inside = (labels >= 0) & (labels < classes) & (found >= 0) & (found < classes)
    cell = jnp.where(inside, labels * classes + found, 0)
    weights = jnp.where(inside, weights, jnp.zeros_like(weights))
    sums = jax.ops.segment_sum(weights, cell, num_segments=classes * classes)
    return sums.reshape(classes, classes)


def mean_overlap(table: jax.Array, classes: Sequence[int]) -> jax.Array:
    """The mean, over the chosen classes that occur, of intersection / union."""
    chosen = jnp.asarray(tuple(classes), "int32")
    table = table.astype("float32")
    both = jnp.diagonal(table)
    union = jnp.sum(table, axis=0) + jnp.sum(table, axis=1) - both
    both, union = both[chosen], union[chosen]
    occurs = union > 1e-9
    shares = jnp.where(occurs, both / (union + _EPSILON), 0.0)
    return jnp.sum(shares) / (jnp.sum(occurs.astype("float32")) + _EPSILON)


def _add(
    metric: Metric,
    state: State,
    labels: jax.Array,
    found: jax.Array,
    sample_weight: Any,
    mask: Any,
    classes: int,
    ignore_class: int | None = None,
) -> State:
    """The state with the pairs of a batch added."""
    # of one shape: a last axis of size 1 may be left out in one of the two
    found = found.reshape(labels.shape) if found.size == labels.size else found
    counts = jnp.issubdtype(jnp.dtype(metric.dtype), jnp.integer)
    if sample_weight is not None:
        sample_weight = as_operand(sample_weight, "sample_weight")
        if counts and jnp.issubdtype(sample_weight.dtype, jnp.floating):
            raise ValueError(
                f"{metric.label}: expected whole sample weights, since it counts in "
                f"{metric.dtype}, received {sample_weight.dtype}. Make the metric with "
                "dtype='float32' for weights that are not whole."
            )
    ones = jnp.ones(labels.shape, metric.dtype)
    weight, mask = merge_weights(ones, sample_weight, mask)
    weights = ones if weight is None else ones * weight
    if mask is not None:
        weights = jnp.where(mask, weights, jnp.zeros_like(weights))
    if ignore_class is not None:
        weights = jnp.where(labels == ignore_class, jnp.zeros_like(weights), weights)
    return exact.add(state, {_TABLE: confusion_table(labels, found, weights, classes)})


class _Overlap(Metric):
    """What the metrics of this module share: the table of classes."""

    dtype: OptionalDTypeName = option(default=None, convert=_counter, kw_only=True)

    @property
    def _number(self) -> int:
        metric: Any = self  # each subclass but BinaryIoU declares the field `num_classes`
        return metric.num_classes

    def init(self, y_pred: Any = None) -> State:
        return exact.zeros([_TABLE], (self._number, self._number), self.dtype)

    def result(self, state: State) -> jax.Array:
        table = exact.as_float(state, _TABLE)
        return mean_overlap(table, getattr(self, "target_class_ids", range(self._number)))


def _numbers(y: Any, sparse: bool, axis: int) -> jax.Array:
    y = as_operand(y, "y_true or y_pred")
    return (y if sparse else jnp.argmax(y, axis=axis)).astype("int32")


def _check_ids(metric: Any) -> None:
    wrong = [c for c in metric.target_class_ids if not 0 <= c < metric.num_classes]
    if wrong:
        raise ValueError(
            f"{type(metric).__name__}: target_class_ids: expected numbers of the "
            f"{metric.num_classes} classes (0..{metric.num_classes - 1}), received {wrong[0]}. "
            "Correct it, or raise num_classes."
        )


class IoU(_Overlap):
    """true positives / (true positives + false positives + false negatives), mean over classes.

    Counts are int32, so weights must be whole numbers unless `dtype` is a float; Keras cuts the
    fractions of other weights off.

    Args:
        num_classes: how many classes there are.
        target_class_ids: the classes of the mean; those that do not occur are left out.
        dtype: the dtype of the counts.
        ignore_class: a class number whose samples do not count.
        sparse_y_true: whether targets are class numbers, not one number a class.
        sparse_y_pred: whether predictions are class numbers, not one number a class.
        axis: the class axis of what is not sparse.
        Other arguments: those of `Metric`.

    Raises:
        ValueError: for a class that `num_classes` excludes; for weights that are not whole
            while the counts are.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.IoU(num_classes=2, target_class_ids=[0])
        >>> metric.result(metric.update(metric.init(), [0, 0, 1, 1], [0, 1, 0, 1])).round(4)
        Array(0.3333, dtype=float32)
    """

    name: str | None = option(default="io_u", convert=text(optional=True), kw_only=True)
    num_classes: Integer = option(convert=integer(minimum=1))
    target_class_ids: Integers = option(convert=several(integer(), "class numbers such as [0, 2]"))
    ignore_class: OptionalInteger = option(
        default=None, convert=integer(optional=True), kw_only=True
    )
    sparse_y_true: bool = option(default=True, convert=boolean, kw_only=True)
    sparse_y_pred: bool = option(default=True, convert=boolean, kw_only=True)
    axis: Integer = option(default=-1, convert=integer(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ids(self)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        labels = _numbers(y_true, self.sparse_y_true, self.axis)
        found = _numbers(y_pred, self.sparse_y_pred, self.axis)
        return _add(
            self, state, labels, found, sample_weight, mask, self.num_classes, self.ignore_class
        )


class BinaryIoU(_Overlap):
    """The mean of intersection / union of the classes 0 and 1, told apart by a threshold.

    Args:
        target_class_ids: the classes of the mean: 0, 1 or both.
        threshold: from which score on a prediction is 1.
        Other arguments: those of `IoU`.

    Raises:
        ValueError: for a class other than 0 and 1; for weights as in `IoU`.

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

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        found = (as_operand(y_pred, "y_pred").astype("float32") >= self.threshold).astype("int32")
        labels = as_operand(y_true, "y_true").astype("int32")
        return _add(self, state, labels, found, sample_weight, mask, 2)


class MeanIoU(_Overlap):
    """The mean of intersection / union over all classes that occur.

    Args:
        Arguments: those of `IoU`.

    Raises:
        ValueError: for `num_classes` below 1; for weights as in `IoU`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.MeanIoU(num_classes=2)
        >>> metric.result(metric.update(metric.init(), [0, 0, 1, 1], [0, 1, 0, 1])).round(4)
        Array(0.3333, dtype=float32)
    """

    name: str | None = option(default="mean_io_u", convert=text(optional=True), kw_only=True)
    num_classes: Integer = option(convert=integer(minimum=1))
    ignore_class: OptionalInteger = option(
        default=None, convert=integer(optional=True), kw_only=True
    )
    sparse_y_true: bool = option(default=True, convert=boolean, kw_only=True)
    sparse_y_pred: bool = option(default=True, convert=boolean, kw_only=True)
    axis: Integer = option(default=-1, convert=integer(), kw_only=True)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        labels = _numbers(y_true, self.sparse_y_true, self.axis)
        found = _numbers(y_pred, self.sparse_y_pred, self.axis)
        return _add(
            self, state, labels, found, sample_weight, mask, self.num_classes, self.ignore_class
        )


class OneHotIoU(_Overlap):
    """The mean over classes of intersection / union: `IoU` for targets with one number a class.

    Args:
        axis: the class axis.
        Other arguments: those of `IoU`.

    Raises:
        ValueError: for a class that `num_classes` excludes; for weights as in `IoU`.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.OneHotIoU(num_classes=2, target_class_ids=[0])
        >>> y_true, y_pred = [[1, 0], [1, 0], [0, 1]], [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
        >>> metric.result(metric.update(metric.init(), y_true, y_pred)).round(4)
        Array(0.5, dtype=float32)
    """

    name: str | None = option(default="one_hot_io_u", convert=text(optional=True), kw_only=True)
    num_classes: Integer = option(convert=integer(minimum=1))
    target_class_ids: Integers = option(convert=several(integer(), "class numbers such as [0, 2]"))
    ignore_class: OptionalInteger = option(
        default=None, convert=integer(optional=True), kw_only=True
    )
    sparse_y_pred: bool = option(default=False, convert=boolean, kw_only=True)
    axis: Integer = option(default=-1, convert=integer(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_ids(self)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        labels = _numbers(y_true, False, self.axis)
        found = _numbers(y_pred, self.sparse_y_pred, self.axis)
        return _add(
            self, state, labels, found, sample_weight, mask, self.num_classes, self.ignore_class
        )


class OneHotMeanIoU(_Overlap):
    """The mean of intersection / union over all classes, for targets with one number a class.

    Args:
        axis: the class axis.
        Other arguments: those of `IoU`.

    Raises:
        ValueError: for `num_classes` below 1; for weights as in `IoU`.

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
    num_classes: Integer = option(convert=integer(minimum=1))
    ignore_class: OptionalInteger = option(
        default=None, convert=integer(optional=True), kw_only=True
    )
    sparse_y_pred: bool = option(default=False, convert=boolean, kw_only=True)
    axis: Integer = option(default=-1, convert=integer(), kw_only=True)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None, mask: Any = None
    ) -> State:
        labels = _numbers(y_true, False, self.axis)
        found = _numbers(y_pred, self.sparse_y_pred, self.axis)
        return _add(
            self, state, labels, found, sample_weight, mask, self.num_classes, self.ignore_class
        )


METRICS = (
    named(IoU, "io_u"),
    named(BinaryIoU, "binary_io_u"),
    named(MeanIoU, "mean_io_u"),
    named(OneHotIoU, "one_hot_io_u"),
    named(OneHotMeanIoU, "one_hot_mean_io_u"),
)
