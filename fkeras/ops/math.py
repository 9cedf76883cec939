"""Segment reductions, top-k, log-sum-exp, distances, error functions and signal processing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.layer.layer import Tensor
from fkeras.engine.symbolic.define import float_unary, op, to_array, to_floats
from fkeras.engine.symbolic.operation import Op
from fkeras.engine.values.argument_types import Axes
from fkeras.nn import signal
from fkeras.nn.numerics.stable import safe_sqrt, sign_and_logdet

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

rsqrt = float_unary("rsqrt", jax.lax.rsqrt, "1 / sqrt(x).", "rsqrt([4, 16])", "[0.5  0.25]")
erf = float_unary(
    "erf",
    jax.lax.erf,
    "2 / sqrt(pi) times the integral of exp(-t**2) from 0 to x.",
    "erf([-1.0, 0.0, 1.0]).round(2)",
    "[-0.84  0.    0.84]",
)
erfc = float_unary(
    "erfc",
    jax.lax.erfc,
    "1 - erf(x), exact for large x.",
    "erfc([0.0, 1.0]).round(2)",
    "[1.   0.16]",
)
erfinv = float_unary(
    "erfinv",
    jax.lax.erf_inv,
    "The number whose error function is x, from -1 to 1.",
    "erfinv([-0.5, 0.0, 0.5]).round(2)",
    "[-0.48  0.    0.48]",
)

# `fkeras.nn.signal` holds the docstrings too: `op` keeps the docstring of the function
extract_sequences = op(signal.extract_sequences)
fft = op(signal.fft)
fft2 = op(signal.fft2)
ifft2 = op(signal.ifft2)
rfft = op(signal.rfft)
irfft = op(signal.irfft)
stft = op(signal.stft)
istft = op(signal.istft)


if TYPE_CHECKING:

    class _Segments(Op[...]):
        @overload
        def __call__(
            self,
            data: Tensor | Sequence[Tensor],
            segment_ids: TensorLike,
            num_segments: int | None = None,
            sorted: bool = False,
            *,
            name: str | None = None,
        ) -> Tensor: ...

        @overload
        def __call__(
            self,
            data: TensorLike,
            segment_ids: Tensor,
            num_segments: int | None = None,
            sorted: bool = False,
            *,
            name: str | None = None,
        ) -> Tensor: ...

        @overload
        def __call__(
            self,
            data: TensorLike,
            segment_ids: TensorLike,
            num_segments: int | None = None,
            sorted: bool = False,
            *,
            name: str | None = None,
        ) -> jax.Array: ...

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

else:
    _Segments = Op


def _segments(
    name: str, function: Callable[..., jax.Array], doc: str, shown: list[int]
) -> _Segments:
    def reduce(
        data: TensorLike,
        segment_ids: TensorLike,
        num_segments: int | None = None,
        sorted: bool = False,
    ) -> jax.Array:
        data, segment_ids = jnp.asarray(data), jnp.asarray(segment_ids)
        # as with Keras on JAX: under jit, the size of a result cannot depend on values
        if num_segments is None:
            raise ValueError(
                f"{name}: expected num_segments, received None. The size of the result must be "
                "static: give num_segments=largest id + 1."
            )
        if segment_ids.ndim != 1:
            raise ValueError(
                f"{name}: expected segment_ids of shape (n,), received {segment_ids.shape}. Give "
                "one id for each element of the first axis of data."
            )
        return function(data, segment_ids, num_segments, indices_are_sorted=sorted)

    # the four operations share one implementation, so the docstring is generated
    reduce.__doc__ = f"""{doc}

    Args:
        data: (n, ...).
        segment_ids: the segment of each element along the first axis, (n,).
        num_segments: how many segments.
        sorted: whether the ids are in order, which is faster.

    Returns:
        An array of shape (num_segments, ...).

    Raises:
        ValueError: without `num_segments`, and for ids of another rank.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.{name}([2, 5, 4], [0, 0, 1], num_segments=2).tolist()
        {shown}
    """
    return _Segments(name, reduce)


segment_sum = _segments(
    "segment_sum", jax.ops.segment_sum, "The sum of each segment's elements.", [7, 4]
)
segment_max = _segments(
    "segment_max", jax.ops.segment_max, "The largest element of each segment.", [5, 4]
)
segment_min = _segments(
    "segment_min", jax.ops.segment_min, "The smallest element of each segment.", [2, 4]
)
segment_prod = _segments(
    "segment_prod", jax.ops.segment_prod, "The product of each segment's elements.", [10, 4]
)


@op
def top_k(x: TensorLike, k: int, sorted: bool = True) -> tuple[jax.Array, jax.Array]:
    """Returns `(values, indices)` of the k largest elements along the last axis, largest first.

    Args:
        k: number of elements.
        sorted: accepted for compatibility with Keras; the results are always sorted.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.top_k([3, 9, 5], 2)
        (Array([9, 5], dtype=int32), Array([1, 2], dtype=int32))
    """
    values, indices = jax.lax.top_k(to_array(x), k)
    return values, indices


@op
def in_top_k(targets: TensorLike, predictions: TensorLike, k: int) -> jax.Array:
    """Returns whether each target is among the k classes with the highest predictions.

    Args:
        targets: class numbers, (b,).
        predictions: (b, classes). A class tied with the k-th highest prediction counts.
        k: number of classes.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.in_top_k([0, 2], [[0.1, 0.7, 0.2], [0.1, 0.7, 0.2]], k=2)
        Array([False,  True], dtype=bool)
    """
    targets, predictions = jnp.asarray(targets), jnp.asarray(predictions)
    target_scores = jnp.take_along_axis(predictions, jnp.expand_dims(targets, -1), axis=-1)
    # a comparison with NaN is False, which would count a NaN target as the largest prediction
    target_scores = jnp.where(jnp.isnan(target_scores), -jnp.inf, target_scores)
    return jnp.sum(predictions > target_scores, axis=-1) < k


@op
def logsumexp(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> jax.Array:
    """Returns log(sum(exp(x))) along the axes, without overflow.

    If all elements are -inf, the result is -inf with a gradient of 0.

    Example:
        >>> import fkeras as fk
        >>> round(float(fk.ops.logsumexp([1000.0, 1000.0])), 2)
        1000.69
    """
    x = to_floats(x)
    axis = tuple(axis) if isinstance(axis, list) else axis
    top = jnp.max(x, axis=axis, keepdims=True, initial=-jnp.inf)
    # subtract a finite maximum: -inf - -inf is NaN; the gradient does not depend on the shift
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, jnp.zeros_like(top)))
    total = jnp.sum(jnp.exp(x - top), axis=axis, keepdims=True)
    # double `where`: log(0) must not enter the gradient
    is_empty = total == 0
    y = jnp.where(is_empty, -jnp.inf, jnp.log(jnp.where(is_empty, 1, total)) + top)
    return y if keepdims else jnp.squeeze(y, axis)


@op
def cdist(x: TensorLike, y: TensorLike) -> jax.Array:
    """Returns the Euclidean distances of all pairs of rows; the gradient is 0 at distance 0.

    Args:
        x: (..., n, d).
        y: (..., m, d).

    Returns:
        An array of shape (..., n, m).

    Raises:
        ValueError: if an array has less than two axes, or the sizes of the last axes differ.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.cdist([[0.0, 0.0]], [[3.0, 4.0], [0.0, 0.0]])
        Array([[5., 0.]], dtype=float32)
    """
    x, y = to_floats(x), to_floats(y)
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
        raise ValueError(
            f"cdist: expected shapes (..., n, d) and (..., m, d), received {x.shape} and "
            f"{y.shape}. Give both the same last axis."
        )
    gaps = jnp.expand_dims(x, -2) - jnp.expand_dims(y, -3)
    # differences instead of x @ y.T: squares of large norms would cancel; memory is (n, m, d)
    return safe_sqrt(jnp.sum(gaps * gaps, axis=-1))


@op
def logdet(x: TensorLike) -> jax.Array:
    """Returns the logarithm of the absolute determinant of square matrices.

    Example:
        >>> import fkeras as fk
        >>> round(float(fk.ops.logdet([[2.0, 0.0], [0.0, -3.0]])), 3)
        1.792
        >>> round(float(fk.ops.logdet([[2e-20, 1e-20], [1e-20, 3e-20]])), 3)
        -90.494
    """
    # from the factorization, since the determinant itself over- or underflows
    return sign_and_logdet(to_floats(x))[1]


@op
def view_as_complex(x: TensorLike) -> jax.Array:
    """Returns complex numbers from a last axis of real and imaginary parts.

    Args:
        x: (..., 2).

    Raises:
        ValueError: if the last axis does not have size 2.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.view_as_complex([[1.0, 2.0]])
        Array([1.+2.j], dtype=complex64)
    """
    x = jnp.asarray(x)
    if x.ndim < 1 or x.shape[-1] != 2:
        raise ValueError(
            f"view_as_complex: expected a last axis of size 2, real and imaginary parts, received "
            f"{x.shape}. Stack the two: fk.ops.stack([real, imag], axis=-1)."
        )
    # `lax.complex` accepts float32 and float64 only
    floats = x.astype("float32")
    return jax.lax.complex(floats[..., 0], floats[..., 1])


@op
def view_as_real(x: TensorLike) -> jax.Array:
    """Returns the real and imaginary parts of complex numbers on a new last axis.

    Args:
        x: array of any shape; real numbers have imaginary parts of 0.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.view_as_real([1.0 + 2.0j])
        Array([[1., 2.]], dtype=float32)
    """
    x = jnp.asarray(x)
    return jnp.stack((jnp.real(x), jnp.imag(x)), axis=-1)
