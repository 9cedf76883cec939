"""Regression losses: squared, absolute, relative and logarithmic errors; cosine similarity."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import integer, real, text
from fkeras.engine.config.field_types import Integer, Real
from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.registry import named
from fkeras.losses.loss import FunctionLoss
from fkeras.losses.reducing import align_pair, check_axis, require_axis
from fkeras.nn.numerics.stable import EPSILON, unit_vectors


def widened(x: jax.Array) -> jax.Array:
    """Returns x as float32, or unchanged if x is float32 or float64.

    16-bit floats overflow on squares and cannot represent offsets of 1e-7.
    """
    is_wide = jnp.issubdtype(x.dtype, jnp.floating) and jnp.finfo(x.dtype).bits >= 32
    return x if is_wide else x.astype("float32")


def floats(y_true: Numbers, y_pred: Numbers) -> tuple[jax.Array, jax.Array]:
    """Returns targets and predictions with equal rank, in the predictions' dtype or float32."""
    y_true, y_pred = align_pair(y_true, y_pred)
    y_pred = widened(require_axis(y_pred))
    differs = [n != m and 1 not in (n, m) for n, m in zip(y_true.shape, y_pred.shape, strict=False)]
    if any(differs) and y_true.ndim == y_pred.ndim:
        raise ValueError(
            f"loss: expected targets of the shape of the predictions, {y_pred.shape}, received "
            f"{y_true.shape}. Give the targets this shape, or the last layer as many units."
        )
    # integer targets of regression losses become floats here, not in `Loss`
    return y_true.astype(y_pred.dtype), y_pred


