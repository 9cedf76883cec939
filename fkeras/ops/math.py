"""Sums by segments, the largest elements, distances, error functions, and signals' operations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras import signal
from fkeras.engine.operation import Op
from fkeras.ops._define import float_unary, op, to_array, to_floats
from fkeras.ops.linalg import safe_sqrt

__all__ = (
    "cdist",
    "erf",
    "erfc",
    "erfinv",
    "extract_sequences",
    "fft",
    "fft2",
    "ifft2",
    "in_top_k",
    "irfft",
    "istft",
    "logdet",
    "logsumexp",
    "rfft",
    "rsqrt",
    "segment_max",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "stft",
    "top_k",
    "view_as_complex",
    "view_as_real",
)

rsqrt = float_unary("rsqrt", jax.lax.rsqrt, "1 / sqrt(x).")
erf = float_unary("erf", jax.lax.erf, "The error function of x.")
erfc = float_unary("erfc", jax.lax.erfc, "1 - erf(x), exact for large x.")
erfinv = float_unary("erfinv", jax.lax.erf_inv, "The number whose error function is x.")

extract_sequences = op(signal.extract_sequences)
fft = op(signal.fft)
fft2 = op(signal.fft2)
ifft2 = op(signal.ifft2)
rfft = op(signal.rfft)
irfft = op(signal.irfft)
stft = op(signal.stft)
istft = op(signal.istft)


def _segments(name: str, function: Any, doc: str) -> Op:
    def reduce(
        data: Any, segment_ids: Any, num_segments: int | None = None, sorted: bool = False
    ) -> Any:
        data, segment_ids = jnp.asarray(data), jnp.asarray(segment_ids)
        if num_segments is None:
            raise ValueError(
                f"{name}: expected num_segments, received None. It is a size of the result, which "
                "must be known: give num_segments=largest id + 1."
            )
        if segment_ids.ndim != 1:
            raise ValueError(
                f"{name}: expected segment_ids of shape (n,), received {segment_ids.shape}. Give "
                "one id for each element of the first axis of data."
            )
        return function(data, segment_ids, num_segments, indices_are_sorted=sorted)

    reduce.__doc__ = f"""{doc}

    Args:
        data: (n, ...).
        segment_ids: the segment of each element along the first axis, (n,).
        num_segments: how many segments.
        sorted: whether the ids are in order, which is faster.
    """
    return Op(name, reduce)


segment_sum = _segments("segment_sum", jax.ops.segment_sum, "The sum of each segment's elements.")
segment_max = _segments("segment_max", jax.ops.segment_max, "The largest element of each segment.")
segment_min = _segments("segment_min", jax.ops.segment_min, "The least element of each segment.")
segment_prod = _segments("segment_prod", jax.ops.segment_prod, "The product of each segment.")


@op
def top_k(x: Any, k: int, sorted: bool = True) -> Any:
    """`(values, indices)` of the k largest elements along the last axis, largest first.

    Args:
        x: an array.
        k: how many.
        sorted: whether they are in order; they always are.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.top_k([3, 9, 5], 2)
        (Array([9, 5], dtype=int32), Array([1, 2], dtype=int32))
    """
    values, indices = jax.lax.top_k(to_array(x), k)
    return values, indices


@op
def in_top_k(targets: Any, predictions: Any, k: int) -> Any:
    """Whether each target is among the k classes with the highest predictions; ties count in.

    Args:
        targets: class numbers, (b,).
        predictions: (b, classes).
        k: how many classes.
    """
    targets, predictions = jnp.asarray(targets), jnp.asarray(predictions)
    own = jnp.take_along_axis(predictions, jnp.expand_dims(targets, -1), axis=-1)
    own = jnp.where(jnp.isnan(own), -jnp.inf, own)
    return jnp.sum(predictions > own, axis=-1) < k


@op
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) along the axes, without overflow.

    Where all elements are minus infinity the result is that too, and its gradient is 0.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.logsumexp([1000.0, 1000.0])
        Array(1000.6931, dtype=float32)
    """
    x = to_floats(x)
    axis = tuple(axis) if isinstance(axis, list) else axis
    top = jnp.max(x, axis=axis, keepdims=True, initial=-jnp.inf)
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, jnp.zeros_like(top)))
    total = jnp.sum(jnp.exp(x - top), axis=axis, keepdims=True)
    nothing = total == 0
    y = jnp.where(nothing, -jnp.inf, jnp.log(jnp.where(nothing, 1, total)) + top)
    return y if keepdims else jnp.squeeze(y, _all_axes(x) if axis is None else axis)


def _all_axes(x: jax.Array) -> tuple[int, ...]:
    return tuple(range(x.ndim))


@op
def cdist(x: Any, y: Any) -> Any:
    """The distances of all rows of x from all rows of y; gradients are 0 at distance 0.

    Args:
        x: (..., n, d).
        y: (..., m, d).

    Returns:
        An array of shape (..., n, m).
    """
    x, y = to_floats(x), to_floats(y)
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
        raise ValueError(
            f"cdist: expected shapes (..., n, d) and (..., m, d), received {x.shape} and "
            f"{y.shape}. Give both the same last axis."
        )
    gaps = jnp.expand_dims(x, -2) - jnp.expand_dims(y, -3)
    return safe_sqrt(jnp.sum(gaps * gaps, axis=-1))


@op
def logdet(x: Any) -> Any:
    """The logarithm of the absolute determinant of square matrices."""
    return jnp.linalg.slogdet(to_floats(x))[1]


@op
def view_as_complex(x: Any) -> Any:
    """Complex numbers out of a last axis of real and imaginary parts."""
    x = jnp.asarray(x)
    if x.ndim < 1 or x.shape[-1] != 2:
        raise ValueError(
            f"view_as_complex: expected a last axis of size 2, real and imaginary parts, received "
            f"{x.shape}. Stack the two: fk.ops.stack([real, imag], axis=-1)."
        )
    parts = x.astype("float32")
    return jax.lax.complex(parts[..., 0], parts[..., 1])


@op
def view_as_real(x: Any) -> Any:
    """Complex numbers as a new last axis of their real and imaginary parts."""
    x = jnp.asarray(x)
    return jnp.stack((jnp.real(x), jnp.imag(x)), axis=-1)
