"""Mean and variance: in two passes over the array on CPUs, in one pass on accelerators.

The variance is the mean square of the differences from the mean, so that an array is read for the mean and
again for the variance. The difference of the mean square and the squared mean needs one pass, which XLA
puts into the operation that makes the array, but far from zero this difference loses all digits.

On GPUs, a shift c near the mean prevents this: E[(x - c)²] - E[x - c]² loses about
log2(1 + (mean - c)² / variance) bits. The shift is the mean of a part of the array, at least 1/16: then
(mean - c)² is at most 15 times the variance, whatever the values. Along rows, XLA's GPU compiler computes two passes in
one kernel with the operations that read them, such as a normalization and its gradient. If the program also sums over
columns, as for the gradient of gamma, these passes would have kernels of their own.

On TPUs, sums join the convolution or product that makes the array, but a shift that depends on the array would
separate them. Instead, numbers and their squares are split into parts of 12 bits. At most 2,048 parts have an exact
sum if their exponents are equal, as they are where the difference loses digits; 4,096 if numbers near a power of two have
parts of equal precision. XLA fuses sums over all positions into a convolution, but not sums over some of the positions.
Sums of more numbers are pairs of floats: a rounded sum and its rounding error. These sums have about 48 bits, so that
the variance is as exact as in two passes for means of up to 10,000 standard deviations, and has an error of 1 % at
1,000,000, where float32 rounds the numbers themselves to 6 % of a deviation. Numbers cast from bfloat16 have fewer parts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.nn.cpu.forms import Form, On, compute

# the mean of 1 / _PART of the elements is the shift
_PART = 16
# numbers of 12 bits have a sum of at most 24 bits; half of 2^12, since numbers near a power of two have two exponents
_EXACT = 1 << 11
# for parts on the grid of `_upper_on_grid`, which takes more operations
_EXACT_ON_GRID = 1 << 12
# exact sums of fewer numbers also include a part of a long axis
_SHORT = 64
# assumed to be a multiple of the number of devices that share an axis
_SHARDS = 256
# float32 holds all smaller integers
_COUNTED = 1 << 24

_Pair = tuple[jax.Array, jax.Array]


def mean_and_variance(
    x: jax.Array,
    axes: tuple[int, ...],
    groups: tuple[int, int] | None = None,
    from_bfloat16: bool = False,
    two_passes: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Returns the mean and the biased variance along some axes, which keep the size 1.

    The derivatives are those of the formulas, whatever the passes: they read the array once.

    Args:
        x: array in a dtype wide enough for sums.
        axes: axes from 0.
        groups: `(axis, number)`: the positions of this axis form groups, each of which has one mean and
            one variance. The axis keeps its size.
        from_bfloat16: whether `x` was cast from bfloat16: fewer sums are then as exact.
        two_passes: whether GPUs take two passes, too.

    Example:
        >>> mean_and_variance(jnp.array([[1.0, 3.0]]), (1,))
        (Array([[2.]], dtype=float32), Array([[1.]], dtype=float32))
        >>> mean_and_variance(jnp.array([[1.0, 3.0]]), (), groups=(1, 1))
        (Array([[2., 2.]], dtype=float32), Array([[1., 1.]], dtype=float32))
    """
    if not axes and groups is None:
        return x, jnp.zeros_like(x)
    return _moments(_Mean(axes, groups, from_bfloat16, two_passes), x)


