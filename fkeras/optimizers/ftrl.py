"""The optimizer Ftrl, for sparse linear models."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import real
from fkeras.engine.config.field_types import LearningRate, Real
from fkeras.engine.values.registry import named
from fkeras.optimizers.optimizer import Optimizer
from fkeras.optimizers.options import rate
from fkeras.optimizers.updates.numeric import zeros


class Ftrl(Optimizer):
    """Follow the regularized leader: the minimizer of all linearized past losses and penalties.

    Args:
        learning_rate_power: the exponent of the sum of squared gradients in the learning rate; 0
            for a constant rate.
        initial_accumulator_value: the initial value of the sum.
        l1_regularization_strength: the L1 penalty, which sets weights to 0.
        l2_regularization_strength: the L2 penalty, which keeps weights small.
        l2_shrinkage_regularization_strength: the L2 penalty on the current weights, added to the
            gradient.
        beta: a further L2 penalty, divided by the learning rate.
        Other arguments: those of `Adam` and `Optimizer`.

    Raises:
        ValueError: for a `learning_rate_power` above 0, or a negative initial value or penalty.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Ftrl(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(2)
        Array([-0.96,  0.34], dtype=float32)

    References:
        McMahan et al. 2013, Ad Click Prediction: a View from the Trenches,
        https://research.google.com/pubs/archive/41159.pdf
    """

    reads_weights: ClassVar[bool] = True
    learning_rate: LearningRate = option(default=0.001, convert=rate)
    learning_rate_power: Real = option(default=-0.5, convert=real(maximum=0))
    initial_accumulator_value: Real = option(default=0.1, convert=real(minimum=0))
    l1_regularization_strength: Real = option(default=0.0, convert=real(minimum=0))
    l2_regularization_strength: Real = option(default=0.0, convert=real(minimum=0))
    l2_shrinkage_regularization_strength: Real = option(default=0.0, convert=real(minimum=0))
    beta: Real = option(default=0.0, convert=real(minimum=0))

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        accumulator = jnp.full_like(zeros(weight), self.initial_accumulator_value)
        return {"accumulator": accumulator, "linear": zeros(weight)}

    def step(self, gradient, weight, slots, rate, count):
        power = -self.learning_rate_power
        total = slots["accumulator"] + jnp.square(gradient)
        old_power, new_power = jnp.power(slots["accumulator"], power), jnp.power(total, power)
        shrunk_gradient = gradient + 2.0 * self.l2_shrinkage_regularization_strength * weight
        linear = slots["linear"] + shrunk_gradient - (new_power - old_power) / rate * weight
        penalty = self.l2_regularization_strength + self.beta / (2.0 * rate)
        limit = self.l1_regularization_strength
        # closed-form minimizer; the weight is exactly 0 where |linear| is at most the L1 penalty
        new_weight = (jnp.clip(linear, -limit, limit) - linear) / (new_power / rate + 2.0 * penalty)
        return new_weight - weight, {"accumulator": total, "linear": linear}


OPTIMIZERS = (named(Ftrl, "ftrl"),)
