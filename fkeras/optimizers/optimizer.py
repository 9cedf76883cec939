"""An optimizer of one rule: a frozen value with Keras's arguments, applied to each weight.

An optimizer says what one weight's state is (`slots`) and what one step does with one gradient
(`step`). All else is common to them: their options here, what these do in `walk`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import numpy as np

from fkeras.engine.config.configurable import from_configuration, option
from fkeras.engine.config.converters import boolean, integer, probability, real, text
from fkeras.engine.config.field_types import (
    LearningRate,
    OptionalInteger,
    OptionalReal,
    Real,
    Words,
)
from fkeras.engine.messages.key_paths import within
from fkeras.optimizers import schedules
from fkeras.optimizers.base import BaseOptimizer, scaled
from fkeras.optimizers.options import rate, words
from fkeras.optimizers.updates import apply as walk
from fkeras.optimizers.updates.averaging import averaged
from fkeras.optimizers.updates.paths import mentions
from fkeras.optimizers.updates.state import AVERAGE, OptimizerState

_Slots = dict[str, jax.Array]
_NEVER_NONE = ("use_ema", "ema_momentum", "exclude_from_weight_decay")


class Optimizer(BaseOptimizer):
    """A rule that turns gradients into updates of the weights, as a value.

    Subclass it and write `slots` and `step`, both for a single weight.

    Args:
        learning_rate: a number, a schedule, or a function of the number of updates asked for.
        weight_decay: each step first takes `learning_rate * weight_decay * weight` from each
            weight; None for none.
        clipnorm: the largest Euclidean norm of each gradient by itself.
        clipvalue: the largest absolute value of an entry of a gradient.
        global_clipnorm: the largest Euclidean norm of all gradients together.
        use_ema: whether to keep an average of the weights, `ema_weights(opt_state)`, which
            `finalize` puts in their place.
        ema_momentum: how much of the average stays when new weights come in.
        ema_overwrite_frequency: the weights become their average every so many steps; None for
            not before `finalize`.
        loss_scale_factor: `scale_loss` multiplies the loss by it, and `update` divides the
            gradients by it, so that those of 16 bits do not vanish; None for not at all.
        gradient_accumulation_steps: the weights move only every so many updates, by the mean
            gradient since; None for every time. Schedules and `count` count the updates asked for.
        exclude_from_weight_decay: names that occur in the paths of weights, such as "bias", or
            patterns with *, ? or [] for whole paths, such as "norm*/gamma"; these weights do not
            decay. Keras has a method of that name; its configurations cannot hold it.
        name: a word of your own.

    Raises:
        ValueError: for more than one of `clipnorm`, `clipvalue` and `global_clipnorm`.

    Example:
        >>> import fkeras as fk
        >>> class Signs(fk.optimizers.Optimizer):
        ...     def step(self, gradient, weight, slots, rate, count):
        ...         return -rate * gradient / abs(gradient), slots
        >>> Signs(learning_rate=0.1)
        Signs(0.1)
    """

    # whether `step` looks at the weights
    reads_weights: ClassVar[bool] = False

    learning_rate: LearningRate = option(default=0.001, convert=rate)
    weight_decay: OptionalReal = option(
        default=None, convert=real(minimum=0, optional=True), kw_only=True
    )
    clipnorm: OptionalReal = option(
        default=None, convert=real(above=0, infinite=True, optional=True), kw_only=True
    )
    clipvalue: OptionalReal = option(
        default=None, convert=real(above=0, infinite=True, optional=True), kw_only=True
    )
    global_clipnorm: OptionalReal = option(
        default=None, convert=real(above=0, infinite=True, optional=True), kw_only=True
    )
    use_ema: bool = option(default=False, convert=boolean, kw_only=True)
    ema_momentum: Real = option(default=0.99, convert=probability, kw_only=True)
    ema_overwrite_frequency: OptionalInteger = option(
        default=None, convert=integer(minimum=1, optional=True), kw_only=True
    )
    loss_scale_factor: OptionalReal = option(
        default=None, convert=real(above=0, optional=True), kw_only=True
    )
    gradient_accumulation_steps: OptionalInteger = option(
        default=None, convert=integer(minimum=2, optional=True), kw_only=True
    )
    exclude_from_weight_decay: Words = option(default=(), convert=words, kw_only=True)
    name: str | None = option(default=None, convert=text(optional=True), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = {
            "clipnorm": self.clipnorm,
            "clipvalue": self.clipvalue,
            "global_clipnorm": self.global_clipnorm,
        }
        given = [f"{name}={value}" for name, value in limits.items() if value is not None]
        if len(given) > 1:
            raise ValueError(
                f"{type(self).__name__}: expected at most one of clipnorm, clipvalue and "
                f"global_clipnorm, received {' and '.join(given)}. Leave out all but one."
            )

    def slots(self, weight: jax.Array) -> _Slots:
        """The first state of one weight: arrays by name."""
        return {}

    def slots_at(self, path: str, weight: jax.Array) -> _Slots:
        """As `slots`, where a weight's path matters too."""
        return self.slots(weight)

    def prepare(self, rate: jax.Array, count: jax.Array) -> Any:
        """What `step` receives as `rate`: all that depends on rate and count alone.

        It is computed once for all weights. By default it is the learning rate.
        """
        return rate

    def step(
        self, gradient: jax.Array, weight: jax.Array, slots: _Slots, rate: Any, count: jax.Array
    ) -> tuple[jax.Array, _Slots]:
        """What is added to one weight, and its next state.

        Args:
            gradient: the gradient, clipped.
            weight: the weight after weight decay.
            slots: its state.
            rate: what `prepare` made of the learning rate, a scalar.
            count: the number of this step as a float, counted from 1.
        """
        raise NotImplementedError(
            f"{type(self).__name__}: an optimizer needs its own step(gradient, weight, slots, "
            "rate, count). Write one that returns (delta, slots)."
        )

    def decay_at(self, path: str, weight: jax.Array, rate: jax.Array, decay: Any) -> Any:
        """The part that a step takes from a weight, a scalar, or None for nothing.

        Args:
            path: the weight's path.
            weight: the weight.
            rate: the learning rate.
            decay: `rate` times the weight decay, or None where the optimizer has none.
        """
        excluded = any(mentions(pattern, path) for pattern in self.exclude_from_weight_decay)
        return None if excluded else decay

    def scale_loss(self, loss: jax.Array, opt_state: Any) -> jax.Array:
        return loss if self.loss_scale_factor is None else scaled(loss, self.loss_scale_factor)

    def finalize(self, opt_state: Any, weights: Any) -> Any:
        if not self.use_ema:
            return weights
        return averaged(type(self).__name__, opt_state.slots[AVERAGE], weights)

    def _init(self, weights: Any) -> OptimizerState:
        return walk.init(self, weights)

    def _update(
        self, gradients: Any, state: OptimizerState, weights: Any = None
    ) -> tuple[Any, OptimizerState]:
        return walk.update(self, gradients, state, weights)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if not self.exclude_from_weight_decay:  # Keras's configurations have no such key
            del config["exclude_from_weight_decay"]
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The optimizer that `get_config`, of this package or of Keras, described.

        Raises:
            ValueError: for a key that this optimizer does not have.
        """
        # in older files of Keras None stands for an option that is off
        config = {k: v for k, v in config.items() if v is not None or k not in _NEVER_NONE}
        if isinstance(config.get("learning_rate"), Mapping):
            with within("learning_rate"):
                learning_rate = schedules.deserialize(config["learning_rate"], custom_objects)
            config["learning_rate"] = learning_rate
        elif isinstance(config.get("learning_rate"), float):
            config["learning_rate"] = _shortest(config["learning_rate"])
        return from_configuration(cls, config, custom_objects)


def _shortest(value: float) -> float:
    # Keras writes 0.001 as 0.0010000000474974513, what float32 makes of it
    single = np.float32(value)
    return float(str(single)) if float(single) == value else value
