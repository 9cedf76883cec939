"""Schedule-free AdamW: averaging of the weights replaces a decreasing learning rate."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import integer, probability, real
from fkeras.engine.config.field_types import Integer, LearningRate, Real
from fkeras.engine.values.registry import named
from fkeras.optimizers.optimizer import Optimizer
from fkeras.optimizers.options import rate
from fkeras.optimizers.updates.numeric import moving_mean, power, root, working_dtype, zeros


class ScheduleFreeAdamW(Optimizer):
    """z -= rate * g / (sqrt(v_hat) + epsilon); w = (1 - beta_1) * z + beta_1 * mean of all z.

    The learning rate needs no schedule. The model holds w, where gradients are computed; as in
    Keras, evaluation uses w too.

    Args:
        beta_1: the share of the mean in w, above 0.
        warmup_steps: the number of steps in which the learning rate rises linearly from 0.
        Other arguments: those of `Adam` and `Optimizer`.

    Raises:
        ValueError: for a `beta_1` of 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.ScheduleFreeAdamW(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.5,  0.5], dtype=float32)

    References:
        Defazio et al. 2024, The Road Less Scheduled, https://arxiv.org/abs/2405.15682
    """

    reads_weights: ClassVar[bool] = True
    learning_rate: LearningRate = option(default=0.0025, convert=rate)
    beta_1: Real = option(default=0.9, convert=real(above=0, maximum=1))
    beta_2: Real = option(default=0.999, convert=probability)
    epsilon: Real = option(default=1e-8, convert=real(minimum=0))
    warmup_steps: Integer = option(default=0, convert=integer(minimum=0))

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        # a copy: jit may donate weights and state, and a buffer can be donated only once
        return {"momentum": jnp.array(weight, working_dtype(weight)), "velocity": zeros(weight)}

    def prepare(self, rate, count):
        warmup = jnp.minimum(count / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        return rate * warmup, 1.0 - power(self.beta_2, count), 1.0 / count

    def step(self, gradient, weight, slots, rate, count):
        rate, correction, share = rate
        z = slots["momentum"]
        v = moving_mean(slots["velocity"], jnp.square(gradient), self.beta_2)
        # computed from w and z, so that the mean needs no memory; the reason for beta_1 > 0
        mean = (weight - (1.0 - self.beta_1) * z) / self.beta_1
        z = z - rate * gradient / (root(v / correction) + self.epsilon)
        mean = (1.0 - share) * mean + share * z
        new_weight = (1.0 - self.beta_1) * z + self.beta_1 * mean
        return new_weight - weight, {"momentum": z, "velocity": v}


OPTIMIZERS = (named(ScheduleFreeAdamW, "schedulefreeadamw"),)
