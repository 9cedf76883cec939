"""Losses of probabilistic forecasts: quantiles, distributions and samples as predictions.

The last axis of the predictions holds the quantiles, parameters or samples of one target.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, choice, either, real, several, text
from fkeras.engine.config.field_types import OptionalReal, RealOrReals
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses import checks
from fkeras.losses.loss import FunctionLoss
from fkeras.losses.reducing import require_axis
from fkeras.losses.regression import floats, widened
from fkeras.nn.numerics.axes import align, format_shape, may_equal

# scales below count as this scale, so that losses and gradients are finite
_SMALLEST = 1e-6
# from here on, the series of _log_gamma_step is exact in float32
_LARGE = 20.0
_level = real(above=0, below=1)
_scale = choice("softplus", "exp", "linear")


def _each(
    where: str, y_true: Numbers, y_pred: Numbers, count: int | None, noun: str
) -> tuple[jax.Array, jax.Array]:
    """Returns targets (b, ...) and predictions (b, ..., count) as floats, after a check of the shapes.

    Args:
        count: the size of the last axis; None for any.
        noun: name of the entries of the last axis, for messages.
    """
    y_true, y_pred = as_operand(y_true, "y_true"), widened(as_operand(y_pred, "y_pred"))
    shape = require_axis(y_pred).shape
    if count is not None and shape[-1] != count:
        raise ValueError(
            f"{where}: expected predictions (b, ..., {count}), {noun} of each target, received "
            f"{format_shape(shape)}. Let the last layer return {count} numbers for each target."
        )
    if y_true.ndim == y_pred.ndim and y_true.shape[-1] == 1:
        y_true = y_true[..., 0]
    if not may_equal(y_true.shape, shape[:-1]):
        raise ValueError(
            f"{where}: expected targets {format_shape(shape[:-1])}, one for {noun} on the last axis of the "
            f"predictions {format_shape(shape)}, received {format_shape(y_true.shape)}. Reshape the targets."
        )
    return y_true.astype(y_pred.dtype), y_pred


def quantile(
    y_true: Numbers, y_pred: Numbers, levels: float | tuple[float, ...] = 0.5
) -> jax.Array:
    """Returns the mean of max(q * e, (q - 1) * e), e = y_true - y_pred, over the last axis.

    The minimum is the quantile of the level q: the share q of the targets is below the prediction. The
    name "pinball loss" is common too.

    Args:
        y_true: targets: of the predictions' shape for one level; (b, ...) or (b, ..., 1) for several.
        y_pred: predictions, (b, ..., d) for one level; (b, ..., levels) for several.
        levels: the level q, between 0 and 1, or the levels of the last axis.

    Returns:
        The losses of samples, (b, ...).

    Raises:
        ValueError: for shapes that do not fit.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.quantile([[1.0]], [[0.0]], levels=0.75)
        Array([0.75], dtype=float32)
        >>> fk.losses.quantile([1.0], [[0.0, 3.0]], levels=(0.25, 0.75))
        Array([0.375], dtype=float32)

    References:
        Koenker and Bassett 1978, Regression quantiles, https://doi.org/10.2307/1913643
    """
    if isinstance(levels, tuple | list):
        y_true, y_pred = _each(
            "quantile", y_true, y_pred, len(levels), "one quantile for each level"
        )
        error = jnp.expand_dims(y_true, -1) - y_pred
        level = align(jnp.asarray(levels, y_pred.dtype), y_pred.ndim)
    else:
        y_true, y_pred = floats(y_true, y_pred)
        checks.check_call("quantile", y_true, y_pred)
        error, level = y_true - y_pred, jnp.asarray(levels, y_pred.dtype)
    return jnp.mean(jnp.maximum(level * error, (level - 1.0) * error), axis=-1)


def _at_least(x: jax.Array, least: float) -> jax.Array:
    # a select, whose derivative is 0 even where the derivative of the loss overflows
    return jnp.where(x > least, x, jnp.full_like(x, least))


def _standardized(y_true: jax.Array, y_pred: jax.Array, scale: str) -> tuple[jax.Array, jax.Array]:
    """Returns the logarithm of the scale, and (y_true - location) / scale."""
    location, raw = y_pred[..., 0], y_pred[..., 1]
    if scale == "exp":
        log_scale = _at_least(raw, math.log(_SMALLEST))
        return log_scale, (y_true - location) * jnp.exp(-log_scale)
    raw = _at_least(jax.nn.softplus(raw) if scale == "softplus" else raw, _SMALLEST)
    return jnp.log(raw), (y_true - location) / raw


def gaussian_nll(y_true: Numbers, y_pred: Numbers, scale: str = "softplus") -> jax.Array:
    """Returns log(s) + ((y - m) / s)**2 / 2 + log(2 * pi) / 2: the negative log-density of a Gaussian.

    Args:
        y_true: targets y, (b, ...) or (b, ..., 1).
        y_pred: the mean m and a number for the standard deviation s, (b, ..., 2).
        scale: how the second number r becomes s: "softplus" for log(1 + exp(r)), "exp" for exp(r),
            "linear" for r itself, which the model must make positive. s is at least 1e-6.

    Returns:
        The losses of targets, (b, ...).

    Raises:
        ValueError: for shapes that do not fit.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.gaussian_nll([1.0], [[0.0, 1.0]], scale="linear").round(4)
        Array([1.4189], dtype=float32)

    References:
        Nix and Weigend 1994, Estimating the mean and variance of the target probability distribution,
        https://doi.org/10.1109/ICNN.1994.374138
    """
    y_true, y_pred = _each("gaussian_nll", y_true, y_pred, 2, "mean and scale")
    log_scale, error = _standardized(y_true, y_pred, scale)
    return log_scale + 0.5 * jnp.square(error) + 0.5 * math.log(2.0 * math.pi)


def _log_gamma_step(x: jax.Array) -> jax.Array:
    """Returns log(gamma(x + 1/2)) - log(gamma(x)) without the cancellation of large logarithms."""
    small, large = jnp.minimum(x, _LARGE), jnp.maximum(x, _LARGE)
    exact = jax.lax.lgamma(small + 0.5) - jax.lax.lgamma(small)
    series = 0.5 * jnp.log(large) - 0.125 / large + 1.0 / (192.0 * large**3)
    return jnp.where(x < _LARGE, exact, series)


def student_t_nll(
    y_true: Numbers, y_pred: Numbers, df: float | None = None, scale: str = "softplus"
) -> jax.Array:
    """Returns the negative log-density of Student's t distribution with location and scale.

    For z = (y - m) / s and v degrees of freedom: log(s) + (v + 1) / 2 * log(1 + z**2 / v) +
    log(v * pi) / 2 + log(gamma(v / 2)) - log(gamma((v + 1) / 2)). Outliers cost less than under a
    Gaussian.

    Args:
        y_true: targets y, (b, ...) or (b, ..., 1).
        y_pred: the location m, a number for the scale s, and without `df` a number r for v =
            2 + softplus(r): (b, ..., 2) or (b, ..., 3).
        df: degrees of freedom v, above 0; None to predict them.
        scale: as of `gaussian_nll`.

    Returns:
        The losses of targets, (b, ...).

    Raises:
        ValueError: for shapes that do not fit.

    Example:
        >>> import fkeras as fk
        >>> loss = fk.losses.student_t_nll([0.0], [[0.0, 0.5]], df=1.0, scale="linear")
        >>> round(float(loss[0]), 3)
        0.452

    References:
        Lange et al. 1989, Robust statistical modeling using the t distribution,
        https://doi.org/10.2307/2290063
    """
    count, noun = (
        (3, "location, scale and degrees of freedom") if df is None else (2, "location and scale")
    )
    y_true, y_pred = _each("student_t_nll", y_true, y_pred, count, noun)
    log_scale, error = _standardized(y_true, y_pred, scale)
    degrees = 2.0 + jax.nn.softplus(y_pred[..., 2]) if df is None else jnp.asarray(df, y_pred.dtype)
    normalizer = 0.5 * jnp.log(degrees * math.pi) - _log_gamma_step(0.5 * degrees)
    tail = 0.5 * (degrees + 1.0) * jnp.log1p(jnp.square(error) / degrees)
    return log_scale + tail + normalizer


def crps(y_true: Numbers, y_pred: Numbers, fair: bool = False) -> jax.Array:
    """Returns mean(|x - y|) - mean(|x - x'|) / 2 over samples x, x' of a forecast of y.

    This is the continuous ranked probability score: the squared distance between the distribution
    function of the samples and that of the target. With a single sample it is the absolute error.

    Args:
        y_true: targets y, (b, ...) or (b, ..., 1).
        y_pred: samples, (b, ..., n).
        fair: whether the second mean is over the n * (n - 1) pairs of different samples, which makes
            the expected loss independent of n.

    Returns:
        The losses of targets, (b, ...), in the unit of the targets.

    Raises:
        ValueError: for shapes that do not fit, and `fair` with fewer than 2 samples.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.crps([1.0], [[0.0, 4.0]])
        Array([1.], dtype=float32)

    References:
        Gneiting and Raftery 2007, Strictly proper scoring rules, prediction, and estimation,
        https://doi.org/10.1198/016214506000001437
    """
    y_true, y_pred = _each("crps", y_true, y_pred, None, "samples")
    count = y_pred.shape[-1]
    if count < 1 + fair:
        raise ValueError(
            f"crps: expected at least {1 + fair} samples on the last axis, received "
            f"{format_shape(y_pred.shape)}."
        )
    distance = jnp.mean(jnp.abs(y_pred - jnp.expand_dims(y_true, -1)), axis=-1)
    # in sorted order, sample i is the larger one of i pairs and the smaller one of count - 1 - i
    ranks = align(jnp.asarray(2 * np.arange(count) - (count - 1), y_pred.dtype), y_pred.ndim)
    spread = jnp.sum(ranks * jnp.sort(y_pred, axis=-1), axis=-1)
    return distance - spread / (count * max(count - fair, 1))


class _Forecast(FunctionLoss):
    """Base class of the losses of forecasts, whose predictions have one axis more than the targets."""

    def check_targets(self, y_true: Numbers, y_pred: HasShape) -> None:
        checks.check_finite(self._label, np.asarray(y_true))


class Quantile(_Forecast):
    """Mean quantile loss (pinball loss): max(q * e, (q - 1) * e) for e = y_true - y_pred.

    Args:
        levels: the level q of the predictions, between 0 and 1; or several, for predictions with one
            quantile for each level on the last axis.

    Raises:
        ValueError: for a level that is not between 0 and 1; in calls, for shapes that do not fit.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.Quantile(0.75)([[1.0], [0.0]], [[0.0], [1.0]])
        Array(0.5, dtype=float32)

    References:
        Koenker and Bassett 1978, Regression quantiles, https://doi.org/10.2307/1913643
    """

    _function = staticmethod(quantile)
    levels: RealOrReals = option(
        default=0.5, convert=either(_level, several(_level, "levels such as [0.1, 0.5, 0.9]"))
    )
    name: str | None = option(default="quantile", convert=text(optional=True), kw_only=True)


class GaussianNLL(_Forecast):
    """Mean negative log-density of targets under Gaussians: log(s) + ((y - m) / s)**2 / 2 + log(2 * pi) / 2.

    Args:
        scale: how the second prediction r of a target becomes the standard deviation: "softplus",
            "exp", or "linear" for r itself.

    Raises:
        ValueError: for an unknown `scale`; in calls, for shapes other than (b, ...) and (b, ..., 2).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.GaussianNLL("linear")([1.0, 2.0], [[0.0, 1.0], [2.0, 1.0]]).round(4)
        Array(1.1689, dtype=float32)

    References:
        Nix and Weigend 1994, Estimating the mean and variance of the target probability distribution,
        https://doi.org/10.1109/ICNN.1994.374138
    """

    _function = staticmethod(gaussian_nll)
    scale: str = option(default="softplus", convert=_scale)
    name: str | None = option(default="gaussian_nll", convert=text(optional=True), kw_only=True)


class StudentTNLL(_Forecast):
    """Mean negative log-density of targets under Student's t distributions.

    Args:
        df: degrees of freedom, above 0; None for a third prediction r of each target, which gives
            2 + softplus(r) degrees.
        scale: how the second prediction becomes the scale, as of `GaussianNLL`.

    Raises:
        ValueError: for `df` up to 0 and an unknown `scale`; in calls, for shapes that do not fit.

    Example:
        >>> import fkeras as fk
        >>> round(float(fk.losses.StudentTNLL(df=1.0, scale="linear")([1.0], [[0.0, 1.0]])), 4)
        1.8379

    References:
        Lange et al. 1989, Robust statistical modeling using the t distribution,
        https://doi.org/10.2307/2290063
    """

    _function = staticmethod(student_t_nll)
    df: OptionalReal = option(default=None, convert=real(above=0, optional=True))
    scale: str = option(default="softplus", convert=_scale)
    name: str | None = option(default="student_t_nll", convert=text(optional=True), kw_only=True)


class CRPS(_Forecast):
    """Mean continuous ranked probability score of samples: mean(|x - y|) - mean(|x - x'|) / 2.

    Args:
        fair: whether the second mean leaves out the pairs of a sample with itself.

    Raises:
        ValueError: in calls, for shapes other than (b, ...) and (b, ..., samples).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.CRPS()([1.0, 0.0], [[0.0, 4.0], [0.0, 0.0]])
        Array(0.5, dtype=float32)

    References:
        Gneiting and Raftery 2007, Strictly proper scoring rules, prediction, and estimation,
        https://doi.org/10.1198/016214506000001437
    """

    _function = staticmethod(crps)
    fair: bool = option(default=False, convert=boolean)
    name: str | None = option(default="crps", convert=text(optional=True), kw_only=True)


LOSSES = (
    named(Quantile, "pinball", function=quantile),
    named(GaussianNLL, function=gaussian_nll),
    named(StudentTNLL, function=student_t_nll),
    named(CRPS, function=crps),
)
