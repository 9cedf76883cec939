"""Rectified linear units: the identity for positive x, smaller magnitudes for negative x."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.registry import named


def linear(x: jax.Array) -> jax.Array:
    """Returns x unchanged.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.linear(jnp.array([-1.0, 2.0]))
        Array([-1.,  2.], dtype=float32)
    """
    return x


def relu(
    x: jax.Array,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> jax.Array:
    """Computes max(x, 0), or min(x, max_value) above a threshold and a line below the threshold.

    At points where two parts meet the gradients equal Keras's: at 0 the gradient is 0 without
    options, and 1 with `negative_slope` alone.

    Args:
        negative_slope: the slope of `x - threshold` below the threshold.
        max_value: the maximum value; None for no limit.
        threshold: the point where the two parts meet.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.relu(jnp.array([-1.0, 2.0]))
        Array([0., 2.], dtype=float32)
        >>> fk.activations.relu(jnp.array([-1.0, 2.0, 9.0]), 0.5, max_value=6.0)
        Array([-0.5,  2. ,  6. ], dtype=float32)
    """
    if threshold == 0.0 and max_value is None:
        # for Keras's gradient at 0: leaky_relu has slope 1 there, as Keras's relu with a slope
        return leaky_relu(x, negative_slope) if negative_slope != 0.0 else jax.nn.relu(x)
    if threshold != 0.0:
        y = jnp.where(x > threshold, x, jnp.zeros_like(x))
    else:
        # relu and relu6 differ in their gradients at 0
        y = jax.nn.relu6(x) if max_value == 6 else jax.nn.relu(x)
    if max_value is not None and (threshold != 0.0 or max_value != 6):
        y = jnp.clip(y, jnp.zeros((), y.dtype), jnp.asarray(max_value, y.dtype))
    # returns early, since for x = -inf the product below would be 0 * inf = NaN
    if negative_slope == 0.0:
        return y
    return y - negative_slope * jax.nn.relu(jnp.asarray(threshold, x.dtype) - x)


def leaky_relu(x: jax.Array, negative_slope: float = 0.2) -> jax.Array:
    """Computes x for positive x, and negative_slope * x otherwise.

    Args:
        negative_slope: the slope below 0.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.leaky_relu(jnp.array([-1.0, 2.0]), 0.5)
        Array([-0.5,  2. ], dtype=float32)

    References:
        Maas et al. 2013, Rectifier Nonlinearities Improve Neural Network Acoustic Models,
        https://ai.stanford.edu/~amaas/papers/relu_hybrid_icml2013_final.pdf
    """
    return jax.nn.leaky_relu(x, negative_slope)


def relu6(x: jax.Array) -> jax.Array:
    """Computes min(max(x, 0), 6).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.relu6(jnp.array([-1.0, 2.0, 9.0]))
        Array([0., 2., 6.], dtype=float32)
    """
    return jax.nn.relu6(x)


def elu(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    """Computes x for positive x, and alpha * (exp(x) - 1) otherwise.

    Args:
        alpha: the negated limit for x towards -inf.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.elu(jnp.array([-1.0, 2.0])).round(2)
        Array([-0.63,  2.  ], dtype=float32)

    References:
        Clevert et al. 2015, Exponential Linear Units, https://arxiv.org/abs/1511.07289
    """
    return jax.nn.elu(x, alpha)


def celu(x: jax.Array, alpha: float = 1.0) -> jax.Array:
    """Computes max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)).

    Args:
        alpha: the negated limit for x towards -inf; the slope at 0 is 1 for every alpha.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.celu(jnp.array([-1.0, 2.0]), 0.5).round(3)
        Array([-0.432,  2.   ], dtype=float32)

    References:
        Barron 2017, Continuously Differentiable Exponential Linear Units,
        https://arxiv.org/abs/1704.07483
    """
    return jax.nn.celu(x, alpha)


def selu(x: jax.Array) -> jax.Array:
    """Computes 1.0507 * elu(x, 1.6733), which preserves mean 0 and variance 1 between layers.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.selu(jnp.array([-1.0, 1.0])).round(2)
        Array([-1.11,  1.05], dtype=float32)

    References:
        Klambauer et al. 2017, Self-Normalizing Neural Networks, https://arxiv.org/abs/1706.02515
    """
    return jax.nn.selu(x)


def threshold(x: jax.Array, threshold: float, default_value: float) -> jax.Array:
    """Returns x above the threshold, and `default_value` otherwise.

    Args:
        threshold: the largest number that is replaced.
        default_value: the replacement.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.threshold(jnp.array([0.5, 2.0]), 1.0, -1.0)
        Array([-1.,  2.], dtype=float32)
    """
    return jnp.where(x > threshold, x, jnp.asarray(default_value, x.dtype))


ACTIVATIONS = (
    named(linear),
    named(relu),
    named(leaky_relu),
    named(relu6),
    named(elu),
    named(celu),
    named(selu),
    named(threshold),
)
