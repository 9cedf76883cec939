"""Initializers whose variance depends on the fans: the numbers of inputs and outputs of a unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import choice, integer, real, several
from fkeras.engine.config.field_types import OptionalInteger, OptionalIntegers, Real
from fkeras.engine.values.argument_types import DTypeLike
from fkeras.engine.values.random import normal, truncated_normal, uniform
from fkeras.engine.values.registry import named
from fkeras.initializers.initializer import Initializer, moved, own_key

# the standard deviation of the standard normal distribution truncated at two standard deviations;
# dividing by this constant, as Keras does, restores the requested variance
_TRUNCATED_STDDEV = 0.87962566103423978
_AXES = ("input_axes", "output_axes")


def compute_fans(
    shape: Sequence[int],
    input_axes: Sequence[int] | None = None,
    output_axes: Sequence[int] | None = None,
) -> tuple[float, float]:
    """Returns the numbers of inputs and outputs of a unit, for the shape of a weight.

    Args:
        shape: the weight's shape: (d, u) for a matrix, (h, w, c, f) for a kernel; all axes before
            the last two are spatial axes.
        input_axes: axes whose sizes multiply to the number of inputs; None for the rule above.
        output_axes: axes whose sizes multiply to the number of outputs.

    Returns:
        The inputs (h * w * c) and the outputs (h * w * f); 1 and 1 for a scalar weight.

    Raises:
        ValueError: for an axis that the weight lacks, and for one of the two arguments alone.

    Example:
        >>> import fkeras as fk
        >>> fk.initializers.compute_fans((3, 3, 16, 32))
        (144, 288)
        >>> fk.initializers.compute_fans((8, 2, 4), input_axes=[0], output_axes=[1, 2])
        (8, 8)
    """
    _check_both(input_axes, output_axes)
    if input_axes is not None and output_axes is not None:
        absent = [a for a in (*input_axes, *output_axes) if not -len(shape) <= a < len(shape)]
        if absent:
            raise ValueError(
                f"compute_fans: expected axes of a weight of shape {tuple(shape)}, received "
                f"{absent[0]}. Correct input_axes and output_axes."
            )
        return math.prod(shape[a] for a in input_axes), math.prod(shape[a] for a in output_axes)
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


def _check_both(input_axes: Any, output_axes: Any) -> None:
    # Keras ignores one argument without the other
    if (input_axes is None) != (output_axes is None):
        raise ValueError(
            f"expected both input_axes and output_axes, received {input_axes} and {output_axes}. "
            "Give both, or leave both out."
        )


_known_distribution = choice("uniform", "truncated_normal", "untruncated_normal")


_axes = several(integer(), "a list of axes", optional=True, least=0)


def _distribution(value: Any) -> str:
    # Keras's older name
    return _known_distribution("truncated_normal" if value == "normal" else value)


def scaled_by_fans(
    initializer: VarianceScaling | _FanScaled,
    law: tuple[float, str, str],
    key: jax.Array,
    shape: Sequence[int],
    dtype: DTypeLike,
) -> jax.Array:
    """Draws samples with the variance scale / fan.

    Args:
        law: scale, mode and distribution; the mode selects the fan.
    """
    scale, mode, distribution = law
    key = own_key(key, initializer.seed)
    fan_in, fan_out = compute_fans(shape, initializer.input_axes, initializer.output_axes)
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    variance = scale / max(1.0, fans[mode])
    if distribution == "uniform":  # the variance of the range (-a, a) is a**2 / 3
        return uniform(key, tuple(shape), math.sqrt(3 * variance), dtype)
    if distribution == "untruncated_normal":
        return moved(normal(key, tuple(shape)), math.sqrt(variance), 0.0, dtype)
    stddev = math.sqrt(variance) / _TRUNCATED_STDDEV
    return moved(truncated_normal(key, tuple(shape)), stddev, 0.0, dtype)


class _HasFans(Initializer):
    """Base class of the initializers with arguments `input_axes` and `output_axes`.

    Args of the family:
        seed: an integer to fold into the key; None for the unchanged key.
        input_axes: axes of the weight whose sizes multiply to the number of inputs; None for the
            rule of `compute_fans`. Give both, or neither.
        output_axes: axes whose sizes multiply to the number of outputs.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_both(*map(vars(self).get, _AXES))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data, without axes that are None."""
        # older versions of Keras 3 reject the keys
        config = super().get_config()
        return {k: v for k, v in config.items() if v is not None or k not in _AXES}


class VarianceScaling(_HasFans):
    """Draws samples whose variance depends on the shape: `scale / fan`.

    Args:
        scale: the factor, above 0.
        mode: the fan: "fan_in" for the number of inputs of a unit, "fan_out" for the number of
            outputs, "fan_avg" for their mean. See `compute_fans`.
        distribution: "truncated_normal" (or "normal"; truncated at two standard deviations),
            "untruncated_normal" or "uniform".

    Raises:
        ValueError: for another mode or distribution, or a scale that is not positive.

    Example:
        >>> import jax, fkeras as fk
        >>> init = fk.initializers.VarianceScaling(2.0, "fan_out", "uniform")
        >>> round(float(init(jax.random.key(0), (50, 200)).var()), 3)
        0.01

    References:
        He et al. 2015, Delving Deep into Rectifiers, https://arxiv.org/abs/1502.01852
    """

    scale: Real = option(default=1.0, convert=real(above=0))
    mode: str = option(default="fan_in", convert=choice("fan_in", "fan_out", "fan_avg"))
    distribution: str = option(default="truncated_normal", convert=_distribution)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    input_axes: OptionalIntegers = option(default=None, convert=_axes)
    output_axes: OptionalIntegers = option(default=None, convert=_axes)

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        law = self.scale, self.mode, self.distribution
        return scaled_by_fans(self, law, key, shape, dtype)


class _FanScaled(_HasFans):
    """Draws samples by the rule of `VarianceScaling` with a fixed law."""

    #: scale, mode and distribution
    law: ClassVar[tuple[float, str, str]]

    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    input_axes: OptionalIntegers = option(default=None, convert=_axes)
    output_axes: OptionalIntegers = option(default=None, convert=_axes)

    def __call__(
        self, key: jax.Array, shape: Sequence[int], dtype: DTypeLike = "float32"
    ) -> jax.Array:
        return scaled_by_fans(self, self.law, key, shape, dtype)


class GlorotUniform(_FanScaled):
    """Draws uniform samples between -a and a = sqrt(6 / (fan_in + fan_out)).

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.GlorotUniform()(jax.random.key(0), (300, 100))
        >>> round(float(abs(w).max()), 3)
        0.122

    References:
        Glorot and Bengio 2010, Understanding the Difficulty of Training Deep Feedforward Neural
        Networks, https://proceedings.mlr.press/v9/glorot10a.html
    """

    law: ClassVar[tuple[float, str, str]] = (1.0, "fan_avg", "uniform")


class GlorotNormal(_FanScaled):
    """Draws truncated normal samples with the variance 2 / (fan_in + fan_out).

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.GlorotNormal()(jax.random.key(0), (300, 100))
        >>> round(float(w.std()), 2)
        0.07

    References:
        Glorot and Bengio 2010, Understanding the Difficulty of Training Deep Feedforward Neural
        Networks, https://proceedings.mlr.press/v9/glorot10a.html
    """

    law: ClassVar[tuple[float, str, str]] = (1.0, "fan_avg", "truncated_normal")


class LecunNormal(_FanScaled):
    """Draws truncated normal samples with the variance 1 / fan_in.

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.LecunNormal()(jax.random.key(0), (100, 300))
        >>> round(float(w.std()), 2)
        0.1

    References:
        LeCun et al. 1998, Efficient BackProp, http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf
    """

    law: ClassVar[tuple[float, str, str]] = (1.0, "fan_in", "truncated_normal")


class LecunUniform(_FanScaled):
    """Draws uniform samples between -a and a = sqrt(3 / fan_in).

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.LecunUniform()(jax.random.key(0), (300, 100))
        >>> round(float(abs(w).max()), 3)
        0.1

    References:
        LeCun et al. 1998, Efficient BackProp, http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf
    """

    law: ClassVar[tuple[float, str, str]] = (1.0, "fan_in", "uniform")


class HeNormal(_FanScaled):
    """Draws truncated normal samples with the variance 2 / fan_in.

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.HeNormal()(jax.random.key(0), (200, 100))
        >>> round(float(w.std()), 2)
        0.1

    References:
        He et al. 2015, Delving Deep into Rectifiers, https://arxiv.org/abs/1502.01852
    """

    law: ClassVar[tuple[float, str, str]] = (2.0, "fan_in", "truncated_normal")


class HeUniform(_FanScaled):
    """Draws uniform samples between -a and a = sqrt(6 / fan_in).

    Example:
        >>> import jax, fkeras as fk
        >>> w = fk.initializers.HeUniform()(jax.random.key(0), (600, 100))
        >>> round(float(abs(w).max()), 3)
        0.1

    References:
        He et al. 2015, Delving Deep into Rectifiers, https://arxiv.org/abs/1502.01852
    """

    law: ClassVar[tuple[float, str, str]] = (2.0, "fan_in", "uniform")


INITIALIZERS = (
    named(VarianceScaling, "variance_scaling"),
    named(GlorotUniform, "glorot_uniform"),
    named(GlorotNormal, "glorot_normal"),
    named(LecunNormal, "lecun_normal"),
    named(LecunUniform, "lecun_uniform"),
    named(HeNormal, "he_normal"),
    named(HeUniform, "he_uniform"),
)
