"""Optimizers whose step is the gradient or a sign: SGD and Lion."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, probability, real
from fkeras.engine.config.field_types import LearningRate, Real
from fkeras.engine.values.registry import named
from fkeras.optimizers.optimizer import Optimizer
from fkeras.optimizers.options import rate
from fkeras.optimizers.updates.numeric import zeros


class SGD(Optimizer):
    """Gradient descent: w -= rate * g; with momentum m = momentum * m - rate * g and w += m.

    Args:
        momentum: the share of the last update in the next update.
        nesterov: whether to use Nesterov momentum: w += momentum * m - rate * g.
        Other arguments: those of `Adam` and `Optimizer`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.SGD(0.5, momentum=0.5).transformation()
        >>> delta, state = tx.update(jnp.array([0.5, -4.0]), tx.init(weight))
        >>> delta, tx.update(jnp.array([0.5, -4.0]), state)[0]
        (Array([-0.25,  2.  ], dtype=float32), Array([-0.375,  3.   ], dtype=float32))
    """

    learning_rate: LearningRate = option(default=0.01, convert=rate)
    momentum: Real = option(default=0.0, convert=probability)
    nesterov: bool = option(default=False, convert=boolean)

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        return {"momentum": zeros(weight)} if self.momentum else {}

    def step(self, gradient, weight, slots, rate, count):
        if "momentum" not in slots:
            return -rate * gradient, slots
        # as in Keras, m includes the learning rate: a new rate changes future gradients only
        m = self.momentum * slots["momentum"] - rate * gradient
        delta = self.momentum * m - rate * gradient if self.nesterov else m
        return delta, {"momentum": m}


class Lion(Optimizer):
    """Lion: w -= rate * sign(beta_1 * m + (1 - beta_1) * g); m = beta_2 * m + (1 - beta_2) * g.

    Args:
        learning_rate: a number, a schedule, or a function of the step; smaller than Adam's.
        beta_1: the weight of the mean gradient m in the sign, above 0: with 0 the update would ignore
            m.
        beta_2: the decay rate of the mean gradient.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Lion(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.5,  0.5], dtype=float32)

    References:
        Chen et al. 2023, Symbolic Discovery of Optimization Algorithms,
        https://arxiv.org/abs/2302.06675
    """

    learning_rate: LearningRate = option(default=0.001, convert=rate)
    beta_1: Real = option(default=0.9, convert=real(above=0, maximum=1))
    beta_2: Real = option(default=0.99, convert=probability)

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        return {"momentum": zeros(weight)}

    def step(self, gradient, weight, slots, rate, count):
        m = slots["momentum"]
        delta = -rate * jnp.sign(self.beta_1 * m + (1.0 - self.beta_1) * gradient)
        return delta, {"momentum": self.beta_2 * m + (1.0 - self.beta_2) * gradient}


OPTIMIZERS = (
    named(SGD, "sgd"),
    named(Lion, "lion"),
)
