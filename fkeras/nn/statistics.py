"""Mean and variance: in two passes over the array on CPUs, in one pass on accelerators.

The variance is the mean square of the differences from the mean, so that an array is read for the mean and
again for the variance. The difference of the mean square and the squared mean needs one pass, which XLA
puts into the operation that makes the array, but far from zero this difference loses all digits. With a
shift c near the mean, E[(x - c)²] - E[x - c]², the difference loses about log2(1 + (mean - c)² / variance)
bits.

The shift is the mean of a part of the array, at least 1/16: then (mean - c)² is at most 15 times the
variance, whatever the values. TPUs need no shift: one reduction merges the counts, means and sums of squared
differences of the parts of the array (`_merged`). The reduction joins no convolution. On TPUs, a caller may
give a shift that does not depend on the result of a convolution, such as a moving mean: then the sums join
the convolution. If the shift turns out to be farther than 4 standard deviations from the mean, the variance is
computed in two passes. Over a small array this check takes longer than a second pass, so there are always two.

Values cast from bfloat16 have 8 significant bits, and the sums in float32 have 24. For these values there is no second
pass: one pass with the given shift or 0, whichever is nearer to the mean, has a smaller error than the rounding to
bfloat16, unless almost all values are equal. By the estimate of the TPU's compiler, the conditional of a second pass
adds 37 % to the cycles of a convolutional network. Without a shift, sums of squares that are split into exact parts
(`of_bfloat16`) have errors below 0.2 %, which is the rounding of a result to bfloat16, whatever the values. Unlike the
reduction of tuples, these sums join the product that makes the array.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.cpu.forms import Form, On, compute

# the mean of 1 / _PART of the elements is the shift
_PART = 16
# bytes of an array whose second pass takes a TPU less time than the check of the shift, by its compiler
_SMALL = 1 << 20
# elements whose squares in bfloat16 have an exact sum
_EXACT = 1 << 12
# lanes of a TPU register, which the last axis fills
_LANES = 128
# (mean - shift)² / variance of a shift that loses no more digits than the mean of a part
_FAR = 16.0


def mean_and_variance(
    x: jax.Array,
    axes: tuple[int, ...],
    shift: jax.Array | None = None,
    epsilon: float = 0.0,
    groups: tuple[int, int] | None = None,
    from_bfloat16: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Returns the mean and the biased variance along some axes, which keep the size 1.

    The derivatives are those of the formulas, whatever the passes: they read the array once.

    Args:
        x: array in a dtype wide enough for sums.
        axes: axes from 0.
        shift: an estimate of the mean that does not depend on `x`, with the shape of the result, or
            None.
        epsilon: the number that is added to the variance: smaller differences do not matter.
        groups: `(axis, number)`: the positions of this axis form groups, each of which has one mean and
            one variance. The axis keeps its size; there is no shift.
        from_bfloat16: whether `x` was cast from bfloat16: one pass is then exact enough.

    Example:
        >>> mean_and_variance(jnp.array([[1.0, 3.0]]), (1,))
        (Array([[2.]], dtype=float32), Array([[1.]], dtype=float32))
        >>> mean_and_variance(jnp.array([[1.0, 3.0]]), (), groups=(1, 1))
        (Array([[2., 2.]], dtype=float32), Array([[1., 1.]], dtype=float32))
    """
    if not axes and groups is None:
        return x, jnp.zeros_like(x)
    return _moments(axes, epsilon, groups, from_bfloat16, x, shift)


