"""Margin losses: the score of the true class should exceed the others by 1."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import text
from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.registry import named
from fkeras.losses.checks import reject_class_numbers
from fkeras.losses.loss import FunctionLoss
from fkeras.losses.regression import floats
from fkeras.nn.cpu.extremes import largest


def _signs(y_true: jax.Array) -> jax.Array:
    # Keras maps targets that are all 0 or 1 to -1 and 1; NaN and infinity, which removed samples
    # may hold, must not change this decision
    binary = jnp.all((y_true == 0) | (y_true == 1) | ~jnp.isfinite(y_true))
    return jnp.where(binary, 2.0 * y_true - 1.0, y_true)


def hinge(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns mean(max(1 - y_true * y_pred, 0)) over the last axis.

    Args:
        y_true: -1 or 1, (b, ..., d); if all targets are 0 or 1, 0 means -1.
        y_pred: scores, (b, ..., d).

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.hinge([[-1.0, 1.0]], [[0.5, 0.5]])
        Array([1.], dtype=float32)

    References:
        Cortes and Vapnik 1995, Support-vector networks, https://doi.org/10.1007/BF00994018
    """
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(jnp.maximum(1.0 - _signs(y_true) * y_pred, 0.0), axis=-1)


def squared_hinge(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns mean(max(1 - y_true * y_pred, 0)**2) over the last axis.

    Args:
        y_true: -1 or 1, (b, ..., d); if all targets are 0 or 1, 0 means -1.
        y_pred: scores, (b, ..., d).

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.squared_hinge([[-1.0, 1.0]], [[0.5, 0.5]])
        Array([1.25], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(jnp.square(jnp.maximum(1.0 - _signs(y_true) * y_pred, 0.0)), axis=-1)


def categorical_hinge(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns max(highest wrong score - true score + 1, 0) for one-hot targets.

    Args:
        y_pred: scores, (b, ..., classes). The highest wrong score counts as at least 0.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.categorical_hinge([[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.75], [0.0, 2.0]])
        Array([0.75, 3.  ], dtype=float32)

    References:
        Crammer and Singer 2001, On the algorithmic implementation of multiclass kernel-based
        vector machines, https://www.jmlr.org/papers/v2/crammer01a.html
    """
    y_true, y_pred = floats(y_true, y_pred)
    reject_class_numbers("categorical_hinge", y_true, y_pred.shape)
    true_score = jnp.sum(y_true * y_pred, axis=-1)
    # as in Keras, the true class stays in the maximum as 0
    wrong_score = largest((1.0 - y_true) * y_pred, axis=-1)
    return jnp.maximum(wrong_score - true_score + 1.0, 0.0)


class Hinge(FunctionLoss):
    """Mean of max(1 - y_true * y_pred, 0).

    Targets are -1 or 1, or 0 or 1.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.Hinge()([[-1.0], [1.0]], [[0.5], [0.75]])
        Array(0.875, dtype=float32)
    """

    _function = staticmethod(hinge)
    _targets: ClassVar[str] = "values"
    name: str | None = option(default="hinge", convert=text(optional=True), kw_only=True)


class SquaredHinge(FunctionLoss):
    """Mean of max(1 - y_true * y_pred, 0)**2.

    Targets are -1 or 1, or 0 or 1.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.SquaredHinge()([[-1.0], [1.0]], [[0.5], [0.5]])
        Array(1.25, dtype=float32)
    """

    _function = staticmethod(squared_hinge)
    _targets: ClassVar[str] = "values"
    name: str | None = option(default="squared_hinge", convert=text(optional=True), kw_only=True)


class CategoricalHinge(FunctionLoss):
    """Mean of max(highest wrong score - true score + 1, 0).

    Targets are one-hot.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.CategoricalHinge()([[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.75], [0.0, 2.0]])
        Array(1.875, dtype=float32)
    """

    _function = staticmethod(categorical_hinge)
    _targets: ClassVar[str] = "one_hot"
    name: str | None = option(
        default="categorical_hinge", convert=text(optional=True), kw_only=True
    )


LOSSES = (
    named(Hinge, function=hinge),
    named(SquaredHinge, function=squared_hinge),
    named(CategoricalHinge, function=categorical_hinge),
)
