"""Statistics of a batch, and what batch normalization computes from them: functions of arrays."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from fkeras.engine import align

_EPSILON = 1e-7


def moments(
    x: jax.Array, axis: int = -1, mask: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Computes mean and biased variance over all axes but `axis`.

    Args:
        x: array of shape (b, ..., c) in a type wide enough for sums.
        axis: the axis that is kept.
        mask: Boolean array with the axes of `x` but the last: False leaves a place out.

    Returns:
        Two arrays of shape (c,).

    Example:
        >>> import jax.numpy as jnp
        >>> moments(jnp.array([[1.0], [3.0]]))
        (Array([2.], dtype=float32), Array([1.], dtype=float32))
    """
    axes = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
    if mask is None:
        mean = jnp.mean(x, axes)
        # two passes: the mean of squares minus the squared mean loses all digits far from zero
        return mean, jnp.mean(jnp.square(x - align(mean, x.ndim, axis)), axes)
    kept = jnp.broadcast_to(mask.astype(bool)[..., None], x.shape)
    count = jnp.sum(kept, axes, dtype=x.dtype) + _EPSILON
    zero = jnp.zeros_like(x)
    mean = jnp.sum(jnp.where(kept, x, zero), axes) / count
    centred = jnp.where(kept, x - align(mean, x.ndim, axis), zero)
    return mean, jnp.sum(jnp.square(centred), axes) / count


def batch_normalization(
    x: jax.Array,
    mean: jax.Array,
    variance: jax.Array,
    gamma: jax.Array | None = None,
    beta: jax.Array | None = None,
    axis: int = -1,
    epsilon: float = 1e-3,
) -> jax.Array:
    """Computes `(x - mean) / sqrt(variance + epsilon) * gamma + beta` along `axis`.

    Args:
        x: array of shape (b, ..., c).
        mean: array of shape (c,).
        variance: array of shape (c,).
        gamma: array of shape (c,), or None for 1.
        beta: array of shape (c,), or None for 0.
        axis: the axis of `x` with size c.
        epsilon: added to the variance.

    Returns:
        An array like `x`.

    Example:
        >>> import jax.numpy as jnp
        >>> batch_normalization(jnp.array([[3.0]]), jnp.ones(1), jnp.ones(1), epsilon=0.0)
        Array([[2.]], dtype=float32)
    """
    scale = jax.lax.rsqrt(variance + epsilon)
    scale = scale if gamma is None else scale * gamma
    shift = -mean * scale
    shift = shift if beta is None else shift + beta
    return x * align(scale, x.ndim, axis) + align(shift, x.ndim, axis)


def inverse_root(square: jax.Array) -> jax.Array:
    """Computes `1 / sqrt(square)`; 0 with the gradient 0 where the square has overflowed.

    The gradient of `rsqrt` there is 0 times the gradient of the result, which may be infinite.

    Example:
        >>> import jax.numpy as jnp
        >>> inverse_root(jnp.array([4.0, jnp.inf]))
        Array([0.5, 0. ], dtype=float32)
    """
    infinite = jnp.isinf(square)
    root = jax.lax.rsqrt(jnp.where(infinite, jnp.ones_like(square), square))
    return jnp.where(infinite, jnp.zeros_like(root), root)


def moving_average(old: jax.Array, new: jax.Array, momentum: float) -> jax.Array:
    """Computes `old * momentum + new * (1 - momentum)`, in the dtype of `old`.

    Example:
        >>> import jax.numpy as jnp
        >>> moving_average(jnp.ones(1), jnp.zeros(1), 0.75)
        Array([0.75], dtype=float32)
    """
    return (old.astype(new.dtype) * momentum + new * (1.0 - momentum)).astype(old.dtype)


def renorm_correction(
    mean: jax.Array,
    stddev: jax.Array,
    renorm_mean: jax.Array,
    renorm_stddev: jax.Array,
    clipping: Mapping[str, float],
) -> tuple[jax.Array, jax.Array]:
    """Computes batch renormalization's `r = stddev / renorm_stddev` and `d`, free of gradients.

    Args:
        mean: the batch's mean, of shape (c,).
        stddev: the batch's standard deviation, of shape (c,).
        renorm_mean: the moving mean that training tracks, of shape (c,).
        renorm_stddev: the moving standard deviation that training tracks, of shape (c,).
        clipping: bounds `rmin` and `rmax` of r, and `dmax` of the absolute value of d.

    Returns:
        `(r, d)`, both of shape (c,): the normalized x becomes `x * r + d`.

    Example:
        >>> import jax.numpy as jnp
        >>> one, two = jnp.ones(1), jnp.full(1, 2.0)
        >>> renorm_correction(two, two, one, one, {"rmax": 1.5})
        (Array([1.5], dtype=float32), Array([1.], dtype=float32))
    """
    r = stddev / renorm_stddev
    d = (mean - renorm_mean) / renorm_stddev
    if clipping.get("rmin") is not None:
        r = jnp.maximum(r, clipping["rmin"])
    if clipping.get("rmax") is not None:
        r = jnp.minimum(r, clipping["rmax"])
    if clipping.get("dmax") is not None:
        d = jnp.clip(d, -clipping["dmax"], clipping["dmax"])
    return jax.lax.stop_gradient(r), jax.lax.stop_gradient(d)
