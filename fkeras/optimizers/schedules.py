"""Learning rate schedules: values that map a step number to a learning rate.

Integer steps are compared and subtracted as integers, since float32 represents every integer only
up to 2**24.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config import configurable
from fkeras.engine.config.configurable import Configurable, option, serialize
from fkeras.engine.config.converters import boolean, either, integer, real, several, text
from fkeras.engine.config.field_types import OptionalReal, Real, Reals
from fkeras.engine.values.argument_types import Number
from fkeras.optimizers.updates.schedule_steps import (
    as_step,
    minus,
    passed,
    periods,
    remaining,
    wave_starts,
)

__all__ = (
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "deserialize",
    "serialize",
)

_MODULE = "keras.optimizers.schedules"
# integers are not converted to floats, so that large step numbers stay exact
_steps = either(integer(minimum=1), real(above=0))


class LearningRateSchedule(Configurable):
    """Base class of learning rate schedules; subclasses define `__call__(step)`.

    Example:
        >>> import fkeras as fk
        >>> class Halving(fk.optimizers.schedules.LearningRateSchedule):
        ...     every: int = fk.option(default=100)
        ...     def __call__(self, step):
        ...         return 0.1 * 0.5 ** (step // self.every)
        >>> fk.optimizers.SGD(Halving(10))
        SGD(Halving(10))
    """

    def __call__(self, step: Number) -> Any:
        """Returns the learning rate for a step number, counted from 0."""
        raise NotImplementedError(
            f"{type(self).__name__}: missing method __call__(step). Define a method that returns "
            "the learning rate."
        )


class ExponentialDecay(LearningRateSchedule):
    """Exponential decay: initial_learning_rate * decay_rate**(step / decay_steps).

    Args:
        initial_learning_rate: the rate at step 0.
        decay_steps: the number of steps in which the rate decays by the factor `decay_rate`.
        decay_rate: the decay factor.
        staircase: whether the rate changes only every `decay_steps` steps.
        name: label in the config; has no effect.

    Example:
        >>> ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)(20)
        Array(0.025, dtype=float32)
    """

    _keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: Real = option(convert=real(minimum=0))
    decay_steps: Real = option(convert=_steps)
    decay_rate: Real = option(convert=real(above=0))
    staircase: bool = option(default=False, convert=boolean)
    name: str = option(default="ExponentialDecay", convert=text(optional=True))

    def __call__(self, step: Number) -> jax.Array:
        completed, part = periods(as_step(step), self.decay_steps)
        part = completed if self.staircase else completed + part
        return self.initial_learning_rate * jnp.power(jnp.float32(self.decay_rate), part)


class InverseTimeDecay(LearningRateSchedule):
    """Inverse time decay: initial_learning_rate / (1 + decay_rate * step / decay_steps).

    Args:
        decay_steps: the number of steps in a unit of time.
        decay_rate: the speed of the decay.
        Other arguments: those of `ExponentialDecay`.

    Example:
        >>> InverseTimeDecay(0.1, decay_steps=10, decay_rate=1.0)(10)
        Array(0.05, dtype=float32)
    """

    _keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: Real = option(convert=real(minimum=0))
    decay_steps: Real = option(convert=_steps)
    decay_rate: Real = option(convert=real(minimum=0))
    staircase: bool = option(default=False, convert=boolean)
    name: str = option(default="InverseTimeDecay", convert=text(optional=True))

    def __call__(self, step: Number) -> jax.Array:
        completed, part = periods(as_step(step), self.decay_steps)
        part = completed if self.staircase else completed + part
        return self.initial_learning_rate / (1.0 + self.decay_rate * part)


class PiecewiseConstantDecay(LearningRateSchedule):
    """Piecewise constant rates: values[i], where i is the number of `boundaries` below the step.

    Args:
        boundaries: steps in ascending order; a rate applies up to and including its boundary.
        values: the rates, one more than boundaries.
        Other arguments: those of `ExponentialDecay`.

    Raises:
        ValueError: unless the number of values is the number of boundaries plus one.

    Example:
        >>> schedule = PiecewiseConstantDecay([10, 20], [0.1, 0.05, 0.01])
        >>> schedule(10), schedule(11)
        (Array(0.1, dtype=float32), Array(0.05, dtype=float32))
    """

    _keras_module: ClassVar[str] = _MODULE
    boundaries: Reals = option(
        convert=several(either(integer(), real()), "a list of step numbers", least=0)
    )
    values: Reals = option(convert=several(real(minimum=0), "a list of learning rates"))
    name: str = option(default="PiecewiseConstant", convert=text(optional=True))

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(
                f"PiecewiseConstantDecay: expected one value more than boundaries, received "
                f"{len(self.boundaries)} boundaries and {len(self.values)} values. Pass a value "
                "for each interval between boundaries and for both ends."
            )

    def __call__(self, step: Number) -> jax.Array:
        return jnp.asarray(self.values, "float32")[passed(as_step(step), self.boundaries)]


class PolynomialDecay(LearningRateSchedule):
    """Polynomial decay: (initial - end) * (1 - step / decay_steps)**power + end.

    Args:
        decay_steps: the number of steps of the decay.
        end_learning_rate: the final rate.
        power: the exponent; 1 for a linear decay.
        cycle: whether to extend the decay to the next multiple of `decay_steps` whenever the step
            exceeds the last multiple, which restarts the decay, instead of staying at the final
            rate.
        Other arguments: those of `ExponentialDecay`.

    Example:
        >>> PolynomialDecay(0.1, decay_steps=10, end_learning_rate=0.0)(5)
        Array(0.05, dtype=float32)
    """

    _keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: Real = option(convert=real(minimum=0))
    decay_steps: Real = option(convert=_steps)
    end_learning_rate: Real = option(default=0.0001, convert=real(minimum=0))
    power: Real = option(default=1.0, convert=real(above=0))
    cycle: bool = option(default=False, convert=boolean)
    name: str = option(default="PolynomialDecay", convert=text(optional=True))

    def __call__(self, step: Number) -> jax.Array:
        step = as_step(step)
        if self.cycle:
            completed, part = periods(step, self.decay_steps)
            # the number of begun periods multiplies decay_steps, as in Keras; at step 0 one period
            # has begun
            begun_periods = jnp.maximum(jnp.where(part > 0, completed + 1.0, completed), 1.0)
            remaining_share = (
                jnp.where((part > 0) | (completed == 0), 1.0 - part, 0.0) / begun_periods
            )
        else:
            remaining_share = remaining(step, self.decay_steps)
        span = self.initial_learning_rate - self.end_learning_rate
        return span * jnp.power(remaining_share, jnp.float32(self.power)) + self.end_learning_rate


class CosineDecay(LearningRateSchedule):
    """Cosine decay from the highest rate to `alpha` times that rate, after a linear warmup.

    Args:
        decay_steps: the number of steps of the decay, without the warmup.
        alpha: the final rate as a share of the highest rate.
        warmup_target: the rate at the end of the warmup; None for no warmup.
        warmup_steps: the number of steps of the warmup.
        Other arguments: those of `ExponentialDecay`.

    References:
        Loshchilov and Hutter 2016, SGDR, https://arxiv.org/abs/1608.03983

    Example:
        >>> CosineDecay(0.1, decay_steps=10)(5)
        Array(0.05, dtype=float32)
    """

    _keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: Real = option(convert=real(minimum=0))
    decay_steps: Real = option(convert=_steps)
    alpha: Real = option(default=0.0, convert=real(minimum=0))
    name: str = option(default="CosineDecay", convert=text(optional=True))
    warmup_target: OptionalReal = option(default=None, convert=real(minimum=0, optional=True))
    warmup_steps: int = option(default=0, convert=either(integer(minimum=0), real(minimum=0)))

    def __call__(self, step: Number) -> jax.Array:
        step = as_step(step)
        if self.warmup_target is None:
            return self._fall(step.astype("float32"), self.initial_learning_rate)
        rise = self.warmup_target - self.initial_learning_rate
        warmup_share = jnp.minimum(step.astype("float32") / max(float(self.warmup_steps), 1.0), 1.0)
        warmup_rate = rise * warmup_share + self.initial_learning_rate
        decay_step = minus(step, self.warmup_steps)
        # jnp.where, since the step is traced; both branches are finite for all steps
        return jnp.where(decay_step < 0, warmup_rate, self._fall(decay_step, self.warmup_target))

    def _fall(self, step: jax.Array, highest: float) -> jax.Array:
        part = jnp.minimum(step / float(self.decay_steps), 1.0)
        wave = 0.5 * (1.0 + jnp.cos(math.pi * part))
        return highest * ((1.0 - self.alpha) * wave + self.alpha)


class CosineDecayRestarts(LearningRateSchedule):
    """Cosine decay with warm restarts, after SGDR.

    Each period is `t_mul` times as long as the period before and starts at `m_mul` times its
    initial rate.

    Args:
        first_decay_steps: the number of steps of the first period.
        t_mul: the factor of the period length.
        m_mul: the factor of the initial rate.
        alpha: the final rate of a period as a share of its initial rate.
        Other arguments: those of `ExponentialDecay`.

    References:
        Loshchilov and Hutter 2016, SGDR, https://arxiv.org/abs/1608.03983

    Example:
        >>> CosineDecayRestarts(0.1, first_decay_steps=10)(10)
        Array(0.1, dtype=float32)
    """

    _keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: Real = option(convert=real(minimum=0))
    first_decay_steps: Real = option(convert=_steps)
    t_mul: Real = option(default=2.0, convert=real(above=0))
    m_mul: Real = option(default=1.0, convert=real(minimum=0))
    alpha: Real = option(default=0.0, convert=real(minimum=0))
    name: str = option(default="SGDRDecay", convert=text(optional=True))

    def __call__(self, step: Number) -> jax.Array:
        step = as_step(step)
        starts = wave_starts(self.first_decay_steps, self.t_mul)
        if self.t_mul == 1.0:
            wave, part = periods(step, self.first_decay_steps)
        # a table of starts: the logarithm of the formula below can round to the wrong period
        elif starts is not None and jnp.issubdtype(step.dtype, jnp.integer):
            number = passed(step, starts[1:], reached=True)
            wave = number.astype("float32")
            length = float(self.first_decay_steps) * jnp.power(jnp.float32(self.t_mul), wave)
            # integer part and fraction of the start are subtracted separately, to stay exact
            first_steps = [math.ceil(start) for start in starts]
            fractions = [end - start for end, start in zip(first_steps, starts, strict=True)]
            wave_step = (step - jnp.asarray(first_steps, step.dtype)[number]).astype("float32")
            part = (wave_step + jnp.asarray(fractions, "float32")[number]) / length
        else:
            t_mul = jnp.float32(self.t_mul)
            part = step.astype("float32") / float(self.first_decay_steps)
            wave = jnp.floor(jnp.log(1.0 - part * (1.0 - t_mul)) / jnp.log(t_mul))
            length = jnp.power(t_mul, wave)
            part = (part - (1.0 - length) / (1.0 - t_mul)) / length
        height = jnp.power(jnp.float32(self.m_mul), wave)
        wave = 0.5 * height * (1.0 + jnp.cos(math.pi * part))
        return self.initial_learning_rate * ((1.0 - self.alpha) * wave + self.alpha)


_NAMES: Mapping[str, type[LearningRateSchedule]] = types.MappingProxyType(
    {
        cls.__name__: cls
        for cls in (
            ExponentialDecay,
            InverseTimeDecay,
            PiecewiseConstantDecay,
            PolynomialDecay,
            CosineDecay,
            CosineDecayRestarts,
        )
    }
)


def deserialize(
    config: Mapping[str, Any] | str, custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """Creates the schedule that `config`, written by `serialize` or Keras 3, describes.

    Args:
        config: JSON data with `class_name` and `config`.
        custom_objects: your classes and functions by name.

    Raises:
        ValueError: for an unknown name.

    Example:
        >>> deserialize(serialize(CosineDecay(0.1, 10)))
        CosineDecay(0.1, 10)
    """
    name = str(config.get("class_name")) if isinstance(config, Mapping) else ""
    if name not in _NAMES or name in (custom_objects or ()) or not isinstance(config, Mapping):
        return configurable.deserialize(config, custom_objects)
    return _NAMES[name].from_config(dict(config.get("config") or {}), custom_objects)
