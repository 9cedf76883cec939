"""Optimizers that divide the gradient by its past size: RMSprop, Adagrad, Adadelta, Adafactor."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import boolean, probability, real
from fkeras.engine.config.field_types import LearningRate, Real
from fkeras.engine.values.registry import named
from fkeras.optimizers.optimizer import Optimizer
from fkeras.optimizers.options import rate
from fkeras.optimizers.updates.numeric import quotient, root, zeros


class RMSprop(Optimizer):
    """RMSprop: w -= rate * g / sqrt(v + epsilon), where v is a moving mean of the squared gradient.

    Args:
        rho: the decay rate of the mean squared gradient.
        momentum: the share of the last update in the next update.
        centered: whether to subtract the square of the mean gradient from v, which gives an
            estimate of the variance.
        Other arguments: those of `Adam` and `Optimizer`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.RMSprop(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(1)
        Array([-1.6,  1.6], dtype=float32)

    References:
        Hinton 2012, Neural Networks for Machine Learning, lecture 6e
    """

    learning_rate: LearningRate = option(default=0.001, convert=rate)
    rho: Real = option(default=0.9, convert=probability)
    momentum: Real = option(default=0.0, convert=probability)
    epsilon: Real = option(default=1e-7, convert=real(minimum=0))
    centered: bool = option(default=False, convert=boolean)

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        names = ["velocity"]
        names += ["momentum"] if self.momentum else []
        names += ["average_gradient"] if self.centered else []
        return {name: zeros(weight) for name in names}

    def step(self, gradient, weight, slots, rate, count):
        # epsilon is inside the root, as in Keras
        v = self.rho * slots["velocity"] + (1.0 - self.rho) * jnp.square(gradient)
        new_slots, variance = {"velocity": v}, v
        if self.centered:
            mean = self.rho * slots["average_gradient"] + (1.0 - self.rho) * gradient
            new_slots["average_gradient"], variance = mean, v - jnp.square(mean)
        if "momentum" not in slots:
            return -rate * gradient / jnp.sqrt(variance + self.epsilon), new_slots
        step = rate * gradient / jnp.sqrt(variance + self.epsilon)
        new_slots["momentum"] = self.momentum * slots["momentum"] + step
        return -new_slots["momentum"], new_slots


class Adagrad(Optimizer):
    """Adagrad: w -= rate * g / sqrt(s + epsilon), where s is the sum of all squared gradients.

    Args:
        initial_accumulator_value: the initial value of s.
        Other arguments: those of `Adam` and `Optimizer`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Adagrad(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(2)
        Array([-0.42,  0.5 ], dtype=float32)

    References:
        Duchi et al. 2011, Adaptive Subgradient Methods,
        https://www.jmlr.org/papers/v12/duchi11a.html
    """

    learning_rate: LearningRate = option(default=0.001, convert=rate)
    initial_accumulator_value: Real = option(default=0.1, convert=real(minimum=0))
    epsilon: Real = option(default=1e-7, convert=real(minimum=0))

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        return {"accumulator": jnp.full_like(zeros(weight), self.initial_accumulator_value)}

    def step(self, gradient, weight, slots, rate, count):
        total = slots["accumulator"] + jnp.square(gradient)
        return -rate * gradient / jnp.sqrt(total + self.epsilon), {"accumulator": total}


class Adadelta(Optimizer):
    """Adadelta: w -= rate * g * rms(past updates) / rms(gradients), with moving mean squares.

    Args:
        learning_rate: a number, a schedule, or a function of the step; the paper has the rate 1.
        rho: the decay rate of both means.
        Other arguments: those of `Adam` and `Optimizer`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Adadelta(1.0).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(5)
        Array([-0.00141,  0.00141], dtype=float32)

    References:
        Zeiler 2012, Adadelta, https://arxiv.org/abs/1212.5701
    """

    learning_rate: LearningRate = option(default=0.001, convert=rate)
    rho: Real = option(default=0.95, convert=probability)
    epsilon: Real = option(default=1e-7, convert=real(minimum=0))

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        return {"accumulated_grad": zeros(weight), "accumulated_delta_var": zeros(weight)}

    def step(self, gradient, weight, slots, rate, count):
        rho, updates = self.rho, slots["accumulated_delta_var"]
        total = rho * slots["accumulated_grad"] + (1.0 - rho) * jnp.square(gradient)
        ratio = jnp.sqrt(updates + self.epsilon) / jnp.sqrt(total + self.epsilon)
        delta = -ratio * gradient
        # the mean of updates excludes the learning rate, as in the paper
        updates = rho * updates + (1.0 - rho) * jnp.square(delta)
        return rate * delta, {"accumulated_grad": total, "accumulated_delta_var": updates}


def _rms(x: jax.Array) -> jax.Array:
    return root(jnp.mean(jnp.square(x)))


class Adafactor(Optimizer):
    """Adam without momentum, with a factored mean square: a row and a column for each matrix.

    Args:
        beta_2_decay: the exponent of the mean square's decay rate 1 - t**beta_2_decay in step t.
        epsilon_1: the number added to squared gradients.
        epsilon_2: the lower bound of a weight's root mean square, which scales the weight's steps.
        clip_threshold: the upper bound of an update's root mean square.
        relative_step: accepted for Keras's configurations, without an effect: the learning rate is
            at most 1 / sqrt(t) in both cases.
        Other arguments: those of `Adam` and `Optimizer`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Adafactor(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.791,  0.791], dtype=float32)

    References:
        Shazeer and Stern 2018, Adafactor, https://arxiv.org/abs/1804.04235
    """

    reads_weights: ClassVar[bool] = True
    learning_rate: LearningRate = option(default=0.001, convert=rate)
    beta_2_decay: Real = option(default=-0.8, convert=real(maximum=0))
    epsilon_1: Real = option(default=1e-30, convert=real(minimum=0))
    epsilon_2: Real = option(default=1e-3, convert=real(minimum=0))
    clip_threshold: Real = option(default=1.0, convert=real(above=0))
    relative_step: bool = option(default=True, convert=boolean)

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        v = zeros(weight)
        # vectors cannot be factored; unused slots are scalars, so that all weights have the same
        # slot names
        if v.ndim < 2:
            return {
                "row": jnp.zeros_like(v, shape=()),
                "column": jnp.zeros_like(v, shape=()),
                "velocity": v,
            }
        column = jnp.zeros_like(v, shape=v.shape[:-2] + v.shape[-1:])
        # the outer product of row and column approximates the full mean square
        return {
            "row": jnp.zeros_like(v, shape=v.shape[:-1]),
            "column": column,
            "velocity": jnp.zeros_like(v, shape=()),
        }

    def step(self, gradient, weight, slots, rate, count):
        # Keras applies this limit for both values of `relative_step`
        limited_rate = jnp.minimum(rate, 1.0 / jnp.sqrt(count))
        alpha = jnp.maximum(_rms(weight), self.epsilon_2) * limited_rate
        square = jnp.square(gradient) + self.epsilon_1
        decay = 1.0 - jnp.power(count, self.beta_2_decay)
        if gradient.ndim < 2:
            v = decay * slots["velocity"] + (1.0 - decay) * square
            new_slots = slots | {"velocity": v}
        else:
            row = decay * slots["row"] + (1.0 - decay) * jnp.mean(square, axis=-1)
            column = decay * slots["column"] + (1.0 - decay) * jnp.mean(square, axis=-2)
            share = quotient(row, jnp.mean(row, axis=-1, keepdims=True))
            v = share[..., :, None] * column[..., None, :]
            new_slots = slots | {"row": row, "column": column}
        update = gradient / jnp.sqrt(v)
        update = update / jnp.maximum(_rms(update) / self.clip_threshold, 1.0)
        return -alpha * update, new_slots


OPTIMIZERS = (
    named(RMSprop, "rmsprop"),
    named(Adagrad, "adagrad"),
    named(Adadelta, "adadelta"),
    named(Adafactor, "adafactor"),
)
