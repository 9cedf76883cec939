"""Segmentation losses: overlap of predicted and true regions."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import axes, real, text
from fkeras.engine.config.field_types import OptionalAxes, Real
from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.registry import named
from fkeras.losses.loss import FunctionLoss
from fkeras.losses.reducing import check_axis
from fkeras.losses.regression import floats
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


LOSSES = (
    named(Dice, function=dice),
    named(Tversky, function=tversky),
)
