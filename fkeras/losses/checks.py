"""Checks of targets: their values on the host before tracing, and their shapes in each call.

A compiled function cannot raise for a label out of range: the loss is NaN, and no message names
the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fkeras.engine.values.argument_types import HasShape
from fkeras.nn.numerics.axes import may_equal

# limit above which a label is taken for a mistake, not for the number of a class
_MOST = 1 << 20


def check_targets(kind: str, where: str, y_true: np.ndarray, shape: Sequence[Any]) -> None:
    """Checks that `y_true` are valid targets of a kind for predictions of this shape.

    Args:
        kind: "any", no check; "values", finite numbers of the predictions' shape; "binary", as
            "values", and integers must be 0 or 1; "counts", as "values", and 0 or more; "one_hot",
            as "values", and class numbers are rejected with a hint.
        shape: the predictions' shape; a size that is not an integer is unknown.
    """
    if kind == "any":
        return
    check_finite(where, y_true)
    if kind == "one_hot":
        reject_class_numbers(where, y_true, shape)
    if kind == "binary":
        _check_binary(where, y_true, shape)
    if kind == "counts":
        _check_counts(where, y_true)
    _check_same_shape(where, y_true, shape)


def check_finite(where: str, y_true: np.ndarray) -> None:
    """Checks that all targets are finite; the error names the first row that is not."""
    # "V" are the dtypes of ml_dtypes, such as bfloat16
    if y_true.dtype.kind not in "fcV" or np.all(np.isfinite(y_true)):
        return
    position = np.argwhere(~np.isfinite(np.asarray(y_true, "float64")))[0]
    value = float(y_true[tuple(position)])
    missing = " fk.losses.IgnoreMissing(loss) leaves out missing targets." * (value != value)
    raise ValueError(
        f"{where}, {_format_position(position)}: expected finite targets, received {value}. Drop rows "
        f"with such values, or give them a sample_weight of 0.{missing}"
    )


def check_labels(
    where: str,
    y_true: np.ndarray,
    shape: Sequence[Any],
    axis: int = -1,
    ignore_class: int | None = None,
) -> None:
    """Checks that `y_true` are valid class numbers for predictions of this shape.

    Args:
        y_true: class numbers of the predictions' shape, the class axis dropped or of size 1.
    """
    check_finite(where, y_true)
    axis = axis % len(shape)
    classes = shape[axis]
    if _same(y_true.shape, shape) and y_true.shape[axis] != 1:
        raise ValueError(
            f"{where}: expected class numbers of shape {_format_shape(_without(shape, axis))}, received "
            f"one-hot targets of shape {y_true.shape} for {classes} classes. Use "
            "'categorical_crossentropy' for one-hot targets, or pass labels.argmax(-1)."
        )
    label_shape, keepdims_shape = _without(shape, axis), (*shape[:axis], 1, *shape[axis + 1 :])
    if not _same(y_true.shape, label_shape) and not _same(y_true.shape, keepdims_shape):
        raise ValueError(
            f"{where}: expected class numbers of shape {_format_shape(label_shape)}, received targets of "
            f"shape {y_true.shape}; the predictions have shape {_format_shape(shape)}. Give one class "
            "number for each prediction."
        )
    if isinstance(classes, int):
        check_range(where, y_true, classes, ignore_class)


def check_range(where: str, y_true: np.ndarray, classes: int, ignore: int | None) -> None:
    """Checks that class numbers are in 0, ..., classes - 1, or equal `ignore`."""
    with np.errstate(invalid="ignore"):  # floats beyond int64 overflow to an invalid class
        labels = y_true.astype("int64")
    invalid = (labels < 0) | (labels >= classes) | (labels != y_true)
    if ignore is not None:
        invalid &= y_true != ignore
    if not np.any(invalid):
        return
    position = np.argwhere(invalid)[0]
    value = y_true[tuple(position)].item()
    counted_labels = labels if ignore is None else labels[y_true != ignore]
    # the order matters: the first condition that holds is the most likely mistake
    if not -_MOST < value < _MOST:
        remedy = f"Correct the label, or map the labels to 0..{classes - 1}."
    elif value != int(value):
        remedy = "Class numbers are integers; for continuous targets use 'mean_squared_error'."
    elif classes == 1:
        remedy = "For two classes and one output use 'binary_crossentropy'."
    elif counted_labels.min() == 1 and counted_labels.max() == classes:
        remedy = "The labels count from 1: subtract 1."
    elif value < 0:
        remedy = f"If {value} marks samples without a class, pass ignore_class={value} to the loss."
    else:
        largest_label = int(counted_labels[counted_labels < _MOST].max())
        remedy = f"Correct the label, or give the output layer {largest_label + 1} units."
    raise ValueError(
        f"{where}, {_format_position(position)}: label {value}, but the model's output has {classes} "
        f"{'class' if classes == 1 else 'classes'} (0..{classes - 1}). {remedy}"
    )


def check_call(where: str, y_true: HasShape, y_pred: HasShape, sparse: str | None = None) -> None:
    """Checks that targets have the predictions' shape; both may be traced.

    Args:
        sparse: name of the function for class numbers, if the targets are one-hot.
    """
    true, shape = tuple(y_true.shape), tuple(y_pred.shape)
    if sparse is not None:
        reject_class_numbers(where, y_true, shape, sparse)
    if not may_equal(true, shape):
        raise ValueError(
            f"{where}: expected targets of the predictions' shape {shape}, received {true}. Reshape "
            "the targets; for equal targets of all samples use jnp.broadcast_to."
        )


def reject_class_numbers(
    where: str,
    y_true: HasShape,
    shape: Sequence[Any],
    sparse: str = "sparse_categorical_crossentropy",
) -> None:
    """Rejects targets with the shape of class numbers where one-hot targets are expected."""
    # class numbers for a one-hot loss may broadcast to a wrong loss without an error
    label_shape = _without(shape, len(shape) - 1)
    are_labels = _same(y_true.shape, label_shape) or _same(y_true.shape, (*label_shape, 1))
    if are_labels and len(shape) > 1 and shape[-1] != 1:
        raise ValueError(
            f"{where}: expected one-hot targets of shape {_format_shape(shape)}, received class numbers "
            f"of shape {y_true.shape}. For class numbers use "
            f"'{sparse}', or pass jax.nn.one_hot(labels, {shape[-1]})."
        )


def _check_binary(where: str, y_true: np.ndarray, shape: Sequence[Any]) -> None:
    # floats between 0 and 1 are soft labels, which the loss accepts
    if y_true.dtype.kind not in "iu":
        return
    invalid = (y_true < 0) | (y_true > 1)
    if not np.any(invalid):
        return
    position = np.argwhere(invalid)[0]
    raise ValueError(
        f"{where}, {_format_position(position)}: expected targets from 0 to 1, received "
        f"{y_true[tuple(position)]}. For class numbers use 'sparse_categorical_crossentropy' and "
        "an output with one unit per class; for classes -1 and 1 use 'hinge'."
    )


def _check_counts(where: str, y_true: np.ndarray) -> None:
    # the loss of a negative count has no minimum: predictions of 0 would be the best
    if np.any(y_true < 0):
        position = np.argwhere(y_true < 0)[0]
        raise ValueError(
            f"{where}, {_format_position(position)}: expected counts of 0 or more, received "
            f"{y_true[tuple(position)]}. For other targets use 'mean_squared_error'."
        )


def _check_same_shape(where: str, y_true: np.ndarray, shape: Sequence[Any]) -> None:
    # losses align a last axis of size 1, so accept both sides with or without it
    longer = (*y_true.shape, 1)
    if any(_same(t, p) for t in (y_true.shape, longer) for p in (shape, (*shape, 1))):
        return
    raise ValueError(
        f"{where}: expected targets of the predictions' shape {_format_shape(shape)}, received "
        f"{y_true.shape}. Reshape the targets, or change the last layer's units."
    )


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    # ignore the batch axis: predictions have the shape of a batch, targets of all the data
    return len(a) == len(b) and may_equal(a[1:], b[1:])


def _without(shape: Sequence[Any], axis: int) -> tuple[Any, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _format_shape(shape: Sequence[Any]) -> str:
    sizes = ["b", *(str(n) if isinstance(n, int) else "?" for n in shape[1:])]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _format_position(position: np.ndarray) -> str:
    if len(position) == 0:
        return "the target"
    inner_position = ", ".join(map(str, position[1:]))
    return f"row {position[0]}" + (f", place [{inner_position}]" if len(position) > 1 else "")
