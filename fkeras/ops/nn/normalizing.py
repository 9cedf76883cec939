"""Moments and normalizations, with the names of `keras.ops.nn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import op, to_floats
from fkeras.engine.values.argument_types import Axes
from fkeras.nn.normalization import layer_normalization as _layer_normalization
from fkeras.nn.normalization import rms_normalization as _rms_normalization
from fkeras.nn.numerics.axes import align, canonical_axes
from fkeras.nn.numerics.stable import EPSILON, unit_vectors, vector_norm
from fkeras.nn.statistics import mean_and_variance
from fkeras.ops.numpy.reductions import axes_of

__all__ = (
    "batch_normalization",
    "layer_normalization",
    "moments",
    "normalize",
    "rms_normalization",
)

# Keras's default epsilon, without its global setting


@op
def moments(
    x: TensorLike, axes: Axes, keepdims: bool = False, synchronized: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Returns `(mean, variance)` along the axes, computed in at least float32.

    Args:
        keepdims: whether to keep the axes with size 1.
        synchronized: must be False. A sharded array is one array in JAX, so its moments always
            cover all devices.

    Raises:
        ValueError: if `synchronized` is true.

    Example:
        >>> import fkeras as fk
        >>> mean, variance = fk.ops.moments([[1.0], [3.0]], axes=0)
        >>> mean.tolist(), variance.tolist()
        ([2.0], [1.0])
    """
    if synchronized:
        raise ValueError(
            "moments: expected synchronized=False, received True. The moments of a sharded array "
            "already cover all devices. Leave it out."
        )
    x, axes = to_floats(x), axes_of(axes)
    if jnp.iscomplexobj(x):
        return jnp.mean(x, axes, keepdims=keepdims), jnp.var(x, axes, keepdims=keepdims)
    wide = _wide(x)
    positions = canonical_axes(axes, x.ndim)
    mean, variance = mean_and_variance(wide, positions)
    if not keepdims:
        mean, variance = jnp.squeeze(mean, positions), jnp.squeeze(variance, positions)
    if wide.dtype == x.dtype:
        return mean, variance
    # the mean fits into the dtype of x, but the variance may exceed float16's range: clip, as Keras
    # does, instead of returning infinity
    limit = float(jnp.finfo("float16").max)
    mean, variance = (jnp.clip(v, -limit, limit).astype(x.dtype) for v in (mean, variance))
    return mean, variance


def _wide(x: jax.Array) -> jax.Array:
    # sums and squares of 16-bit floats lose precision or overflow
    return x.astype("float32") if jnp.finfo(x.dtype).bits < 32 else x


@op
def batch_normalization(
    x: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    axis: int,
    offset: TensorLike | None = None,
    scale: TensorLike | None = None,
    epsilon: float = 1e-3,
) -> jax.Array:
    """Returns (x - mean) / sqrt(variance + epsilon) * scale + offset along one axis.

    Args:
        mean: (c,).
        variance: (c,).
        axis: the axis of size c.
        offset: (c,), or None for 0.
        scale: (c,), or None for 1.
        epsilon: added to the variance.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.batch_normalization([[1.0, 8.0]], [1.0, 2.0], [1.0, 9.0], axis=-1, epsilon=0.0)
        Array([[0., 2.]], dtype=float32)

    References:
        Ioffe and Szegedy, Batch normalization (2015), arxiv.org/abs/1502.03167.
    """
    x = jnp.asarray(x)
    mean, variance = (align(jnp.asarray(v), x.ndim, axis) for v in (mean, variance))
    # factor and shift have size c: x takes part in one multiplication and one addition only
    factor = jax.lax.rsqrt(variance + epsilon)
    if scale is not None:
        factor = factor * align(jnp.asarray(scale), x.ndim, axis)
    shift = -mean * factor
    if offset is not None:
        shift = shift + align(jnp.asarray(offset), x.ndim, axis)
    return x * factor + shift