def centred_and_variance(
    x: jax.Array,
    axes: tuple[int, ...],
    groups: tuple[int, int] | None = None,
    from_bfloat16: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Returns an array minus its mean along some axes, and the biased variance.

    The arguments are those of `mean_and_variance`. The gradient takes one pass on accelerators, and on CPUs
    two passes that keep one array.

    Example:
        >>> centred_and_variance(jnp.array([[1.0, 3.0]]), (1,))
        (Array([[-1.,  1.]], dtype=float32), Array([[1.]], dtype=float32))
    """
    return _centred(axes, groups, from_bfloat16, x)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _centred(
    axes: tuple[int, ...], groups: tuple[int, int] | None, from_bfloat16: bool, x: jax.Array
) -> tuple[jax.Array, jax.Array]:
    mean, variance = mean_and_variance(x, axes, groups=groups, from_bfloat16=from_bfloat16)
    return x - mean, variance


@_centred.defjvp
def _centred_jvp(
    axes: tuple[int, ...],
    groups: tuple[int, int] | None,
    from_bfloat16: bool,
    primals: Any,
    tangents: Any,
) -> Any:
    ((x,), (tangent,)) = primals, tangents
    centred, variance = _centred(axes, groups, from_bfloat16, x)
    centred_tangent = tangent - _mean(tangent, axes, groups)
    # The sum of `centred` is 0, so both tangents give the same slope. The gradient of the first needs one
    # array, whose mean is subtracted in place; that of the second needs no second pass.
    chosen = jnp.where(compute(On("cpu")), centred_tangent, tangent)
    return (centred, variance), (centred_tangent, 2 * _mean(centred * chosen, axes, groups))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _moments(
    axes: tuple[int, ...],
    epsilon: float,
    groups: tuple[int, int] | None,
    from_bfloat16: bool,
    x: jax.Array,
    shift: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    shifts = () if shift is None else (shift,)
    mean = compute(_Mean(axes, groups, from_bfloat16), x, *shifts)
    return mean, compute(_Variance(axes, groups, epsilon, from_bfloat16), x, mean, *shifts)


@_moments.defjvp
def _moments_jvp(
    axes: tuple[int, ...],
    epsilon: float,
    groups: tuple[int, int] | None,
    from_bfloat16: bool,
    primals: Any,
    tangents: Any,
) -> Any:
    x, tangent = primals[0], tangents[0]
    mean, variance = _moments(axes, epsilon, groups, from_bfloat16, *primals)
    slope = 2 * _mean((x - mean) * tangent, axes, groups)
    return (mean, variance), (_mean(tangent, axes, groups), slope)


@dataclasses.dataclass(frozen=True)
class _Mean(Form):
    """The mean of an array; the second operand, if any, is a shift."""

    axes: tuple[int, ...]
    groups: tuple[int, int] | None = None
    from_bfloat16: bool = False

    def default(self, x: jax.Array, *_: jax.Array) -> jax.Array:
        return _grouped(self._shifted(x), self.groups)

    def fast(self, x: jax.Array, *_: jax.Array) -> jax.Array:
        return _mean(x, self.axes, self.groups)

    def tpu(self, x: jax.Array, *shift: jax.Array) -> jax.Array:
        # a shift may be too far for a mean of differences
        if shift:
            return self.fast(x)
        if self.from_bfloat16 and _has_exact_sums(x, self.axes, self.groups):
            return self.fast(_rounded(x))
        return _grouped(_merged(x, self.axes)[0], self.groups)

    def _shifted(self, x: jax.Array) -> jax.Array:
        # the sum that `_Variance` needs, so that XLA computes no third sum
        part = mean_of_part(x, self.axes)
        return part + jnp.mean(x - part, self.axes, keepdims=True)


@dataclasses.dataclass(frozen=True)
class _Variance(Form):
    """The variance of an array; operands: the array, its mean, and a shift, if any."""

    axes: tuple[int, ...]
    groups: tuple[int, int] | None = None
    epsilon: float = 0.0
    from_bfloat16: bool = False

    def default(self, x: jax.Array, mean: jax.Array, *_: jax.Array) -> jax.Array:
        part = mean_of_part(x, self.axes)
        return self._over_groups(_Mean(self.axes)._shifted(x), self._shifted(x, part), mean)

    def fast(self, x: jax.Array, mean: jax.Array, *_: jax.Array) -> jax.Array:
        return _mean(jnp.square(x - mean), self.axes, self.groups)

    def tpu(self, x: jax.Array, mean: jax.Array, *shifts: jax.Array) -> jax.Array:
        if not shifts:
            if self.from_bfloat16 and _has_exact_sums(x, self.axes, self.groups):
                return self.of_bfloat16(_rounded(x))
            return self._over_groups(*_merged(x, self.axes), mean)
        if _is_small(x) and not self.from_bfloat16:
            return self.fast(x, mean)
        return self.from_shift(x, mean, *shifts)

    def of_bfloat16(self, x: jax.Array) -> jax.Array:
        """Computes the variance from sums of `x` and of its squares, as (n * sum(x²) - sum(x)²) / n².

        The squares have 16 bits. Their upper 8 bits have an exact sum where all have similar exponents, which is
        where the difference loses digits; the lower bits are another sum. The products of the sums are sums of parts
        with at most 12 bits, so that the largest are exact.
        """
        square, length = jnp.square(x), _length(x, self.axes)
        upper = jax.lax.reduce_precision(square, 8, 7)
        # a power of two, so that no square of a sum overflows
        factor = 2.0 ** -length.bit_length()
        total, highs, lows = (
            factor * jnp.sum(a, self.axes, keepdims=True) for a in (x, upper, square - upper)
        )
        n = factor * length
        high, part = (jax.lax.reduce_precision(a, 8, 11) for a in (highs, total))
        rest = total - part
        smaller = n * (highs - high) - 2 * part * rest + (n * lows - jnp.square(rest))
        variance = (n * high - jnp.square(part) + smaller) / n**2
        return jnp.where(jnp.isinf(highs), highs, jnp.maximum(variance, 0))

    def from_shift(self, x: jax.Array, mean: jax.Array, shift: jax.Array) -> jax.Array:
        """Computes the variance in one pass; if the shift is far from the mean, in float32 in two."""
        variance = self._shifted(x, shift)
        distance = jnp.square(mean - shift)
        # both comparisons are false for a shift of NaN
        if self.from_bfloat16:
            nearer = distance <= jnp.square(mean)
            return jnp.where(nearer, variance, self._shifted(x, jnp.zeros_like(shift)))
        far = ~jnp.all(distance <= _FAR * (variance + self.epsilon))

        def two_passes(_: Any) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros((), bool), self.fast(x, mean)

        # a loop of at most one step: a conditional would keep `x` out of the fast memory of TPUs
        return jax.lax.while_loop(lambda carry: carry[0], two_passes, (far, variance))[1]

    def _shifted(self, x: jax.Array, shift: jax.Array) -> jax.Array:
        difference = x - shift
        mean = jnp.mean(difference, self.axes, keepdims=True)
        square = jnp.mean(jnp.square(difference), self.axes, keepdims=True)
        # squares that overflow give infinity, as in two passes, not infinity - infinity
        return jnp.where(jnp.isinf(square), square, jnp.maximum(square - jnp.square(mean), 0))

    def _over_groups(self, means: jax.Array, variances: jax.Array, mean: jax.Array) -> jax.Array:
        if self.groups is None:
            return variances
        return _grouped(variances + jnp.square(means - mean), self.groups)


def _mean(x: jax.Array, axes: tuple[int, ...], groups: tuple[int, int] | None) -> jax.Array:
    # first over positions: XLA computes many channels at once
    return _grouped(jnp.mean(x, axes, keepdims=True), groups)


def _grouped(array: jax.Array, groups: tuple[int, int] | None) -> jax.Array:
    """Returns the means of groups, each at the positions of its group."""
    if groups is None:
        return array
    axis, number = groups
    shape, size = array.shape, array.shape[axis] // number
    means = jnp.mean(array.reshape(*shape[:axis], number, size, *shape[axis + 1 :]), axis + 1)
    return jnp.repeat(means, size, axis)


def _merged(x: jax.Array, axes: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Returns the mean and the variance from one reduction of tuples.

    A tuple describes a part of the array: the count, an element, the mean minus this element, and the sum
    of the squared differences from the mean. Merging two parts compares their means, so that no digits
    are lost, in any order of merging. The mean is split because a mean in one number would be rounded in
    each merge; the element of a merged part is the nearer to its mean.
    """
    if not axes:
        return x, jnp.zeros_like(x)
    # Results of a reduction that nobody reads become bfloat16 on TPUs; integers stay exact.
    integer = jnp.int32 if x.dtype == jnp.float32 else jnp.int64
    pack = functools.partial(jax.lax.bitcast_convert_type, new_dtype=integer)
    unpack = functools.partial(jax.lax.bitcast_convert_type, new_dtype=x.dtype)

    def merge(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        (a_count, *a_packed, a_squares, _), (b_count, *b_packed, b_squares, _) = a, b
        (a_element, a_rest), (b_element, b_rest) = map(unpack, a_packed), map(unpack, b_packed)
        count, between, empty = a_count + b_count, b_element - a_element, a_count == 0
        zero = jnp.zeros_like(between)
        difference = jnp.where(empty, zero, between) + (b_rest - a_rest)
        share = b_count / jnp.maximum(count, jnp.ones_like(count))
        rest = a_rest + difference * share
        moved = empty | (jnp.abs(rest - between) < jnp.abs(rest))
        element = jnp.where(moved, b_element, a_element)
        rest = jnp.where(empty, b_rest, jnp.where(moved, rest - between, rest))
        # in this order, a large difference times a count of 0 is 0
        squares = a_squares + b_squares + difference * (difference * (a_count * share))
        return count, pack(element), pack(rest), squares, element + rest

    zeros = jnp.zeros_like(x)
    operands = (jnp.ones_like(x), pack(x), pack(zeros), zeros, x)
    starts = tuple(jnp.zeros((), operand.dtype) for operand in operands)
    count, _, _, squares, mean = jax.lax.reduce(operands, starts, merge, axes)
    return jnp.expand_dims(mean, axes), jnp.expand_dims(squares / count, axes)


def _has_exact_sums(x: jax.Array, axes: tuple[int, ...], groups: tuple[int, int] | None) -> bool:
    length = _length(x, axes)
    return groups is None and isinstance(length, int) and 0 < length <= _EXACT


def _length(x: jax.Array, axes: tuple[int, ...]) -> Any:
    return math.prod(x.shape[axis] for axis in axes)


def _rounded(x: jax.Array) -> jax.Array:
    # XLA would sum the numbers before their rounding: the mean would not be that of the rounded numbers
    return jax.lax.reduce_precision(x, 8, 7)


def _is_small(x: jax.Array) -> bool:
    # an unknown size is no `int`
    if not all(isinstance(size, int) for size in x.shape):
        return False
    *rows, channels = x.shape
    return math.prod(rows) * -(-channels // _LANES) * _LANES * x.dtype.itemsize <= _SMALL


def mean_of_part(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Returns the mean of at least 1/16 of the elements along the axes, which keep the size 1.

    Example:
        >>> mean_of_part(jnp.arange(64.0), (0,))
        Array([1.5], dtype=float32)
    """
    if not axes:
        return x
    # of an axis without a known size the first element
    sizes = {axis: n if isinstance(n, int) else 1 for axis, n in enumerate(x.shape) if axis in axes}
    long = [axis for axis, size in sizes.items() if size >= _PART]
    axis = long[0] if long else max(sizes, key=lambda a: sizes[a])
    part = jax.lax.slice_in_dim(x, 0, -(-sizes[axis] // _PART), axis=axis)
    return jnp.mean(part, axes, keepdims=True)
