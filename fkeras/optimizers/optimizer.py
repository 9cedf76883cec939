"""Base class of optimizers that apply one rule to each weight, with Keras's arguments.

A subclass defines the state of one weight (`slots`) and the update of one weight (`step`). The
common options are declared here; `updates.apply` implements them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np
import optax

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
from fkeras.optimizers.updates.paths import idle, mentions
from fkeras.optimizers.updates.state import AVERAGE, OptimizerState

_Slots = dict[str, jax.Array]
_NEVER_NONE = ("use_ema", "ema_momentum", "exclude_from_weight_decay")


class Optimizer(BaseOptimizer):
    """Base class of optimizers that apply one rule to each weight.

    Subclasses define `step`, and `slots` if a weight has state, both for a single weight.

    Args:
        learning_rate: a number, a schedule, or a function of the number of `update` calls.
        weight_decay: decoupled weight decay: each step first subtracts
            `learning_rate * weight_decay * weight` from each weight; None for no decay.
        clipnorm: the maximum Euclidean norm of each gradient.
        clipvalue: the maximum absolute value of a gradient's entries.
        global_clipnorm: the maximum Euclidean norm of all gradients together.
        use_ema: whether to keep a moving average of the weights. `ema_weights(opt_state)` returns
            the average, and `finalize` replaces the weights by the average.
        ema_momentum: the share of the old average in the new average.
        ema_overwrite_frequency: the number of steps after which the weights are overwritten by
            their average; None for overwriting in `finalize` only.
        loss_scale_factor: the factor by which `scale_loss` multiplies the loss and `update` divides
            the gradients, against underflow of 16-bit gradients; None for no scaling.
        gradient_accumulation_steps: the number of `update` calls per change of the weights, which
            uses the mean gradient of these calls; None for a change at each call. Schedules and
            `count` count the calls.
        exclude_from_weight_decay: weights without weight decay: names that occur in the weights'
            paths, such as "bias", or patterns with *, ? or [] for whole paths, such as
            "norm*/gamma". Keras has a method of this name, which its configurations do not record.
        name: label in the config; has no effect.

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

    # whether `step` reads the weights; other optimizers accept `update` without weights
    reads_weights: ClassVar[bool] = False
    _positional: ClassVar[tuple[str, ...]] = (
        "weight_decay",
        "clipnorm",
        "clipvalue",
        "global_clipnorm",
        "use_ema",
        "ema_momentum",
        "ema_overwrite_frequency",
        "loss_scale_factor",
        "gradient_accumulation_steps",
        "name",
    )

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
        active_limits = [f"{name}={value}" for name, value in limits.items() if value is not None]
        if len(active_limits) > 1:
            raise ValueError(
                f"{type(self).__name__}: expected at most one of clipnorm, clipvalue and "
                f"global_clipnorm, received {' and '.join(active_limits)}. Leave out all but one."
            )

    def slots(self, weight: jax.Array) -> _Slots:
        """Returns the initial state of one weight: arrays by name."""
        return {}

    def _slots_at(self, path: str, weight: jax.Array) -> _Slots:
        """Returns the initial state of the weight at `path`; by default the result of `slots`."""
        return self.slots(weight)

    def prepare(self, rate: jax.Array, count: jax.Array) -> Any:
        """Returns the argument `rate` of `step`: values that depend on rate and count alone.

        The values are computed once for all weights of a dtype. The default is the learning rate.
        """
        return rate

    def step(
        self, gradient: jax.Array, weight: jax.Array, slots: _Slots, rate: Any, count: jax.Array
    ) -> tuple[jax.Array, _Slots]:
        """Computes the update of one weight and its new state.

        Args:
            gradient: the gradient, after clipping.
            weight: the weight, after weight decay.
            slots: the weight's state.
            rate: the result of `prepare`, by default the learning rate, a scalar.
            count: the number of this step as a float, counted from 1.

        Returns:
            `(delta, slots)`: the array to add to the weight, and the new state.
        """
        raise NotImplementedError(
            f"{type(self).__name__}: missing method step(gradient, weight, slots, rate, count). "
            "Define a method that returns (delta, slots)."
        )

    def _decay_at(
        self, path: str, weight: jax.Array, rate: jax.Array, decay: jax.Array | None
    ) -> Any:
        """Returns the share of a weight that weight decay subtracts, a scalar; None for no decay.

        Args:
            path: the weight's path.
            weight: the weight.
            rate: the learning rate.
            decay: `rate` times the weight decay, or None for an optimizer without weight decay.
        """
        excluded = any(mentions(pattern, path) for pattern in self.exclude_from_weight_decay)
        return None if excluded else decay

    def _idle_names(self, paths: Sequence[str]) -> Iterator[str]:
        where = f"{type(self).__name__}: exclude_from_weight_decay"
        if self.weight_decay is not None:
            yield from idle(where, self.exclude_from_weight_decay, paths, mentions)

    def _canonical(self) -> Self:
        # the `step` of a user may read the learning rate from the optimizer
        if not type(self).__module__.startswith("fkeras."):
            return self
        rate = self.learning_rate if callable(self.learning_rate) else 0.0
        decay = None if self.weight_decay is None else 0.0
        return dataclasses.replace(self, learning_rate=rate, weight_decay=decay, name=None)

    def scale_loss(self, loss: jax.Array, opt_state: optax.OptState) -> jax.Array:
        return loss if self.loss_scale_factor is None else scaled(loss, self.loss_scale_factor)

    def finalize(self, opt_state: OptimizerState, weights: optax.Params) -> Any:
        if not self.use_ema:
            return weights
        return averaged(type(self).__name__, opt_state.slots[AVERAGE], weights)

    def _init(self, weights: optax.Params) -> OptimizerState:
        return walk.init(self, weights)

    def _update(
        self,
        gradients: optax.Updates,
        state: OptimizerState,
        weights: optax.Params | None = None,
        **extra: Any,
    ) -> tuple[Any, OptimizerState]:
        return walk.update(self, gradients, state, weights)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if not self.exclude_from_weight_decay:  # Keras rejects the unknown key
            del config["exclude_from_weight_decay"]
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates an optimizer from the data of `get_config`, of this package or of Keras.

        Raises:
            ValueError: for an unknown key.
        """
        # older Keras files write None for options that are off
        config = {k: v for k, v in config.items() if v is not None or k not in _NEVER_NONE}
        if isinstance(config.get("learning_rate"), Mapping):
            with within("learning_rate"):
                learning_rate = schedules.deserialize(config["learning_rate"], custom_objects)
            config["learning_rate"] = learning_rate
        elif isinstance(config.get("learning_rate"), float):
            config["learning_rate"] = _shortest(config["learning_rate"])
        return from_configuration(cls, config, custom_objects)


def _shortest(value: float) -> float:
    # Keras stores rates as float32 and writes 0.001 as 0.0010000000474974513
    single = np.float32(value)
    return float(str(single)) if float(single) == value else value
