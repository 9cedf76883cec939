"""Activations that multiply x by how open a gate is."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.registry import named


def silu(x: jax.Array) -> jax.Array:
    """x * sigmoid(x), also called swish.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.silu(jnp.array([0.0, 1.0])).round(3)
        Array([0.   , 0.731], dtype=float32)

    References:
        Elfwing et al. 2017, Sigmoid-Weighted Linear Units, https://arxiv.org/abs/1702.03118
    """
    return jax.nn.silu(x)


def hard_silu(x: jax.Array) -> jax.Array:
    """x * hard_sigmoid(x), also called hard swish.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.hard_silu(jnp.array([-1.5, 1.5]))
        Array([-0.375,  1.125], dtype=float32)

    References:
        Howard et al. 2019, Searching for MobileNetV3, https://arxiv.org/abs/1905.02244
    """
    return jax.nn.hard_silu(x)


def gelu(x: jax.Array, approximate: bool = False) -> jax.Array:
    """x times the normal distribution function at x; with `approximate` by a tanh.

    Args:
        approximate: whether a tanh stands for the distribution function: faster, off by up to 5e-4.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.activations.gelu(jnp.array([0.0, 1.0])).round(3)
        Array([0.   , 0.841], dtype=float32)

    References:
        Hendrycks and Gimpel 2016, Gaussian Error Linear Units, https://arxiv.org/abs/1606.08415
    """
    if not approximate:
        return jax.nn.gelu(x, approximate=False)
    # beyond 20 tanh is 1 in every precision, and the cube, which overflows, would make its slope NaN
    large = jnp.abs(x) > 20
    inner = jax.nn.gelu(jnp.where(large, jnp.zeros_like(x), x), approximate=True)
    return jnp.where(large, jnp.maximum(x, jnp.zeros_like(x)), inner)


def glu(x: jax.Array, axis: int = -1) -> jax.Array:
    """a * sigmoid(b) for the halves a, b of x along an axis.

    Args:
        x: any shape with an even size of `axis`, which is halved.
        axis: the axis of the halves.

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
    """x * tanh(softplus(x)).

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
