"""Segmentation losses: overlap of predicted and true regions, also with the cross-entropy."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import axes, boolean, real, text
from fkeras.engine.config.field_types import OptionalAxes, Real
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses import checks
from fkeras.losses.checks import check_call
from fkeras.losses.crossentropy import binary_values, class_numbers, log_probabilities
from fkeras.losses.loss import FunctionLoss
from fkeras.losses.reducing import check_axis, divide_no_nan
from fkeras.losses.regression import floats, widened
from fkeras.nn.numerics.indices import valid_indices
from fkeras.nn.numerics.stable import EPSILON

_Axes = int | tuple[int, ...] | None


def dice(y_true: Numbers, y_pred: Numbers, axis: _Axes = None) -> jax.Array:
    """Returns 1 - 2 * sum(y * p) / (sum(y) + sum(p) + 1e-7).

    Args:
        y_true: 0 or 1, any shape.
        y_pred: probabilities of 1, the same shape.
        axis: the axis or axes of the sums; None for all axes, which gives a scalar.

    Returns:
        The losses, with the remaining axes.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.dice([1.0, 1.0], [1.0, 0.0]).round(4)
        Array(0.3333, dtype=float32)

    References:
        Milletari et al. 2016, V-Net, https://arxiv.org/abs/1606.04797
    """
    y_true, y_pred = floats(y_true, y_pred)
    check_axis("dice", axis, y_pred)
    intersection = jnp.sum(y_true * y_pred, axis=axis)
    # EPSILON only avoids 0 / 0: as in Keras, the loss of two empty regions is 1
    return 1.0 - 2.0 * intersection / (
        jnp.sum(y_true, axis=axis) + jnp.sum(y_pred, axis=axis) + EPSILON
    )


def tversky(
    y_true: Numbers, y_pred: Numbers, alpha: float = 0.5, beta: float = 0.5, axis: _Axes = None
) -> jax.Array:
    """Returns the Tversky loss.

    The loss is 1 - hits / (hits + alpha * sum(y * (1 - p)) + beta * sum((1 - y) * p) + 1e-7) for
    hits = sum(y * p).

    Args:
        y_true: 0 or 1, any shape.
        y_pred: probabilities of 1, the same shape.
        alpha: weight of the false negatives. Keras's documentation says false positives, but its
            code computes the same as here.
        beta: weight of the false positives.
        axis: the axis or axes of the sums; None for all axes, which gives a scalar.

    Returns:
        The losses, with the remaining axes.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.tversky([1.0, 1.0], [1.0, 0.0], alpha=1.0).round(4)
        Array(0.5, dtype=float32)

    References:
        Salehi et al. 2017, Tversky loss function for image segmentation,
        https://arxiv.org/abs/1706.05721
    """
    y_true, y_pred = floats(y_true, y_pred)
    check_axis("tversky", axis, y_pred)
    intersection = jnp.sum(y_true * y_pred, axis=axis)
    false_negatives = jnp.sum(y_true * (1.0 - y_pred), axis=axis)
    # soft counts: for probabilities of 0 and 1 these are the false positives
    false_positives = jnp.sum((1.0 - y_true) * y_pred, axis=axis)
    return 1.0 - intersection / (
        intersection + alpha * false_negatives + beta * false_positives + EPSILON
    )


def dice_crossentropy(
    y_true: Numbers,
    y_pred: Numbers,
    from_logits: bool = False,
    dice_weight: float = 1.0,
    smooth: float = 1e-5,
) -> jax.Array:
    """Returns the cross-entropy plus `dice_weight` times the Dice loss of each image.

    The Dice loss of an image is 1 - mean((2 * sum(y * p) + smooth) / (sum(y) + sum(p) + smooth)), with
    sums over the positions and the mean over the classes. The cross-entropy is a mean over positions.

    Args:
        y_true: class numbers, (b, ...) or (b, ..., 1), or one-hot targets, (b, ..., classes); for one
            class, 0 or 1. The loss of an invalid class number is NaN.
        y_pred: probabilities or logits of each position, (b, ..., classes); with one class, of
            the foreground.
        from_logits: whether `y_pred` are logits (before the softmax, or the sigmoid for one class).
        dice_weight: factor of the Dice loss.
        smooth: added to both parts of the quotient: the Dice loss of a class that neither targets nor
            predictions have is 0.

    Returns:
        The losses of images, (b,).

    Raises:
        ValueError: if the shapes do not fit.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.dice_crossentropy([[1, 0]], [[[0.0, 1.0], [1.0, 0.0]]]).round(4)
        Array([0.], dtype=float32)

    References:
        Isensee et al. 2021, nnU-Net, https://doi.org/10.1038/s41592-020-01008-z
    """
    y_true, y_pred = as_operand(y_true, "y_true"), widened(as_operand(y_pred, "y_pred"))
    if y_pred.ndim < 2:
        raise ValueError(
            f"dice_crossentropy: expected predictions (b, ..., classes), received shape {y_pred.shape}. "
            "Add an axis for the classes: y_pred[..., None]."
        )
    positions, classes = tuple(range(1, y_pred.ndim - 1)), y_pred.shape[-1]
    if classes == 1:
        y_true = y_true[..., None] if y_true.ndim == y_pred.ndim - 1 else y_true
        check_call("dice_crossentropy", y_true, y_pred)
        y_true = y_true.astype(y_pred.dtype)
        entropy = binary_values(y_true, y_pred, from_logits)[..., 0]
        shares = jax.nn.sigmoid(y_pred) if from_logits else y_pred
    else:
        y_true = _one_hot(y_true, y_pred)
        logs = log_probabilities(y_pred, from_logits, -1)
        entropy = -jnp.sum(jnp.where(y_true == 0, 0.0, y_true * logs), axis=-1)
        shares = jnp.exp(logs)
    overlap = 2.0 * jnp.sum(y_true * shares, axis=positions) + smooth
    areas = jnp.sum(y_true, axis=positions) + jnp.sum(shares, axis=positions) + smooth
    mean_dice = jnp.mean(1.0 - divide_no_nan(overlap, areas), axis=-1)
    return jnp.mean(entropy, axis=positions) + dice_weight * mean_dice


def _one_hot(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    """Returns one-hot targets of the predictions' shape, NaN for an invalid class number."""
    classes = y_pred.shape[-1]
    if y_true.ndim == y_pred.ndim and y_true.shape[-1] != 1:
        check_call("dice_crossentropy", y_true, y_pred)
        return y_true.astype(y_pred.dtype)
    numbers = class_numbers(y_true, y_pred, -1, "dice_crossentropy")
    labels, valid = valid_indices(numbers, classes)
    one_hot = jax.nn.one_hot(labels, classes, dtype=y_pred.dtype)
    return jnp.where(jnp.expand_dims(valid, -1), one_hot, jnp.nan)