def mean_squared_error(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns mean((y_true - y_pred)**2) over the last axis.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.mean_squared_error([[0.0, 0.0]], [[1.0, 3.0]])
        Array([5.], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(jnp.square(y_true - y_pred), axis=-1)


def mean_absolute_error(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns mean(|y_true - y_pred|) over the last axis.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.mean_absolute_error([[0.0, 0.0]], [[1.0, -3.0]])
        Array([2.], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


def mean_absolute_percentage_error(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns 100 * mean(|y_true - y_pred| / |y_true|) over the last axis, |y_true| at least 1e-7.

    Returns:
        The losses of samples in percent, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.mean_absolute_percentage_error([[2.0, 4.0]], [[1.0, 5.0]])
        Array([37.5], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    relative = jnp.abs((y_true - y_pred) / jnp.maximum(jnp.abs(y_true), EPSILON))
    return 100.0 * jnp.mean(relative, axis=-1)


def mean_squared_logarithmic_error(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns mean((log(y_true + 1) - log(y_pred + 1))**2) over the last axis, both at least 1e-7.

    Args:
        y_true: targets, (b, ..., d); values below 1e-7 count as 1e-7.
        y_pred: predictions, (b, ..., d), clipped likewise.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.mean_squared_logarithmic_error([[0.0, 1.0]], [[1.0, 1.0]]).round(4)
        Array([0.2402], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    log_true = jnp.log(jnp.maximum(y_true, EPSILON) + 1.0)
    log_pred = jnp.log(jnp.maximum(y_pred, EPSILON) + 1.0)
    return jnp.mean(jnp.square(log_pred - log_true), axis=-1)


def huber(y_true: Numbers, y_pred: Numbers, delta: float = 1.0) -> jax.Array:
    """Returns the mean Huber loss over the last axis.

    For the error e = y_pred - y_true the loss is e**2 / 2 where |e| <= delta, and
    delta * |e| - delta**2 / 2 elsewhere.

    Args:
        delta: error above which the loss is linear, above 0, in the unit of the targets.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.huber([[0.0], [0.0]], [[1.0], [3.0]])
        Array([0.5, 2.5], dtype=float32)

    References:
        Huber 1964, Robust estimation of a location parameter,
        https://doi.org/10.1214/aoms/1177703732
    """
    y_true, y_pred = floats(y_true, y_pred)
    error = jnp.abs(y_pred - y_true)
    # equals both branches without `where`; min keeps the overflow of large squares out of the
    # gradient
    clipped_error = jnp.minimum(error, delta)
    return jnp.mean(0.5 * jnp.square(clipped_error) + delta * (error - clipped_error), axis=-1)


def log_cosh(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns mean(log(cosh(y_pred - y_true))) over the last axis, without overflow.

    About error**2 / 2 for small errors and |error| - log(2) for large ones.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.log_cosh([[0.0], [0.0]], [[0.0], [1000.0]]).round(1)
        Array([  0. , 999.3], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    error = y_pred - y_true
    # log(cosh(e)) = e + softplus(-2 * e) - log(2), without the overflow of cosh
    return jnp.mean(error + jax.nn.softplus(-2.0 * error) - math.log(2.0), axis=-1)


def cosine_similarity(y_true: Numbers, y_pred: Numbers, axis: int = -1) -> jax.Array:
    """Returns the negative cosine of the angle between y_true and y_pred.

    -1 means the same direction: a loss is minimized.

    Args:
        y_true: targets, vectors along `axis`; a zero vector gives 0.
        y_pred: predictions, the same shape.
        axis: the axis of the vectors.

    Returns:
        Numbers from -1 to 1, without `axis`.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.cosine_similarity([[1.0, 0.0]], [[1.0, 1.0]]).round(4)
        Array([-0.7071], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    check_axis("cosine_similarity", axis, y_pred)
    return -jnp.sum(unit_vectors(y_true, axis) * unit_vectors(y_pred, axis), axis=axis)


class MeanSquaredError(FunctionLoss):
    """Mean of (y_true - y_pred)**2.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.MeanSquaredError()([[0.0], [0.0]], [[1.0], [3.0]])
        Array(5., dtype=float32)
    """

    _function = staticmethod(mean_squared_error)
    _targets: ClassVar[str] = "values"
    name: str | None = option(
        default="mean_squared_error", convert=text(optional=True), kw_only=True
    )


class MeanAbsoluteError(FunctionLoss):
    """Mean of |y_true - y_pred|.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.MeanAbsoluteError()([[0.0], [0.0]], [[1.0], [3.0]])
        Array(2., dtype=float32)
    """

    _function = staticmethod(mean_absolute_error)
    _targets: ClassVar[str] = "values"
    name: str | None = option(
        default="mean_absolute_error", convert=text(optional=True), kw_only=True
    )


class MeanAbsolutePercentageError(FunctionLoss):
    """Mean of 100 * |y_true - y_pred| / |y_true|, in percent.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.MeanAbsolutePercentageError()([[2.0], [4.0]], [[1.0], [5.0]])
        Array(37.5, dtype=float32)
    """

    _function = staticmethod(mean_absolute_percentage_error)
    _targets: ClassVar[str] = "values"
    name: str | None = option(
        default="mean_absolute_percentage_error", convert=text(optional=True), kw_only=True
    )


class MeanSquaredLogarithmicError(FunctionLoss):
    """Mean of (log(y_true + 1) - log(y_pred + 1))**2.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.MeanSquaredLogarithmicError()([[0.0], [1.0]], [[1.0], [1.0]]).round(4)
        Array(0.2402, dtype=float32)
    """

    _function = staticmethod(mean_squared_logarithmic_error)
    _targets: ClassVar[str] = "values"
    name: str | None = option(
        default="mean_squared_logarithmic_error", convert=text(optional=True), kw_only=True
    )


class Huber(FunctionLoss):
    """Mean Huber loss: quadratic for errors up to `delta`, linear above.

    Args:
        delta: error above which the loss is linear, above 0, in the unit of the targets.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.Huber()([[0.0], [0.0]], [[1.0], [3.0]])
        Array(1.5, dtype=float32)

    References:
        Huber 1964, Robust estimation of a location parameter,
        https://doi.org/10.1214/aoms/1177703732
    """

    _function = staticmethod(huber)
    _targets: ClassVar[str] = "values"
    delta: Real = option(default=1.0, convert=real(above=0))
    name: str | None = option(default="huber_loss", convert=text(optional=True), kw_only=True)


class LogCosh(FunctionLoss):
    """Mean of log(cosh(y_pred - y_true)).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.LogCosh()([[0.0], [0.0]], [[1.0], [3.0]]).round(2)
        Array(1.37, dtype=float32)
    """

    _function = staticmethod(log_cosh)
    _targets: ClassVar[str] = "values"
    name: str | None = option(default="log_cosh", convert=text(optional=True), kw_only=True)


class CosineSimilarity(FunctionLoss):
    """Mean negative cosine of the angle between y_true and y_pred.

    Args:
        axis: the axis of the vectors.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.CosineSimilarity()([[1.0, 0.0], [1.0, 0.0]], [[2.0, 0.0], [0.0, 2.0]])
        Array(-0.5, dtype=float32)
    """

    _function = staticmethod(cosine_similarity)
    _targets: ClassVar[str] = "values"
    axis: Integer = option(default=-1, convert=integer())
    name: str | None = option(
        default="cosine_similarity", convert=text(optional=True), kw_only=True
    )


LOSSES = (
    named(MeanSquaredError, "mse", "MSE", function=mean_squared_error),
    named(MeanAbsoluteError, "mae", "MAE", function=mean_absolute_error),
    named(MeanAbsolutePercentageError, "mape", "MAPE", function=mean_absolute_percentage_error),
    named(MeanSquaredLogarithmicError, "msle", "MSLE", function=mean_squared_logarithmic_error),
    named(Huber, function=huber),
    named(LogCosh, "logcosh", function=log_cosh),
    named(CosineSimilarity, function=cosine_similarity),
)
