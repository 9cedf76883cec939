"""Rounding to 8-bit floats, with scales from the maximum magnitudes of past steps.

References:
    Micikevicius et al., FP8 formats for deep learning (2022), https://arxiv.org/abs/2209.05433
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

#: the dtypes of values and of gradients, which need a larger range and less precision
VALUES, GRADIENTS = "float8_e4m3fn", "float8_e5m2"


def _max_value(dtype: str) -> float:
    return float(jnp.finfo(dtype).max)


def quantize_and_dequantize(x: jax.Array, scale: jax.Array, quantized_dtype: str) -> jax.Array:
    """Computes `round8(x / scale) * scale`, clipped to the range of the 8-bit dtype.

    Args:
        x: an array of floats.
        scale: the scale, a scalar.
        quantized_dtype: "float8_e4m3fn" or "float8_e5m2".

    Returns:
        An array of the shape and dtype of `x`.

    Example:
        >>> import jax.numpy as jnp
        >>> quantize_and_dequantize(jnp.array([0.3, 1e6]), jnp.float32(1), "float8_e4m3fn")
        Array([3.125e-01, 4.480e+02], dtype=float32)
    """
    # clipped before the cast: float8_e4m3fn has no inf, and the cast of larger numbers is NaN
    scale, max_value = scale.astype(x.dtype), _max_value(quantized_dtype)
    return (
        jnp.clip(x / scale, -max_value, max_value).astype(quantized_dtype).astype(x.dtype) * scale
    )


def compute_float8_scale(
    amax: jax.Array, scale: jax.Array, dtype_max: float, margin: int = 0
) -> jax.Array:
    """Computes `amax * 2**margin / dtype_max`, or the old scale if `amax` is 0 or not finite.

    Args:
        amax: the maximum magnitude of the recent steps.
        scale: the current scale.
        dtype_max: the largest number of the 8-bit dtype.
        margin: the number of powers of two to leave free above `amax`.

    Example:
        >>> import jax.numpy as jnp
        >>> compute_float8_scale(jnp.float32(896), jnp.float32(1), 448.0)
        Array(2., dtype=float32)
    """
    # reciprocals, as in Keras, for equal rounding
    old = 1 / scale
    new = dtype_max / amax / 2**margin
    new = jnp.where(amax > 0, new, old)
    return 1 / jnp.where(jnp.isfinite(amax), new, old)


def compute_float8_amax_history(x: jax.Array, amax_history: jax.Array) -> jax.Array:
    """Rotates the history by one entry and stores `max(|x|)` in the first entry.

    Args:
        x: an array.
        amax_history: the maximum magnitudes of past calls, of shape (length,).

    Example:
        >>> import jax.numpy as jnp
        >>> compute_float8_amax_history(jnp.array([-3.0, 2.0]), jnp.array([1.0, 0.5, 0.2]))
        Array([3. , 0.2, 1. ], dtype=float32)
    """
    seen = jnp.max(jnp.abs(x)).astype(amax_history.dtype)
    return jnp.roll(amax_history, -1).at[0].set(seen)


def _update_statistics(x: jax.Array, scale: jax.Array, history: jax.Array, dtype: str) -> tuple:
    """Returns the scale and the history after a step with the array `x`."""
    # the scale uses the old history: this step's maximum applies from the next step on
    scale = compute_float8_scale(jnp.max(history), scale, _max_value(dtype))
    return scale, compute_float8_amax_history(x, history)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def round_values(x: jax.Array, scale: jax.Array, history: jax.Array, moves: bool) -> jax.Array:
    """Rounds `x` to 8 bits; the gradient of `x` passes unchanged.

    The "gradients" of scale and history are their new values, or with `moves=False` the current
    values. Training overwrites these weights with their gradients, as in Keras, since a custom VJP
    cannot return updates in another way.
    """
    return quantize_and_dequantize(x, scale, VALUES)


def _round_values(x: jax.Array, scale: jax.Array, history: jax.Array, moves: bool) -> tuple:
    statistics = _update_statistics(x, scale, history, VALUES) if moves else (scale, history)
    return round_values(x, scale, history, moves), statistics


def _pass_gradients(moves: bool, statistics: tuple, gradient: jax.Array) -> tuple:
    return gradient, *statistics


round_values.defvjp(_round_values, _pass_gradients)


@jax.custom_vjp
def round_gradients(y: jax.Array, scale: jax.Array, history: jax.Array) -> jax.Array:
    """Returns `y` unchanged and rounds its gradient to 8 bits, with scales as in `round_values`."""
    return y


def _keep(y: jax.Array, scale: jax.Array, history: jax.Array) -> tuple:
    return y, (scale, history)


def _rounded(statistics: tuple, gradient: jax.Array) -> tuple:
    scale, history = statistics
    new_statistics = _update_statistics(gradient, scale, history, GRADIENTS)
    return quantize_and_dequantize(gradient, scale, GRADIENTS), *new_statistics


round_gradients.defvjp(_keep, _rounded)
