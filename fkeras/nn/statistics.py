"""Mean and variance: in two passes over the array on CPUs, in one pass on accelerators.

The variance is the mean square of the differences from the mean, so that an array is read for the mean and
again for the variance. The difference of the mean square and the squared mean needs one pass, which XLA
puts into the operation that makes the array, but far from zero this difference loses all digits. With a
shift c near the mean, E[(x - c)²] - E[x - c]², the difference loses about log2(1 + (mean - c)² / variance)
bits.

The shift is the mean of a part of the array, at least 1/16: then (mean - c)² is at most 15 times the
variance, whatever the values. On TPUs, where the sums join a convolution if the shift does not depend on
the result of the convolution, a caller may give a shift, such as a moving mean. If the shift turns out to be
farther than 4 standard deviations from the mean, the variance is computed in two passes.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.cpu.forms import Form, compute

# the mean of 1 / _PART of the elements is the shift
_PART = 16
# (mean - shift)² / variance of a shift that loses no more digits than the mean of a part
_FAR = 16.0


def mean_and_variance(
    x: jax.Array, axes: tuple[int, ...], shift: jax.Array | None = None, epsilon: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Returns the mean and the biased variance along some axes, which keep the size 1.

    The derivatives are those of the formulas, whatever the passes: they read the array once.

    Args:
        x: array in a dtype wide enough for sums.
        axes: axes from 0.
        shift: an estimate of the mean that does not depend on `x`, with the shape of the result, or
            None.
        epsilon: the number that is added to the variance: smaller differences do not matter.

    Example:
        >>> mean_and_variance(jnp.array([[1.0, 3.0]]), (1,))
        (Array([[2.]], dtype=float32), Array([[1.]], dtype=float32))
    """
    if not axes:
        return x, jnp.zeros_like(x)
    return _moments(axes, epsilon, x, shift)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _moments(
    axes: tuple[int, ...], epsilon: float, x: jax.Array, shift: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    shifts = () if shift is None else (shift,)
    mean = compute(_Mean(axes), x, *shifts)
    return mean, compute(_Variance(axes, epsilon), x, mean, *shifts)


@_moments.defjvp
def _moments_jvp(axes: tuple[int, ...], epsilon: float, primals: Any, tangents: Any) -> Any:
    (x, shift), (tangent, _) = primals, tangents
    mean, variance = _moments(axes, epsilon, x, shift)
    slope = 2 * jnp.mean((x - mean) * tangent, axes, keepdims=True)
    return (mean, variance), (jnp.mean(tangent, axes, keepdims=True), slope)


@dataclasses.dataclass(frozen=True)
class _Mean(Form):
    """The mean of an array; the second operand, if any, is a shift."""

    axes: tuple[int, ...]

    def default(self, x: jax.Array, *_: jax.Array) -> jax.Array:
        # the sum that `_Variance` needs, so that XLA computes no third sum
        part = mean_of_part(x, self.axes)
        return part + jnp.mean(x - part, self.axes, keepdims=True)

    def fast(self, x: jax.Array, *_: jax.Array) -> jax.Array:
        return jnp.mean(x, self.axes, keepdims=True)

    def tpu(self, x: jax.Array, *shift: jax.Array) -> jax.Array:
        # a shift may be too far for a mean of differences
        return self.fast(x) if shift else self.default(x)


@dataclasses.dataclass(frozen=True)
class _Variance(Form):
    """The variance of an array; the operands are the array, its mean, and a shift, if any."""

    axes: tuple[int, ...]
    epsilon: float

    def default(self, x: jax.Array, *_: jax.Array) -> jax.Array:
        return self._shifted(x, mean_of_part(x, self.axes))

    def fast(self, x: jax.Array, mean: jax.Array, *_: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(x - mean), self.axes, keepdims=True)

    def tpu(self, x: jax.Array, mean: jax.Array, *shift: jax.Array) -> jax.Array:
        if not shift:
            return self.default(x, mean)
        variance = self._shifted(x, *shift)
        # false for a shift of NaN
        near = jnp.square(mean - shift[0]) <= _FAR * (variance + self.epsilon)
        return jax.lax.cond(jnp.all(near), lambda *_: variance, self.fast, x, mean)

    def _shifted(self, x: jax.Array, shift: jax.Array) -> jax.Array:
        difference = x - shift
        mean = jnp.mean(difference, self.axes, keepdims=True)
        square = jnp.mean(jnp.square(difference), self.axes, keepdims=True)
        # squares that overflow give infinity, as in two passes, not infinity - infinity
        return jnp.where(jnp.isinf(square), square, jnp.maximum(square - jnp.square(mean), 0))


def mean_of_part(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Returns the mean of at least 1/16 of the elements along the axes, which keep the size 1.

    Example:
        >>> mean_of_part(jnp.arange(64.0), (0,))
        Array([1.5], dtype=float32)
    """
    # of an axis without a known size the first element
    sizes = {axis: n if isinstance(n, int) else 1 for axis, n in enumerate(x.shape) if axis in axes}
    long = [axis for axis, size in sizes.items() if size >= _PART]
    axis = long[0] if long else max(sizes, key=lambda a: sizes[a])
    part = jax.lax.slice_in_dim(x, 0, -(-sizes[axis] // _PART), axis=axis)
    return jnp.mean(part, axes, keepdims=True)
