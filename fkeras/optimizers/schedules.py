"""Learning rates that change with the number of steps taken, as values: `schedule(step)`."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import config as configuration
from fkeras.engine.config import Configurable, option, serialize

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


def _steps(name: str) -> Any:
    def convert(value: Any) -> Any:
        if not value > 0:
            raise ValueError(f"{name}: expected a number of steps above 0, received {value!r}.")
        return value

    return convert


def _float(step: Any) -> jax.Array:
    return jnp.asarray(step).astype("float32")


class LearningRateSchedule(Configurable):
    """A learning rate for each step: subclass it and write `__call__(step)`.

    Example:
        >>> import fkeras as fk
        >>> class Halving(fk.optimizers.schedules.LearningRateSchedule):
        ...     every: int = fk.option(100)
        ...     def __call__(self, step):
        ...         return 0.1 * 0.5 ** (step // self.every)
        >>> fk.optimizers.SGD(Halving(10))
        SGD(Halving(10))
    """

    def __call__(self, step: Any) -> Any:
        """The learning rate of the step with this number, counted from 0."""
        raise NotImplementedError(
            f"{type(self).__name__}: a schedule needs its own __call__(step). Write one that "
            "returns the learning rate."
        )


class ExponentialDecay(LearningRateSchedule):
    """initial_learning_rate * decay_rate**(step / decay_steps).

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: after how many steps the rate is multiplied by `decay_rate`.
        decay_rate: the factor.
        staircase: whether the rate changes only every `decay_steps` steps.
        name: a word of your own.

    Example:
        >>> ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)(20)
        Array(0.025, dtype=float32)
    """

    keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: float = option(convert=float)
    decay_steps: float = option(convert=_steps("decay_steps"))
    decay_rate: float = option()
    staircase: bool = option(False)
    name: str = option("ExponentialDecay")

    def __call__(self, step: Any) -> jax.Array:
        part = _float(step) / self.decay_steps
        part = jnp.floor(part) if self.staircase else part
        return self.initial_learning_rate * jnp.power(jnp.float32(self.decay_rate), part)


class InverseTimeDecay(LearningRateSchedule):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps).

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: the unit of time.
        decay_rate: how fast the rate falls.
        staircase: whether the rate changes only every `decay_steps` steps.
        name: a word of your own.

    Example:
        >>> InverseTimeDecay(0.1, decay_steps=10, decay_rate=1.0)(10)
        Array(0.05, dtype=float32)
    """

    keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: float = option(convert=float)
    decay_steps: float = option(convert=_steps("decay_steps"))
    decay_rate: float = option()
    staircase: bool = option(False)
    name: str = option("InverseTimeDecay")

    def __call__(self, step: Any) -> jax.Array:
        part = _float(step) / self.decay_steps
        part = jnp.floor(part) if self.staircase else part
        return self.initial_learning_rate / (1.0 + self.decay_rate * part)


class PiecewiseConstantDecay(LearningRateSchedule):
    """values[i], where i is the number of `boundaries` that the step has passed.

    Args:
        boundaries: steps in rising order; a rate holds up to and with its boundary.
        values: rates, one more than boundaries.
        name: a word of your own.

    Raises:
        ValueError: where there is not one rate more than boundaries.

    Example:
        >>> schedule = PiecewiseConstantDecay([10, 20], [0.1, 0.05, 0.01])
        >>> schedule(10), schedule(11)
        (Array(0.1, dtype=float32), Array(0.05, dtype=float32))
    """

    keras_module: ClassVar[str] = _MODULE
    boundaries: tuple[float, ...] = option()
    values: tuple[float, ...] = option()
    name: str = option("PiecewiseConstant")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(
                f"PiecewiseConstantDecay: expected one value more than boundaries, received "
                f"{len(self.boundaries)} boundaries and {len(self.values)} values. Give a value "
                "for each stretch between boundaries and for both ends."
            )

    def __call__(self, step: Any) -> jax.Array:
        passed = jnp.asarray(self.boundaries, "float32") < _float(step)
        return jnp.asarray(self.values, "float32")[jnp.sum(passed)]


