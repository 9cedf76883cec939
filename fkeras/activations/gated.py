"""Gated activations: x times a gate between 0 and 1."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.registry import named


def silu(x: jax.Array) -> jax.Array:
    """Computes x * sigmoid(x), also called swish.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.silu(jnp.array([0.0, 1.0])).round(3)
        Array([0.   , 0.731], dtype=float32)

    References:
        Elfwing et al. 2017, Sigmoid-Weighted Linear Units, https://arxiv.org/abs/1702.03118
    """
    return jax.nn.silu(x)


def hard_silu(x: jax.Array) -> jax.Array:
    """Computes x * hard_sigmoid(x), also called hard swish.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.hard_silu(jnp.array([-1.5, 1.5]))
        Array([-0.375,  1.125], dtype=float32)

    References:
        Howard et al. 2019, Searching for MobileNetV3, https://arxiv.org/abs/1905.02244
    """
    return jax.nn.hard_silu(x)


def gelu(x: jax.Array, approximate: bool = False) -> jax.Array:
    """Computes x times the cumulative distribution function of the normal distribution at x.

    Args:
        approximate: whether to approximate the distribution function by a tanh, which is faster
            and has an error of up to 5e-4.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.gelu(jnp.array([0.0, 1.0])).round(3)
        Array([0.   , 0.841], dtype=float32)

    References:
        Hendrycks and Gimpel 2016, Gaussian Error Linear Units, https://arxiv.org/abs/1606.08415
    """
    if not approximate:
        return jax.nn.gelu(x, approximate=False)
    # jax.nn.gelu cubes x: for large x the cube overflows, and the derivative is 0 * inf = NaN;
    # above 20 the tanh is 1 in every precision, so relu is exact
    large = jnp.abs(x) > 20
    inner = jax.nn.gelu(jnp.where(large, jnp.zeros_like(x), x), approximate=True)
    return jnp.where(large, jnp.maximum(x, jnp.zeros_like(x)), inner)


def glu(x: jax.Array, axis: int = -1) -> jax.Array:
    """Computes a * sigmoid(b), where a and b are the halves of x along an axis.

    Args:
        x: array of any shape with an even size along `axis`; the result has half the size.
        axis: the axis to split.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.glu(jnp.array([3.0, 4.0, 0.0, 100.0]))
        Array([1.5, 4. ], dtype=float32)

    References:
        Dauphin et al. 2016, Language Modeling with Gated Convolutional Networks,
        https://arxiv.org/abs/1612.08083
    """
    return jax.nn.glu(x, axis)


def mish(x: jax.Array) -> jax.Array:
    """Computes x * tanh(softplus(x)).

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.mish(jnp.array([0.0, 1.0])).round(2)
        Array([0.  , 0.87], dtype=float32)

    References:
        Misra 2019, Mish, https://arxiv.org/abs/1908.08681
    """
    return x * jnp.tanh(jax.nn.softplus(x))


ACTIVATIONS = (
    named(silu, "swish"),
    named(hard_silu, "hard_swish"),
    named(gelu),
    named(glu),
    named(mish),
)
