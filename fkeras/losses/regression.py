"""Losses of numbers that are predicted: differences, distances and angles."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config import option
from fkeras.losses.loss import Loss
from fkeras.losses.reducing import align_pair

EPSILON = 1e-7


def widened(x: jax.Array) -> jax.Array:
    """Numbers as float32, or as float64 where they are: 16 bits have no room for squares or 1e-7.

    Example:
        >>> import jax.numpy as jnp
        >>> widened(jnp.ones(2, "bfloat16")).dtype
        dtype('float32')
    """
    wide = jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits >= 32
    return x if wide else x.astype("float32")


def floats(y_true: Any, y_pred: Any) -> tuple[jax.Array, jax.Array]:
    """Both in the predictions' dtype, at least float32, and with the same number of axes."""
    y_true, y_pred = align_pair(y_true, y_pred)
    y_pred = widened(y_pred)
    return y_true.astype(y_pred.dtype), y_pred


def mean_squared_error(y_true: Any, y_pred: Any) -> jax.Array:
    """mean((y_true - y_pred)**2) over the last axis.

    Args:
        y_true: targets, (b, ..., d).
        y_pred: predictions, (b, ..., d).

    Returns:
        The losses of samples, (b, ...). So do all functions of this module.

    Example:
        >>> import jax.numpy as jnp
        >>> mean_squared_error(jnp.zeros((1, 2)), jnp.array([[1.0, 3.0]]))
        Array([5.], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(jnp.square(y_true - y_pred), axis=-1)


def mean_absolute_error(y_true: Any, y_pred: Any) -> jax.Array:
    """mean(|y_true - y_pred|) over the last axis."""
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> jax.Array:
    """100 * mean(|y_true - y_pred| / |y_true|) over the last axis, |y_true| at least 1e-7."""
    y_true, y_pred = floats(y_true, y_pred)
    relative = jnp.abs((y_true - y_pred) / jnp.maximum(jnp.abs(y_true), EPSILON))
    return 100.0 * jnp.mean(relative, axis=-1)


def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> jax.Array:
    """mean((log(y_true + 1) - log(y_pred + 1))**2) over the last axis, both at least 1e-7."""
    y_true, y_pred = floats(y_true, y_pred)
    log_true = jnp.log(jnp.maximum(y_true, EPSILON) + 1.0)
    log_pred = jnp.log(jnp.maximum(y_pred, EPSILON) + 1.0)
    return jnp.mean(jnp.square(log_pred - log_true), axis=-1)


def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> jax.Array:
    """mean(e**2 / 2 where |e| <= delta, else delta * |e| - delta**2 / 2) for e = y_pred - y_true.

    Args:
        y_true: targets.
        y_pred: predictions.
        delta: where the square becomes a line.
    """
    y_true, y_pred = floats(y_true, y_pred)
    error = jnp.abs(y_pred - y_true)
    # one branch and the other meet in value and slope; min keeps large squares out of the gradient
    small = jnp.minimum(error, delta)
    return jnp.mean(0.5 * jnp.square(small) + delta * (error - small), axis=-1)


def log_cosh(y_true: Any, y_pred: Any) -> jax.Array:
    """mean(log(cosh(y_pred - y_true))) over the last axis, without overflow."""
    y_true, y_pred = floats(y_true, y_pred)
    error = y_pred - y_true
    return jnp.mean(error + jax.nn.softplus(-2.0 * error) - math.log(2.0), axis=-1)


def unit_vectors(x: jax.Array, axis: int) -> jax.Array:
    """Vectors scaled to length 1 along `axis`; a zero vector stays, with finite gradients."""
    square = jnp.sum(jnp.square(x), axis=axis, keepdims=True)
    return x * jax.lax.rsqrt(jnp.maximum(square, EPSILON**2))


def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> jax.Array:
    """-cos of the angle between y_true and y_pred: -1 for the same direction.

    Args:
        y_true: targets.
        y_pred: predictions.
        axis: the axis of the vectors.
    """
    y_true, y_pred = floats(y_true, y_pred)
    return -jnp.sum(unit_vectors(y_true, axis) * unit_vectors(y_pred, axis), axis=axis)


class MeanSquaredError(Loss):
    """`mean_squared_error` as a loss. The further arguments are those of `Loss`.

    Example:
        >>> MeanSquaredError()([[0.0], [0.0]], [[1.0], [3.0]])
        Array(5., dtype=float32)
    """

    targets: ClassVar[str] = "values"
    name: str | None = option("mean_squared_error", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return mean_squared_error(y_true, y_pred)


class MeanAbsoluteError(Loss):
    """`mean_absolute_error` as a loss. The further arguments are those of `Loss`.

    Example:
        >>> MeanAbsoluteError()([[0.0], [0.0]], [[1.0], [3.0]])
        Array(2., dtype=float32)
    """

    targets: ClassVar[str] = "values"
    name: str | None = option("mean_absolute_error", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return mean_absolute_error(y_true, y_pred)


class MeanAbsolutePercentageError(Loss):
    """`mean_absolute_percentage_error` as a loss. The further arguments are those of `Loss`."""

    targets: ClassVar[str] = "values"
    name: str | None = option("mean_absolute_percentage_error", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return mean_absolute_percentage_error(y_true, y_pred)


class MeanSquaredLogarithmicError(Loss):
    """`mean_squared_logarithmic_error` as a loss. The further arguments are those of `Loss`."""

    targets: ClassVar[str] = "values"
    name: str | None = option("mean_squared_logarithmic_error", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return mean_squared_logarithmic_error(y_true, y_pred)


class Huber(Loss):
    """`huber` as a loss. The further arguments are those of `Loss`.

    Args:
        delta: where the square becomes a line.

    Example:
        >>> Huber()([[0.0], [0.0]], [[1.0], [3.0]])
        Array(1.5, dtype=float32)
    """

    targets: ClassVar[str] = "values"
    delta: float = option(1.0)
    name: str | None = option("huber_loss", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return huber(y_true, y_pred, self.delta)


class LogCosh(Loss):
    """`log_cosh` as a loss. The further arguments are those of `Loss`."""

    targets: ClassVar[str] = "values"
    name: str | None = option("log_cosh", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return log_cosh(y_true, y_pred)


class CosineSimilarity(Loss):
    """`cosine_similarity` as a loss. The further arguments are those of `Loss`.

    Args:
        axis: the axis of the vectors.
    """

    targets: ClassVar[str] = "values"
    axis: int = option(-1)
    name: str | None = option("cosine_similarity", kw_only=True)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return cosine_similarity(y_true, y_pred, self.axis)