class Dice(FunctionLoss):
    """Mean Dice loss, 1 - 2 * sum(y * p) / (sum(y) + sum(p) + 1e-7), over the remaining axes.

    Args:
        axis: the axis or axes of the sums, such as (1, 2, 3) for one loss per image; None for one
            loss of the whole batch.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.Dice(axis=1)([[1.0, 1.0], [1.0, 0.0]], [[1.0, 1.0], [0.0, 1.0]]).round(4)
        Array(0.5, dtype=float32)

    References:
        Milletari et al. 2016, V-Net, https://arxiv.org/abs/1606.04797
    """

    _positional: ClassVar[tuple[str, ...]] = ("reduction", "name", "axis", "dtype")

    _function = staticmethod(dice)
    _targets: ClassVar[str] = "values"
    axis: OptionalAxes = option(default=None, convert=axes(optional=True), kw_only=True)
    name: str | None = option(default="dice", convert=text(optional=True), kw_only=True)


class Tversky(FunctionLoss):
    """Tversky loss: 1 - tp / (tp + alpha * false negatives + beta * false positives).

    Args:
        alpha: weight of the false negatives.
        beta: weight of the false positives.
        axis: the axis or axes of the sums; None for one loss of the whole batch.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.Tversky(alpha=1.0)([[1.0, 1.0]], [[1.0, 0.0]]).round(4)
        Array(0.5, dtype=float32)

    References:
        Salehi et al. 2017, Tversky loss function for image segmentation,
        https://arxiv.org/abs/1706.05721
    """

    _positional: ClassVar[tuple[str, ...]] = ("reduction", "name", "axis", "dtype")

    _function = staticmethod(tversky)
    _targets: ClassVar[str] = "values"
    alpha: Real = option(default=0.5, convert=real(minimum=0))
    beta: Real = option(default=0.5, convert=real(minimum=0))
    axis: OptionalAxes = option(default=None, convert=axes(optional=True), kw_only=True)
    name: str | None = option(default="tversky", convert=text(optional=True), kw_only=True)


class DiceCrossentropy(FunctionLoss):
    """Mean over images of the cross-entropy plus `dice_weight` times the Dice loss.

    Args:
        from_logits: whether predictions are logits (before the softmax, or the sigmoid for one class).
        dice_weight: factor of the Dice loss, 0 or more.
        smooth: added to both parts of the quotient of the Dice loss, above 0.

    Raises:
        ValueError: in calls, if the targets are neither class numbers nor one-hot.

    Example:
        >>> import fkeras as fk, jax.numpy as jnp
        >>> fk.losses.DiceCrossentropy(from_logits=True)([[1, 0]], jnp.zeros((1, 2, 2))).round(4)
        Array(1.1931, dtype=float32)

    References:
        Isensee et al. 2021, nnU-Net, https://doi.org/10.1038/s41592-020-01008-z
    """

    _function = staticmethod(dice_crossentropy)
    from_logits: bool = option(default=False, convert=boolean)
    dice_weight: Real = option(default=1.0, convert=real(minimum=0))
    smooth: Real = option(default=1e-5, convert=real(above=0))
    name: str | None = option(
        default="dice_crossentropy", convert=text(optional=True), kw_only=True
    )

    def check_targets(self, y_true: Numbers, y_pred: HasShape) -> None:
        labels, shape = np.asarray(y_true), tuple(y_pred.shape)
        if shape[-1] == 1:
            checks.check_targets("binary", self._label, labels, shape)
        elif labels.ndim < len(shape) or labels.shape[-1] == 1:
            checks.check_labels(self._label, labels, shape)
        else:
            checks.check_targets("values", self._label, labels, shape)


LOSSES = (
    named(DiceCrossentropy, function=dice_crossentropy),
    named(Dice, function=dice),
    named(Tversky, function=tversky),
)
