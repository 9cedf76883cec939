"""Functions and optimizers of Keras 1 and 2 that Keras 3 lacks, by their names in saved models.

They have the names, but not the values, of functions and optimizers of Keras 3. Keras 2 adds epsilon
to the root of the mean square; Keras 3 adds epsilon before the root. The momentum of Keras 2's Nadam
grows 250 times more slowly. SGD, Adam, Adamax and Adadelta are unchanged.
"""

from __future__ import annotations

import types

import jax
import jax.numpy as jnp

from fkeras.engine import option
from fkeras.engine.config.converters import boolean, probability, real
from fkeras.engine.config.field_types import LearningRate, Real
from fkeras.optimizers import Optimizer
from fkeras.optimizers.adam import NesterovMoments
from fkeras.optimizers.options import rate
from fkeras.optimizers.updates.numeric import power, root, zeros


def keras2_hard_sigmoid(x: jax.Array) -> jax.Array:
    """Hard sigmoid of Keras 1 and 2: `0.2 * x + 0.5`, clipped to [0, 1].

    Keras 3's hard sigmoid is `relu6(x + 3) / 6`. To load a saved model with this function in
    another program, pass `custom_objects={"keras2_hard_sigmoid": keras2_hard_sigmoid}`.

    Returns:
        Array of the same shape, with values in [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_hard_sigmoid(jnp.array([-3.0, 0.0, 1.0]))
        Array([0. , 0.5, 0.7], dtype=float32)
    """
    # Recurrent layers of multi-backend Keras use this function by default.
    return jnp.clip(0.2 * x + 0.5, 0.0, 1.0)


def keras2_hinge(targets: jax.Array, predictions: jax.Array) -> jax.Array:
    """Returns the mean of `max(1 - targets * predictions, 0)` over the last axis.

    Keras 2.3 and later convert targets of 0 and 1 to -1 and 1 first; this function does not.

    Args:
        targets: array of -1 and 1.

    Returns:
        An array without the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_hinge(jnp.array([[1.0, -1.0]]), jnp.array([[0.5, 0.5]]))
        Array([1.], dtype=float32)
    """
    return jnp.mean(jnp.maximum(1.0 - targets * predictions, 0.0), axis=-1)


def keras2_squared_hinge(targets: jax.Array, predictions: jax.Array) -> jax.Array:
    """Returns the mean of `max(1 - targets * predictions, 0) ** 2` over the last axis.

    Args:
        targets: array of -1 and 1; targets of 0 and 1 are not converted.

    Returns:
        An array without the last axis.

    Example:
        >>> import jax.numpy as jnp
        >>> keras2_squared_hinge(jnp.array([[1.0, -1.0]]), jnp.array([[0.5, 0.5]]))
        Array([1.25], dtype=float32)
    """
    return jnp.mean(jnp.square(jnp.maximum(1.0 - targets * predictions, 0.0)), axis=-1)


class Keras2RMSprop(Optimizer):
    """RMSprop of Keras 2: w -= rate * g / (sqrt(v) + epsilon), v a moving mean of g ** 2.

    Other arguments are those of `Optimizer`.

    Args:
        learning_rate: a number, a schedule, or a function of the step.
        rho: decay rate of the mean square, from 0 to 1.
        epsilon: added to the root, against division by zero.
        centered: whether to divide by the root of the variance, v minus the squared mean gradient.

    Example:
        >>> import jax.numpy as jnp
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = Keras2RMSprop(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(1)
        Array([-1.6,  1.6], dtype=float32)
    """

    learning_rate: LearningRate = option(default=0.001, convert=rate)
    rho: Real = option(default=0.9, convert=probability)
    epsilon: Real = option(default=1e-7, convert=real(minimum=0))
    centered: bool = option(default=False, convert=boolean)

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        names = ["velocity", *(["average_gradient"] if self.centered else [])]
        return {name: zeros(weight) for name in names}

    def step(self, gradient, weight, slots, rate, count):
        v = self.rho * slots["velocity"] + (1.0 - self.rho) * jnp.square(gradient)
        new, variance = {"velocity": v}, v
        if self.centered:
            mean = self.rho * slots["average_gradient"] + (1.0 - self.rho) * gradient
            new["average_gradient"], variance = mean, v - jnp.square(mean)
        return -rate * gradient / (root(variance) + self.epsilon), new


class Keras2Adagrad(Optimizer):
    """Adagrad of Keras 2: w -= rate * g / (sqrt(s) + epsilon), s the sum of squared gradients.

    Other arguments are those of `Optimizer`.

    Args:
        learning_rate: a number, a schedule, or a function of the step.
        initial_accumulator_value: initial value of s.
        epsilon: added to the root, against division by zero.

    Example:
        >>> import jax.numpy as jnp
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = Keras2Adagrad(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(2)
        Array([-0.5,  0.5], dtype=float32)
    """

    learning_rate: LearningRate = option(default=0.01, convert=rate)
    initial_accumulator_value: Real = option(default=0.0, convert=real(minimum=0))
    epsilon: Real = option(default=1e-7, convert=real(minimum=0))

    def slots(self, weight: jax.Array) -> dict[str, jax.Array]:
        return {"accumulator": jnp.full_like(zeros(weight), self.initial_accumulator_value)}

    def step(self, gradient, weight, slots, rate, count):
        total = slots["accumulator"] + jnp.square(gradient)
        return -rate * gradient / (root(total) + self.epsilon), {"accumulator": total}


class Keras2Nadam(NesterovMoments):
    """Nadam of Keras 2: Adam with Nesterov momentum, with a momentum schedule for beta_1.

    The momentum of step t is beta_1 * (1 - 0.5 * 0.96 ** (schedule_decay * t)).

    Args:
        beta_1: decay rate of the mean gradient, and limit of the momentum schedule.
        schedule_decay: speed of the momentum schedule.

    Example:
        >>> import jax.numpy as jnp
        >>> weight = jnp.array([1.0, 2.0])
        >>> tx = Keras2Nadam(0.5).transformation()
        >>> tx.update(jnp.array([0.5, -4.0]), tx.init(weight), weight)[0].round(3)
        Array([-0.528,  0.528], dtype=float32)
    """

    learning_rate: LearningRate = option(default=0.002, convert=rate)
    schedule_decay: Real = option(default=0.004, convert=real(minimum=0))

    def _momentum(self, count: jax.Array) -> jax.Array:
        return self.beta_1 * (1.0 - 0.5 * power(0.96, count * self.schedule_decay))

    def prepare(self, rate, count):
        now, later = self._momentum(count), self._momentum(count + 1.0)
        return rate, now, later, 1.0 - power(self.beta_2, count)


OBJECTS = types.MappingProxyType(
    {
        value.__name__: value
        for value in (
            keras2_hard_sigmoid,
            keras2_hinge,
            keras2_squared_hinge,
            Keras2RMSprop,
            Keras2Adagrad,
            Keras2Nadam,
        )
    }
)
