"""Losses of margins: the score of the right side should lead by 1."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config import option
from fkeras.losses.loss import Loss
from fkeras.losses.regression import floats


def _signs(y_true: jax.Array) -> jax.Array:
    # Keras reads targets that are all 0 or 1 as the classes -1 and 1
    binary = jnp.all((y_true == 0) | (y_true == 1))
    return jnp.where(binary, 2.0 * y_true - 1.0, y_true)


def hinge(y_true: Any, y_pred: Any) -> jax.Array:
    """mean(max(1 - y_true * y_pred, 0)) over the last axis.

    Args:
        y_true: -1 or 1; where all are 0 or 1, 0 means -1.
        y_pred: scores.

    Returns:
        The losses of samples, (b, ...). So do all functions of this module.

    Example:
        >>> import jax.numpy as jnp
        >>> hinge(jnp.array([[-1.0, 1.0]]), jnp.array([[0.5, 0.5]]))
        Array([1.], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(jnp.maximum(1.0 - _signs(y_true) * y_pred, 0.0), axis=-1)


def squared_hinge(y_true: Any, y_pred: Any) -> jax.Array:
    """mean(max(1 - y_true * y_pred, 0)**2) over the last axis; targets as in `hinge`."""
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(jnp.square(jnp.maximum(1.0 - _signs(y_true) * y_pred, 0.0)), axis=-1)


def categorical_hinge(y_true: Any, y_pred: Any) -> jax.Array:
    """max(best wrong score - right score + 1, 0) for one-hot targets."""
    y_true, y_pred = floats(y_true, y_pred)
    right = jnp.sum(y_true * y_pred, axis=-1)
    wrong = jnp.max((1.0 - y_true) * y_pred, axis=-1)
    return jnp.maximum(wrong - right + 1.0, 0.0)


class Hinge(Loss):
    """`hinge` as a loss. The further arguments are those of `Loss`."""

    targets: ClassVar[str] = "values"
    name: str | None = option("hinge", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return hinge(y_true, y_pred)


class SquaredHinge(Loss):
    """`squared_hinge` as a loss. The further arguments are those of `Loss`."""

    targets: ClassVar[str] = "values"
    name: str | None = option("squared_hinge", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return squared_hinge(y_true, y_pred)


class CategoricalHinge(Loss):
    """`categorical_hinge` as a loss. The further arguments are those of `Loss`."""

    targets: ClassVar[str] = "one_hot"
    name: str | None = option("categorical_hinge", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return categorical_hinge(y_true, y_pred)
