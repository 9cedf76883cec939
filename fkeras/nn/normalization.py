"""Normalization of arrays: batch statistics, layers, groups, unit length, spectral norm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from fkeras.nn.numerics.axes import align
from fkeras.nn.numerics.dtypes import wide_dtype
from fkeras.nn.numerics.slopes import divide
from fkeras.nn.numerics.stable import EPSILON
from fkeras.nn.statistics import centred_and_variance, mean_and_variance

# factor of `unit_normalization`, as in Keras
_LARGEST = 1e12
# XLA's GPU compiler computes statistics and normalization of rows of at most this length in one kernel
_ROW = 1 << 14


def moments(
    x: jax.Array,
    axis: int = -1,
    mask: jax.Array | None = None,
    from_bfloat16: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Computes the mean and the biased variance over all axes except `axis`.

    Args:
        x: array of shape (b, ..., c) in a dtype wide enough for sums.
        mask: Boolean array with the axes of `x` except the last; False excludes a position.
        from_bfloat16: whether `x` was cast from bfloat16; see `mean_and_variance`.

    Returns:
        Two arrays of shape (c,).

    Example:
        >>> import jax.numpy as jnp
        >>> moments(jnp.array([[1.0], [3.0]]))
        (Array([2.], dtype=float32), Array([1.], dtype=float32))
    """
    axes = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
    if mask is None:
        mean, variance = mean_and_variance(x, axes, from_bfloat16=from_bfloat16)
        return jnp.squeeze(mean, axes), jnp.squeeze(variance, axes)
    counted = jnp.broadcast_to(mask.astype(bool)[..., None], x.shape)
    # as in Keras, epsilon in the count gives mean 0 if the mask excludes everything
    count = jnp.sum(counted, axes, dtype=x.dtype) + EPSILON
    zero = jnp.zeros_like(x)
    mean = jnp.sum(jnp.where(counted, x, zero), axes) / count
    centred = jnp.where(counted, x - align(mean, x.ndim, axis), zero)
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
        Other arguments: those of `layer_normalization`.

    Returns:
        An array like `x`.

    Example:
        >>> import jax.numpy as jnp
        >>> batch_normalization(jnp.array([[3.0]]), jnp.ones(1), jnp.ones(1), epsilon=0.0)
        Array([[2.]], dtype=float32)
    """
    # one multiply-add per element: scale and shift have only the size of the channels
    square = variance + epsilon
    # The gradient of a quotient reads the quotient, not gamma: XLA would copy a gamma that an optimizer updates before.
    scale = jax.lax.rsqrt(square) if gamma is None else divide(gamma, jnp.sqrt(square))
    shift = -mean * scale
    shift = shift if beta is None else shift + beta
    return x * align(scale, x.ndim, axis) + align(shift, x.ndim, axis)


def inverse_root(square: jax.Array) -> jax.Array:
    """Computes `1 / sqrt(square)`; value and gradient are 0 where the square overflows.

    There, the gradient of `rsqrt` would be 0 times the incoming gradient, which may be infinite.

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
    """Computes batch renormalization's `r = stddev / renorm_stddev` and `d`, without gradients.

    Args:
        mean: the batch's mean, of shape (c,).
        stddev: the batch's standard deviation, of shape (c,).
        renorm_mean: the moving mean that training tracks, of shape (c,).
        renorm_stddev: the moving standard deviation that training tracks, of shape (c,).
        clipping: bounds `rmin` and `rmax` of r, and `dmax` of the absolute value of d.

    Returns:
        `(r, d)`, both of shape (c,): batch renormalization replaces the normalized x by
        `x * r + d`.

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


def layer_normalization(
    x: jax.Array,
    gamma: jax.Array | None = None,
    beta: jax.Array | None = None,
    axis: Sequence[int] = (-1,),
    epsilon: float = 1e-3,
    rms_scaling: bool = False,
) -> jax.Array:
    """Computes `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over the axes `axis`.

    Args:
        x: array of shape (b, ...).
        gamma: array of the sizes of `x` on the axes `axis`, or None for 1.
        beta: array of the sizes of `x` on the axes `axis`, or None for 0.
        rms_scaling: whether to divide `x` without subtracting the mean. The divisor remains the
            standard deviation, as in Keras.

    Returns:
        An array of the shape and dtype of `x`, computed in float32 or float64.

    Example:
        >>> import jax.numpy as jnp
        >>> layer_normalization(jnp.array([[1.0, 3.0]]), epsilon=0.0)
        Array([[-1.,  1.]], dtype=float32)
    """
    axes = tuple(sorted(a % x.ndim for a in axis))
    return _compiled_normalization(x, gamma, beta, epsilon, axes, rms_scaling)


def _layer_normalization(
    x: jax.Array,
    gamma: jax.Array | None,
    beta: jax.Array | None,
    epsilon: float,
    axes: tuple[int, ...],
    rms_scaling: bool,
    of_x_alone: bool = True,
) -> jax.Array:
    """Computes `layer_normalization`; `of_x_alone` states that gamma and beta have no gradients."""
    dtype, length = x.dtype, x.shape[-1]
    # an unknown size is no `int`
    are_rows = axes == (x.ndim - 1,) and isinstance(length, int) and length <= _ROW
    options = {"from_bfloat16": dtype == jnp.bfloat16, "two_passes": of_x_alone and are_rows}
    x = x.astype(wide_dtype(dtype))
    centred, variance = centred_and_variance(x, axes, **options)
    scale = inverse_root(variance + epsilon)
    shape = [x.shape[a] if a in axes else 1 for a in range(x.ndim)]
    if gamma is not None:
        scale = scale * jnp.reshape(gamma, shape).astype(x.dtype)
    y = (x if rms_scaling else centred) * scale
    if beta is not None:
        y = y + jnp.reshape(beta, shape).astype(x.dtype)
    return y.astype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else y


_normalized = jax.custom_jvp(_layer_normalization, nondiff_argnums=(4, 5, 6))


def _normalized_jvp(
    axes: tuple[int, ...], rms_scaling: bool, _: bool, primals: tuple, tangents: tuple
) -> tuple[jax.Array, jax.Array]:
    places = [n for n, t in enumerate(tangents) if not (t is None or isinstance(t, SymbolicZero))]

    def of_places(*values: jax.Array) -> jax.Array:
        known: dict[int, Any] = dict(zip(places, values, strict=True))
        x, gamma, beta, epsilon = (known.get(n, x) for n, x in enumerate(primals))
        return _layer_normalization(x, gamma, beta, epsilon, axes, rms_scaling, places == [0])

    values, slopes = ([each[n] for n in places] for each in (primals, tangents))
    return jax.jvp(of_places, values, slopes)


_normalized.defjvp(_normalized_jvp, symbolic_zeros=True)
# as in `numerics.slopes`: without jit, each call of a custom rule would take .3 ms
_compiled_normalization = jax.jit(_normalized, static_argnums=(4, 5, 6), inline=True)


def rms_normalization(
    x: jax.Array,
    scale: jax.Array | None = None,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-6,
) -> jax.Array:
    """Computes `x / sqrt(mean(x²) + epsilon) * scale`, the mean over the axes `axis`.

    Args:
        scale: array of the sizes of `x` on the axes `axis`, or None for 1.
        axis: axis or axes that are normalized together.
        Other arguments: those of `layer_normalization`.

    Returns:
        An array of the shape and dtype of `x`, computed in float32 or float64.

    Example:
        >>> import jax.numpy as jnp
        >>> rms_normalization(jnp.array([[3.0, -3.0]]), epsilon=0.0)
        Array([[ 1., -1.]], dtype=float32)
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = tuple(sorted(a % x.ndim for a in axes))
    dtype = x.dtype
    x = x.astype(wide_dtype(dtype))
    squares = jnp.mean(jnp.square(x), axes, keepdims=True) + epsilon
    y = x * inverse_root(squares)
    if scale is not None:
        shape = [x.shape[a] if a in axes else 1 for a in range(x.ndim)]
        y = y * jnp.reshape(scale, shape).astype(x.dtype)
    return y.astype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else y


def group_normalization(
    x: jax.Array,
    groups: int,
    gamma: jax.Array | None = None,
    beta: jax.Array | None = None,
    axis: int = -1,
    epsilon: float = 1e-3,
) -> jax.Array:
    """Computes `(x - mean) / sqrt(variance + epsilon) * gamma + beta` over groups of channels.

    Mean and variance are separate for each sample, over all positions and the channels of a group.

    Args:
        x: array of shape (b, ..., c).
        gamma: array of shape (c,), or None for 1.
        beta: array of shape (c,), or None for 0.
        Other arguments: those of `layer_normalization`.

    Returns:
        An array of the shape and dtype of `x`, computed in float32 or float64.

    Example:
        >>> import jax.numpy as jnp
        >>> group_normalization(jnp.array([[1.0, 3.0, 5.0, 9.0]]), 2, epsilon=0.0)
        Array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    axis, dtype = axis % x.ndim, x.dtype
    x = x.astype(wide_dtype(dtype))
    positions = tuple(a for a in range(1, x.ndim) if a != axis)
    centred, variance = centred_and_variance(x, positions, (axis, groups))
    scale = inverse_root(variance + epsilon)
    if gamma is not None:
        scale = scale * align(gamma.astype(x.dtype), x.ndim, axis)
    y = centred * scale
    if beta is not None:
        y = y + align(beta.astype(x.dtype), x.ndim, axis)
    return y.astype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else y


def unit_normalization(x: jax.Array, axis: int | Sequence[int] = -1) -> jax.Array:
    """Computes `x / |x|`, with the norm over the axes `axis`; a zero vector stays zero.

    The gradient at a zero vector is 0: a zero vector has no direction.

    Args:
        axis: axis or axes of a vector.

    Returns:
        An array of the shape and dtype of `x`, computed in float32 or float64.

    Example:
        >>> import jax.numpy as jnp
        >>> unit_normalization(jnp.array([[3.0, 4.0], [0.0, 0.0]]))
        Array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    dtype = x.dtype
    x = x.astype(wide_dtype(dtype))
    square = jnp.sum(jnp.square(x), axes, keepdims=True)
    # the root has no derivative at 0, and even the branch not taken must not divide by 0
    empty = square == 0
    factor = jax.lax.rsqrt(jnp.where(empty, jnp.ones_like(square), square))
    factor = jnp.where(empty, jnp.zeros_like(factor), jnp.minimum(factor, _LARGEST))
    y = x * factor
    return y.astype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else y


# loops of at most this many iterations are unrolled
_STRAIGHT = 8


def _unit(vector: jax.Array) -> jax.Array:
    # the bounds keep a zero vector zero, without 0 / 0
    square = jnp.sum(jnp.square(vector))
    return vector * jnp.minimum(jax.lax.rsqrt(jnp.maximum(square, 1e-30)), 1e7)


def spectral_norm(
    kernel: jax.Array, vector_u: jax.Array, iterations: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Estimates the largest singular value of a kernel by power iteration.

    Args:
        kernel: array of shape (..., u), reshaped to a matrix with u columns.
        vector_u: array of shape (1, u), the initial estimate of the right singular vector.

    Returns:
        `(sigma, vector_u)`: the singular value, a scalar with a gradient for the kernel, and the
        next estimate of the vector, without a gradient. A kernel of zeros has sigma 0.

    References:
        Miyato et al., 2018, Spectral normalization, https://arxiv.org/abs/1802.05957

    Example:
        >>> import jax.numpy as jnp
        >>> sigma, u = spectral_norm(jnp.diag(jnp.array([3.0, 1.0])), jnp.array([[1.0, 1.0]]), 8)
        >>> round(float(sigma), 3), u.round(3)
        (3.0, Array([[1., 0.]], dtype=float32))
    """
    matrix = jnp.reshape(kernel, (-1, kernel.shape[-1]))
    # the paper treats the singular vectors as constants: only sigma is differentiated
    constant = jax.lax.stop_gradient(matrix)
    u = jax.lax.stop_gradient(vector_u)

    def apply(_: Any, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        v = _unit(pair[1] @ constant.T)
        return v, _unit(v @ constant)

    v, u = jax.lax.fori_loop(1, iterations, apply, apply(0, (u, u)), unroll=iterations <= _STRAIGHT)
    return (v @ matrix @ u.T)[0, 0], u