@op
def layer_normalization(
    x: TensorLike,
    gamma: TensorLike | None = None,
    beta: TensorLike | None = None,
    axis: int | Sequence[int] = -1,
    epsilon: float | None = None,
    **kwargs: Any,
) -> jax.Array:
    """Returns (x - mean) / sqrt(variance + epsilon) * gamma + beta along the axes.

    Args:
        gamma: scale with the shape of the axes, or None for 1.
        beta: offset with the shape of the axes, or None for 0.
        axis: the axes.
        epsilon: added to the variance; None for 1e-7.
        **kwargs: Keras's deprecated `rms_scaling=True`: scales x without subtracting the mean.

    Raises:
        TypeError: if an argument is unknown.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.layer_normalization([[1.0, 3.0], [10.0, 30.0]]).round(3)
        Array([[-1.,  1.],
               [-1.,  1.]], dtype=float32)

    References:
        Ba et al., Layer normalization (2016), arxiv.org/abs/1607.06450.
    """
    scaling = kwargs.pop("rms_scaling", False)
    if kwargs:
        raise TypeError(
            f"layer_normalization: expected x, gamma, beta, axis and epsilon, received "
            f"{', '.join(kwargs)} too. Leave it out."
        )
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    epsilon = EPSILON if epsilon is None else epsilon
    gamma = None if gamma is None else jnp.asarray(gamma)
    # Keras ignores `beta` with `rms_scaling`
    beta = None if beta is None or scaling else jnp.asarray(beta)
    return _layer_normalization(jnp.asarray(x), gamma, beta, axes, epsilon, scaling)


@op
def rms_normalization(
    x: TensorLike,
    scale: TensorLike | None = None,
    axis: int | Sequence[int] = -1,
    epsilon: float | None = None,
) -> jax.Array:
    """Returns x / sqrt(mean(x**2) + epsilon) * scale along the axes.

    Args:
        scale: scale with the shape of the axes, or None for 1.
        axis: the axes.
        epsilon: added to the mean square; None for 1e-7.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.rms_normalization([[0.0, 0.0, 0.0, 4.0]]).round(3)
        Array([[0., 0., 0., 2.]], dtype=float32)

    References:
        Zhang and Sennrich, Root mean square layer normalization (2019), arxiv.org/abs/1910.07467.
    """
    epsilon = EPSILON if epsilon is None else epsilon
    scale = None if scale is None else jnp.asarray(scale)
    return _rms_normalization(jnp.asarray(x), scale, axis, epsilon)


@op
def normalize(
    x: TensorLike, axis: Axes = -1, order: int = 2, epsilon: float | None = None
) -> jax.Array:
    """Returns x divided by its norm along the axes; zeros stay 0, with finite gradients.

    Args:
        axis: the axes.
        order: the order p of the norm sum(|x|**p)**(1 / p).
        epsilon: lower bound of the norm; None for 1e-7.

    Raises:
        ValueError: if `order` is not a positive integer.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.normalize([[3.0, 4.0], [0.0, 0.0]])
        Array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    if not isinstance(order, int) or order < 1:
        raise ValueError(
            f"normalize: order: expected a positive integer, received {order!r}. 2 divides by the "
            "length, 1 by the sum of absolute values."
        )
    x = to_floats(x)
    # as in Keras, a scalar counts as a vector of one element
    x = x[None] if x.ndim == 0 else x
    epsilon = EPSILON if epsilon is None else epsilon
    wide, axis = _wide(x), axes_of(axis)
    if order == 2:
        return unit_vectors(wide, axis, epsilon).astype(x.dtype)
    if order == 1:
        norms = jnp.sum(jnp.abs(wide), axis=axis, keepdims=True)
    else:
        norms = vector_norm(wide, order, axis, keepdims=True)
    return (wide / jnp.maximum(norms, epsilon)).astype(x.dtype)