class PolynomialDecay(LearningRateSchedule):
    """(initial - end) * (1 - step / decay_steps)**power + end.

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: the steps until the end.
        end_learning_rate: the rate at the end.
        power: 1 for a straight line.
        cycle: whether it starts again, each time for a longer stretch, instead of staying at
            the end.
        name: a word of your own.

    Example:
        >>> PolynomialDecay(0.1, decay_steps=10, end_learning_rate=0.0)(5)
        Array(0.05, dtype=float32)
    """

    keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: float = option(convert=float)
    decay_steps: float = option(convert=_steps("decay_steps"))
    end_learning_rate: float = option(0.0001)
    power: float = option(1.0)
    cycle: bool = option(False)
    name: str = option("PolynomialDecay")

    def __call__(self, step: Any) -> jax.Array:
        step = _float(step)
        if self.cycle:
            stretch = self.decay_steps * jnp.maximum(jnp.ceil(step / self.decay_steps), 1.0)
        else:
            stretch = float(self.decay_steps)
            step = jnp.minimum(step, stretch)
        span = self.initial_learning_rate - self.end_learning_rate
        left = jnp.power(1.0 - step / stretch, jnp.float32(self.power))
        return span * left + self.end_learning_rate


class CosineDecay(LearningRateSchedule):
    """Half a cosine wave from the first rate down to alpha times it, after a linear warmup.

    Args:
        initial_learning_rate: the rate of step 0.
        decay_steps: the steps of the fall, warmup not counted.
        alpha: the last rate as a part of the highest.
        name: a word of your own.
        warmup_target: the rate that the warmup ends with; None for no warmup.
        warmup_steps: the steps of the warmup.

    References:
        Loshchilov and Hutter 2016, SGDR, https://arxiv.org/abs/1608.03983

    Example:
        >>> CosineDecay(0.1, decay_steps=10)(5)
        Array(0.05, dtype=float32)
    """

    keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: float = option(convert=float)
    decay_steps: float = option(convert=_steps("decay_steps"))
    alpha: float = option(0.0)
    name: str = option("CosineDecay")
    warmup_target: float | None = option(None)
    warmup_steps: int = option(0)

    def __call__(self, step: Any) -> jax.Array:
        step = _float(step)
        if self.warmup_target is None:
            return self._fall(jnp.minimum(step, self.decay_steps), self.initial_learning_rate)
        step = jnp.minimum(step, self.decay_steps + self.warmup_steps)
        rise = self.warmup_target - self.initial_learning_rate
        warm = rise * (step / max(self.warmup_steps, 1)) + self.initial_learning_rate
        fall = self._fall(step - self.warmup_steps, self.warmup_target)
        return jnp.where(step < self.warmup_steps, warm, fall)

    def _fall(self, step: jax.Array, highest: float) -> jax.Array:
        wave = 0.5 * (1.0 + jnp.cos(math.pi * (step / self.decay_steps)))
        return highest * ((1.0 - self.alpha) * wave + self.alpha)


class CosineDecayRestarts(LearningRateSchedule):
    """Half cosine waves one after the other, each `t_mul` times as long and `m_mul` times as high.

    Args:
        initial_learning_rate: the rate of step 0.
        first_decay_steps: the steps of the first wave.
        t_mul: the factor of the length.
        m_mul: the factor of the height.
        alpha: the lowest rate as a part of the first.
        name: a word of your own.

    References:
        Loshchilov and Hutter 2016, SGDR, https://arxiv.org/abs/1608.03983

    Example:
        >>> CosineDecayRestarts(0.1, first_decay_steps=10)(10)
        Array(0.1, dtype=float32)
    """

    keras_module: ClassVar[str] = _MODULE
    initial_learning_rate: float = option(convert=float)
    first_decay_steps: float = option(convert=_steps("first_decay_steps"))
    t_mul: float = option(2.0)
    m_mul: float = option(1.0)
    alpha: float = option(0.0)
    name: str = option("SGDRDecay")

    def __call__(self, step: Any) -> jax.Array:
        part = _float(step) / self.first_decay_steps
        if self.t_mul == 1.0:
            wave = jnp.floor(part)
            part = part - wave
        else:
            t_mul = jnp.float32(self.t_mul)
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


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The schedule that `serialize` (or Keras 3) wrote as `config`.

    Args:
        config: JSON data with `class_name` and `config`.
        custom_objects: your own classes and functions by name.

    Raises:
        ValueError: where the name is unknown.

    Example:
        >>> deserialize(serialize(CosineDecay(0.1, 10)))
        CosineDecay(0.1, 10)
    """
    known = _NAMES.get(config.get("class_name")) if isinstance(config, Mapping) else None
    if known is None or known.__name__ in (custom_objects or ()):
        return configuration.deserialize(config, custom_objects)
    return known.from_config(dict(config.get("config") or {}), custom_objects)
