"""Functions with finite gradients and full range where JAX's functions have neither."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def safe_sqrt(x: jax.Array) -> jax.Array:
    """The square root whose gradient at 0 is 0, as for the length of a vector of zeros.

    Args:
        x: floating array of numbers of 0 or more.

    Example:
        >>> import jax
        >>> jax.grad(safe_sqrt)(0.0), jax.grad(safe_sqrt)(4.0)
        (Array(0., dtype=float32, weak_type=True), Array(0.25, dtype=float32, weak_type=True))
    """
    zero = x == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, x)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def standard_deviation(x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """The standard deviation along the axes, whose gradient where nothing varies is 0.

    Args:
        x: floating array.
        axis: the axis, several, or None for all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> jax.grad(standard_deviation)(jnp.ones(3))
        Array([0., 0., 0.], dtype=float32)
    """
    return jnp.std(x, axis=axis, keepdims=keepdims)


@standard_deviation.defjvp
def _standard_deviation_jvp(axis: Any, keepdims: bool, primals: tuple, tangents: tuple) -> Any:
    (x,), (tangent,) = primals, tangents
    y = jnp.std(x, axis=axis, keepdims=True)
    fine = jnp.isfinite(y)
    scale = jnp.where((y > 0) & fine, y, jnp.ones_like(y))
    # divided before the products: the squares of small deviations would be 0
    centred = x - jnp.mean(x, axis=axis, keepdims=True)
    share = jnp.where((y == 0) & fine, jnp.zeros_like(centred), centred / scale)
    share = jnp.where(fine, share, jnp.full_like(share, jnp.nan))
    slope = jnp.mean(jnp.real(jnp.conj(share) * tangent), axis=axis, keepdims=keepdims)
    return standard_deviation(x, axis, keepdims), slope.astype(y.dtype)


def finite_slopes(function: Callable) -> Callable:
    """An element-by-element function whose derivatives are 0 where they would not be finite.

    The value must be finite there: at the end of the domain (the root of 0, the arc cosine of 1)
    the derivative is infinite or does not exist, and times a gradient of 0 it would be NaN.

    Args:
        function: maps arrays, which broadcast, to an array.

    Example:
        >>> import jax
        >>> root = finite_slopes(jnp.sqrt)
        >>> float(root(0.0)), float(jax.grad(root)(0.0)), float(jax.grad(root)(4.0))
        (0.0, 0.0, 0.25)
    """
    compute = jax.custom_jvp(function)

    @compute.defjvp
    def rule(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        y = function(*primals)
        total = jnp.zeros_like(y)
        for place, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
            if tangent.dtype == jax.dtypes.float0:
                continue
            one = [place == other for other in range(len(primals))]

            def alone(x: Any, one: list = one) -> Any:
                return function(*(x if own else p for own, p in zip(one, primals, strict=True)))

            slope = jax.jvp(alone, (primal,), (jnp.ones_like(primal),))[1]
            slope = jnp.where(jnp.isfinite(y) & ~jnp.isfinite(slope), jnp.zeros_like(slope), slope)
            total = total + slope * tangent
        return y, total

    # a call outside of jit goes through a rule of differentiation in 0.3 ms, through jit in 5 us
    return jax.jit(compute, inline=True)


@jax.custom_jvp
def scale_by_power(x1: Any, x2: Any) -> jax.Array:
    """x1 * 2**x2 for integers x2; the derivative by x1 is 2**x2, wherever x1 lies.

    Example:
        >>> import jax
        >>> float(jax.grad(scale_by_power)(0.0, 3))
        8.0
    """
    return jnp.ldexp(x1, x2)


@scale_by_power.defjvp
def _scale_by_power_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    (x1, x2), (tangent, _) = primals, tangents
    y = scale_by_power(x1, x2)
    if tangent.dtype == jax.dtypes.float0:
        return y, np.zeros(y.shape, tangent.dtype)
    half = jnp.asarray(x2) // 2
    # two factors: 2**x2 may leave the range where the product does not
    for part in (half, x2 - half):
        tangent = tangent * jnp.ldexp(jnp.ones_like(y), part)
    return y, tangent


def magnitude(x: jax.Array) -> jax.Array:
    """A power of 2 near x, for scaling numbers without rounding; 1 where x is 0 or not finite.

    The power of 2 is a constant for derivatives.

    Args:
        x: floating array of numbers of 0 or more.

    Example:
        >>> import jax.numpy as jnp
        >>> print(magnitude(jnp.array([0.0, 3.0, 1e30, jnp.inf])) <= jnp.array([1, 4, 1e30, 1]))
        [ True  True  True  True]
    """
    x = jax.lax.stop_gradient(x)
    usual = (x > 0) & jnp.isfinite(x)
    exponent = jnp.frexp(jnp.where(usual, x, jnp.ones_like(x)))[1] - 1
    return jnp.ldexp(jnp.ones_like(x), exponent)


def vector_norm(x: jax.Array, order: float, axis: Any, keepdims: bool = False) -> jax.Array:
    """sum(|x|**order)**(1 / order), whose powers cannot leave the range of the dtype.

    Args:
        x: floating array.
        order: a finite number above 1.
        axis: the axis, several, or None for all.
        keepdims: whether the axes stay, with size 1.

    Example:
        >>> import jax.numpy as jnp
        >>> float(vector_norm(jnp.full(8, 1e30), 3, 0)) == float(jnp.float32(2e30))
        True
    """
    sizes = jnp.abs(x)
    unit = magnitude(jnp.max(sizes, axis=axis, keepdims=True, initial=0))
    powers = jnp.sum((sizes / unit) ** order, axis=axis, keepdims=True)
    none = powers == 0  # whose root has no finite slope
    norm = jnp.where(none, 0, jnp.where(none, 1, powers) ** (1.0 / order)) * unit
    return norm if keepdims else jnp.squeeze(norm, axis)


def sign_and_logdet(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The determinant's sign and the logarithm of its absolute value, however small that is.

    JAX takes the logarithm of a 2x2 determinant, which underflows long before the logarithm does.
    With a 1 more on the diagonal the matrix is of the sizes that it factorizes.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(sign_and_logdet(jnp.eye(2) * 1e-30)[1]), 3)
        -138.155
    """
    if x.ndim > 1 and x.shape[-2:] == (2, 2):
        more = [(0, 0)] * (x.ndim - 2) + [(0, 1), (0, 1)]
        x = jnp.pad(x, more).at[..., 2, 2].set(1)
    return tuple(jnp.linalg.slogdet(x))