def centred_and_variance(
    x: jax.Array,
    axes: tuple[int, ...],
    groups: tuple[int, int] | None = None,
    from_bfloat16: bool = False,
    two_passes: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Returns an array minus its mean along some axes, and the biased variance.

    The arguments are those of `mean_and_variance`. The gradient takes one pass on accelerators, and on CPUs
    two passes that keep one array.

    Example:
        >>> centred_and_variance(jnp.array([[1.0, 3.0]]), (1,))
        (Array([[-1.,  1.]], dtype=float32), Array([[1.]], dtype=float32))
    """
    return _centred(_Mean(axes, groups, from_bfloat16, two_passes), x)


@dataclasses.dataclass(frozen=True)
class _Statistic(Form):
    """A statistic of an array; the options are those of `mean_and_variance`."""

    axes: tuple[int, ...]
    groups: tuple[int, int] | None = None
    from_bfloat16: bool = False
    two_passes: bool = False


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _centred(form: _Statistic, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    mean, variance = mean_and_variance(x, **vars(form))
    return x - mean, variance


@_centred.defjvp
def _centred_jvp(form: _Statistic, primals: Any, tangents: Any) -> Any:
    ((x,), (tangent,)), axes, groups = (primals, tangents), form.axes, form.groups
    centred, variance = _centred(form, x)
    mean = _mean(tangent, axes, groups)
    length = math.prod(x.shape[axis] for axis in axes)
    if groups is None and isinstance(length, int) and length:
        # XLA's TPU compiler sums and subtracts in one operation if no factor multiplies the sum in between
        total = jnp.broadcast_to(jnp.sum(tangent, axes, keepdims=True), x.shape)
        mean = jnp.where(compute(On("tpu")), total * (1 / length), mean)
    centred_tangent = tangent - mean
    # The sum of `centred` is 0, so both tangents give the same slope. The gradient of the first needs one
    # array, whose mean is subtracted in place; that of the second needs no second pass.
    chosen = jnp.where(compute(On("cpu")), centred_tangent, tangent)
    return (centred, variance), (centred_tangent, 2 * _mean(centred * chosen, axes, groups))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _moments(form: _Statistic, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    mean = compute(form, x)
    return mean, compute(_Variance(**vars(form)), x, mean)


@_moments.defjvp
def _moments_jvp(form: _Statistic, primals: Any, tangents: Any) -> Any:
    ((x,), (tangent,)), axes, groups = (primals, tangents), form.axes, form.groups
    mean, variance = _moments(form, x)
    slope = 2 * _mean((x - mean) * tangent, axes, groups)
    return (mean, variance), (_mean(tangent, axes, groups), slope)


class _Mean(_Statistic):
    """The mean of an array."""

    def default(self, x: jax.Array) -> jax.Array:
        if self.two_passes:
            return _mean(x, self.axes, self.groups)
        return _grouped(self._shifted(x), self.groups)

    def fast(self, x: jax.Array) -> jax.Array:
        return _mean(x, self.axes, self.groups)

    def tpu(self, x: jax.Array) -> jax.Array:
        if not _has_exact_sums(x, self.axes):
            return self.fast(x)
        mean, _ = _from_exact_sums(x, self.axes, self.from_bfloat16)
        # XLA would divide a sum in an operation of its own
        return _grouped(mean, self.groups, divide_first=True)

    def _shifted(self, x: jax.Array) -> jax.Array:
        # the sum that `_Variance` needs, so that XLA computes no third sum
        part = mean_of_part(x, self.axes)
        return part + jnp.mean(x - part, self.axes, keepdims=True)


class _Variance(_Statistic):
    """The variance of an array; operands: the array and its mean."""

    def default(self, x: jax.Array, mean: jax.Array) -> jax.Array:
        if self.two_passes:
            return _mean(jnp.square(x - mean), self.axes, self.groups)
        part = mean_of_part(x, self.axes)
        difference = x - part
        square = jnp.mean(jnp.square(difference), self.axes, keepdims=True)
        shifted = jnp.square(jnp.mean(difference, self.axes, keepdims=True))
        # squares that overflow give infinity, as in two passes, not infinity - infinity
        variance = jnp.where(jnp.isinf(square), square, jnp.maximum(square - shifted, 0))
        return self._over_groups(_Mean(self.axes)._shifted(x), variance, mean)

    def fast(self, x: jax.Array, mean: jax.Array) -> jax.Array:
        return _mean(jnp.square(x - mean), self.axes, self.groups)

    def tpu(self, x: jax.Array, mean: jax.Array) -> jax.Array:
        if not _has_exact_sums(x, self.axes):
            return self.fast(x, mean)
        moments = _from_exact_sums(x, self.axes, self.from_bfloat16)
        return self._over_groups(*moments, mean)

    def _over_groups(self, means: jax.Array, variances: jax.Array, mean: jax.Array) -> jax.Array:
        if self.groups is None:
            return variances
        return _grouped(variances + jnp.square(means - mean), self.groups)


def _mean(x: jax.Array, axes: tuple[int, ...], groups: tuple[int, int] | None) -> jax.Array:
    # first over positions: XLA computes many channels at once
    return _grouped(jnp.mean(x, axes, keepdims=True), groups)


def _grouped(
    array: jax.Array, groups: tuple[int, int] | None, divide_first: bool = False
) -> jax.Array:
    """Returns the means of groups, each at the positions of its group."""
    if groups is None:
        return array
    axis, number = groups
    shape, size = array.shape, array.shape[axis] // number
    parts = array.reshape(*shape[:axis], number, size, *shape[axis + 1 :])
    means = jnp.sum(parts / size, axis + 1) if divide_first else jnp.mean(parts, axis + 1)
    return jnp.repeat(means, size, axis)


def _has_exact_sums(x: jax.Array, axes: tuple[int, ...]) -> bool:
    length = math.prod(x.shape[axis] for axis in axes)
    # an unknown size is no `int`
    return x.dtype == jnp.float32 and isinstance(length, int) and 0 < length < _COUNTED


def _from_exact_sums(
    x: jax.Array, axes: tuple[int, ...], from_bfloat16: bool
) -> tuple[jax.Array, jax.Array]:
    """Returns the mean and the variance from sums of `x` and of its squares with about 48 bits.

    The variance is (n * sum(x²) - sum(x)²) / n². A power of two near 1 / n multiplies the sums, so that no
    square of a sum overflows.
    """
    if not axes:
        return x, jnp.zeros_like(x)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    kept = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    length = math.prod(x.shape[axis] for axis in axes)
    factor = 2.0 ** -length.bit_length()
    if from_bfloat16:
        # XLA would sum the numbers before their rounding: the mean would not be that of the rounded numbers
        x = jax.lax.reduce_precision(x, 8, 7)
    positions = math.prod(x.shape[axis] for axis in axes if axis)
    on_grid = _EXACT < positions <= _EXACT_ON_GRID
    x, first, rest = _stages(x, axes, _EXACT_ON_GRID if on_grid else _EXACT)
    total, squares = (
        [jnp.sum(part, first, keepdims=True) for part in parts]
        for parts in _parts(x, from_bfloat16, _upper_on_grid if on_grid else _upper)
    )
    sums: tuple[jax.Array, ...] = tuple(factor * a for a in _pair(*total) + _pair(*squares))
    if rest:
        zeros = tuple(jnp.zeros((), x.dtype) for _ in sums)
        sums = jax.lax.reduce(
            sums, zeros, lambda a, b: _add(a[:2], b[:2]) + _add(a[2:], b[2:]), rest
        )
    mean, mean_error, square, square_error = (a.reshape(kept) for a in sums)
    count = jnp.full(kept, factor * length, x.dtype)
    (a, a_error), (b, b_error) = _product(square, count), _product(mean, mean)
    errors = (a_error - b_error) + (square_error * count - 2 * mean * mean_error)
    variance = jnp.maximum((a - b) + errors, 0) / jnp.square(count)
    # squares that overflow give infinity, as in two passes
    variance = jnp.where(jnp.isinf(square), square, variance)
    mean = mean / count  # a pair's rounded sum is the sum of the pair
    if rest or 0 in axes:
        # Without the barrier, XLA keeps more sums for the gradient, or adds a second reduction for the mean.
        mean, variance = jax.lax.optimization_barrier((mean, variance))
    return mean.reshape(shape), variance.reshape(shape)


def _stages(
    x: jax.Array, axes: tuple[int, ...], most: int
) -> tuple[jax.Array, tuple[int, ...], tuple[int, ...]]:
    """Returns an array, the axes of its exact sums, and the other axes to sum over.

    The array is `x`, or `x` with a long axis split into two axes.

    Args:
        most: the most numbers that have an exact sum.
    """
    first: list[int] = []
    size = 1
    for axis in sorted(axes, reverse=True):
        if size * x.shape[axis] <= most:
            first.append(axis)
            size *= x.shape[axis]
    rest = tuple(axis for axis in axes if axis not in first)
    if not rest or size >= _SHORT:
        return x, tuple(first), rest
    long = max(rest, key=lambda axis: x.shape[axis])
    length = x.shape[long]
    # an axis that is not the last may be sharded: each device keeps whole parts
    shards = math.gcd(length, _SHARDS) if long < x.ndim - 1 else 1
    part = max(d for d in range(1, most // size + 1) if length // shards % d == 0)
    x = x.reshape(*x.shape[:long], length // part, part, *x.shape[long + 1 :])
    first, rest = ([a + (a > long) for a in some] for some in (first, rest))
    return x, (*first, long + 1), tuple(rest)


def _parts(
    x: jax.Array, from_bfloat16: bool, upper_of: Callable[[jax.Array], jax.Array]
) -> tuple[tuple[jax.Array, ...], ...]:
    """Returns the parts of 12 bits of `x`, and those of its square with the rounding error."""
    square = jnp.square(x)
    upper = upper_of(square)
    if from_bfloat16:
        return (x,), (upper, square - upper)
    high = upper_of(x)
    low = x - high
    error = ((jnp.square(high) - square) + 2 * high * low) + jnp.square(low)
    return (high, low), (upper, square - upper, error)


def _upper(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_precision(x, 8, 11)


def _upper_on_grid(x: jax.Array) -> jax.Array:
    """Returns numbers of 12 bits, multiples of p / 2^11 for numbers from .75 p to 1.5 p, where p is a power of two.

    With `_upper` the multiples change at a power of two, where a sum of 2^12 numbers does too. Then the sum of numbers
    on both sides is rounded.
    """
    # 1.5 * 2^12 p: floats of this size are multiples of p / 2^11
    shift = 6144 * jax.lax.reduce_precision(x, 8, 0)
    return jnp.where(jnp.isfinite(shift), (x + shift) - shift, x)


def _pair(high: jax.Array, *lower: jax.Array) -> _Pair:
    """Returns the sum of arrays as a rounded sum and its rounding error."""
    zero = jnp.zeros_like(high)
    pair, infinite = (high, zero), jnp.isinf(high)
    for number in lower:
        # an infinite number has no lower part
        pair = _add(pair, (jnp.where(infinite, zero, number), zero))
    return pair


def _add(a: _Pair, b: _Pair) -> _Pair:
    total, error = _two_sum(a[0], b[0])
    return _two_sum(total, error + (a[1] + b[1]))


def _two_sum(a: jax.Array, b: jax.Array) -> _Pair:
    """Returns a rounded sum and its rounding error, by Knuth."""
    total = a + b
    change = total - a
    error = (a - (total - change)) + (b - change)
    # infinity - infinity is no rounding error
    return total, jnp.where(jnp.isinf(total), jnp.zeros_like(error), error)


def _product(a: jax.Array, b: jax.Array) -> _Pair:
    """Returns a rounded product and its rounding error, by Dekker."""
    a_high, b_high, product = _upper(a), _upper(b), a * b
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


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
