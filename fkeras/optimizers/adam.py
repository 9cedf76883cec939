"""Adam and its variants: the mean gradient divided by a measure of the gradient's size."""

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
from fkeras.optimizers.updates.numeric import moving_mean, power, root, zeros


def adam_rate(rate: jax.Array, count: jax.Array, beta_1: float, beta_2: float) -> jax.Array:
    """Returns the learning rate with Adam's bias correction for moving means that start at 0."""
    return rate * jnp.sqrt(1.0 - power(beta_2, count)) / (1.0 - power(beta_1, count))


def adam_step(
    gradient: jax.Array,
    slots: dict[str, jax.Array],
    alpha: jax.Array,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Computes a step of Adam for one weight; a slot "velocity_hat" enables AMSGrad.

    Args:
        alpha: the learning rate with bias correction, from `adam_rate`.

    Returns:
        `(delta, slots)`: the update of the weight and the new state.
    """
    m = moving_mean(slots["momentum"], gradient, beta_1)
    v = moving_mean(slots["velocity"], jnp.square(gradient), beta_2)
    new_slots = {"momentum": m, "velocity": v}
    if "velocity_hat" in slots:
        v = new_slots["velocity_hat"] = jnp.maximum(slots["velocity_hat"], v)
    # as in Keras, epsilon is added before the bias correction; optax adds epsilon afterwards
    return -alpha * m / (root(v) + epsilon), new_slots


class _Moments(Optimizer):
    """Base class of optimizers with moving means of the gradient.

    Args of the family:
        learning_rate: a number, a schedule, or a function of the step.
        beta_1: the decay rate of the mean gradient.
        beta_2: the decay rate of the mean squared gradient.
        epsilon: the number that keeps the divisor above 0.
        Other arguments: those of `Optimizer`.
    """

    learning_rate: LearningRate = option(default=0.001, convert=rate)
    beta_1: Real = option(default=0.9, convert=probability)
    beta_2: Real = option(default=0.999, convert=probability)
    epsilon: Real = option(default=1e-7, convert=real(minimum=0))


class _Adam(_Moments):
    """Base class of Adam with and without weight decay.

    Args of the family:
        amsgrad: whether v is replaced by the maximum of all v so far (AMSGrad).
    """

    amsgrad: bool = option(default=False, convert=boolean)

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        slots = {"momentum": zeros(weight), "velocity": zeros(weight)}
        return slots | {"velocity_hat": zeros(weight)} if self.amsgrad else slots

    def prepare(self, rate, count):
        return adam_rate(rate, count, self.beta_1, self.beta_2)

    def step(self, gradient, weight, slots, rate, count):
        return adam_step(gradient, slots, rate, self.beta_1, self.beta_2, self.epsilon)


class Adam(_Adam):
    """Adam: w -= rate * sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (sqrt(v) + epsilon).

    m and v are moving means of the gradient and the squared gradient.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Adam(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.5,  0.5], dtype=float32)

    References:
        Kingma and Ba 2014, Adam, https://arxiv.org/abs/1412.6980
    """


class AdamW(_Adam):
    """`Adam` with decoupled weight decay: w -= rate * weight_decay * w before each step.

    Args:
        weight_decay: the decay of the weights per step, as a factor of the learning rate.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.AdamW(0.5, weight_decay=0.1).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.55,  0.4 ], dtype=float32)

    References:
        Loshchilov and Hutter 2017, Decoupled Weight Decay Regularization,
        https://arxiv.org/abs/1711.05101
    """

    _positional: ClassVar[tuple[str, ...]] = _Adam._positional[1:]

    weight_decay: Real = option(default=0.004, convert=real(minimum=0))


class Adamax(_Moments):
    """Adamax: w -= rate / (1 - beta_1**t) * m / (u + epsilon), u = max(beta_2 * u, |g|).

    Args:
        beta_2: the decay rate of the maximum u.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Adamax(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.5,  0.5], dtype=float32)

    References:
        Kingma and Ba 2014, Adam, https://arxiv.org/abs/1412.6980
    """

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        return {"momentum": zeros(weight), "norm": zeros(weight)}

    def prepare(self, rate, count):
        return rate, 1.0 - power(self.beta_1, count)

    def step(self, gradient, weight, slots, rate, count):
        rate, correction = rate
        m = moving_mean(slots["momentum"], gradient, self.beta_1)
        u = jnp.maximum(self.beta_2 * slots["norm"], jnp.abs(gradient))
        return -rate * m / (correction * (u + self.epsilon)), {"momentum": m, "norm": u}


class NesterovMoments(_Moments):
    """Base class of the Nadam of Keras 3 and of Keras 2, which differ in the momentum schedule.

    `prepare` returns the learning rate, the momentum of this step and of the next step, and the bias
    correction of the mean squared gradient.
    """

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        # the product of all betas so far; equal for all weights, but slots exist per weight only
        product = jnp.ones_like(zeros(weight), shape=())
        return {"momentum": zeros(weight), "velocity": zeros(weight), "product": product}

    def step(self, gradient, weight, slots, rate, count):
        rate, momentum, next_momentum, correction = rate
        product = slots["product"] * momentum
        m = moving_mean(slots["momentum"], gradient, self.beta_1)
        v = moving_mean(slots["velocity"], jnp.square(gradient), self.beta_2)
        m_hat = next_momentum * m / (1.0 - product * next_momentum) + (
            1.0 - momentum
        ) * gradient / (1.0 - product)
        delta = -rate * m_hat / (root(v / correction) + self.epsilon)
        return delta, {"momentum": m, "velocity": v, "product": product}


class Nadam(NesterovMoments):
    """`Adam` with Nesterov momentum and a beta_1 that increases from step to step.

    Args:
        beta_1: the final decay rate of the mean gradient.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Nadam(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.531,  0.531], dtype=float32)

    References:
        Dozat 2016, Incorporating Nesterov Momentum into Adam,
        https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ
    """

    def prepare(self, rate, count):
        # Dozat's momentum schedule, with Keras's constants
        momentum = self.beta_1 * (1.0 - 0.5 * power(0.96, count))
        next_momentum = self.beta_1 * (1.0 - 0.5 * power(0.96, count + 1.0))
        return rate, momentum, next_momentum, 1.0 - power(self.beta_2, count)


class Lamb(_Moments):
    """`Adam`'s direction, scaled to the Euclidean norm of each weight.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = fk.optimizers.Lamb(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.791,  0.791], dtype=float32)

    References:
        You et al. 2019, Large Batch Optimization for Deep Learning,
        https://arxiv.org/abs/1904.00962
    """

    reads_weights: ClassVar[bool] = True

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        return {"momentum": zeros(weight), "velocity": zeros(weight)}

    def prepare(self, rate, count):
        return rate, 1.0 - power(self.beta_1, count), 1.0 - power(self.beta_2, count)

    def step(self, gradient, weight, slots, rate, count):
        rate, correction_1, correction_2 = rate
        m = moving_mean(slots["momentum"], gradient, self.beta_1)
        v = moving_mean(slots["velocity"], jnp.square(gradient), self.beta_2)
        direction = m / correction_1 / (root(v / correction_2) + self.epsilon)
        weight_norm = root(jnp.sum(jnp.square(weight)))
        direction_norm = root(jnp.sum(jnp.square(direction)))
        # without a norm there is no ratio, so the step is Adam's; the inner where keeps 0 out of
        # the divisor, which would make derivatives NaN in the branch that is not selected
        has_norms = (weight_norm > 0) & (direction_norm > 0)
        ratio = jnp.where(has_norms, weight_norm / jnp.where(has_norms, direction_norm, 1.0), 1.0)
        return -(ratio * rate * direction), {"momentum": m, "velocity": v}


OPTIMIZERS = (
    named(Adam, "adam"),
    named(AdamW, "adamw"),
    named(Adamax, "adamax"),
    named(Nadam, "nadam"),
    named(Lamb, "lamb"),
)
