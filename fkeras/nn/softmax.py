"""Softmax over one or more axes, with masks."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.nn.cpu.forms import Form, On, Spec, compute, has_typed_axes
from fkeras.nn.numerics.dtypes import wide_dtype


@dataclasses.dataclass(frozen=True)
class _Kept(Form):
    """An array that GPUs keep for the gradient; XLA would compute it again from larger arrays."""

    def default(self, *operands: jax.Array) -> jax.Array:
        return jax.lax.optimization_barrier(operands[0])

    def fast(self, *operands: jax.Array) -> jax.Array:
        return operands[0]

    def tpu(self, *operands: jax.Array) -> jax.Array:
        return self.fast(*operands)


@dataclasses.dataclass(frozen=True)
class _Only(Form):
    """An array on some platforms, and zeros on the others.

    Args:
        gpu: whether on GPUs; on all other platforms if False.
    """

    linear: ClassVar[tuple[int, ...]] = (0,)

    gpu: bool

    def default(self, *operands: jax.Array) -> jax.Array:
        return operands[0] if self.gpu else jnp.zeros_like(operands[0])

    def fast(self, *operands: jax.Array) -> jax.Array:
        return _Only(not self.gpu).default(*operands)

    def tpu(self, *operands: jax.Array) -> jax.Array:
        return self.fast(*operands)

    def tpu_gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        return self.fast(*operands)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def _exponentials(
    x: jax.Array,
    mask: jax.Array | None,
    sinks: jax.Array | None,
    axes: tuple[int, ...],
    dtype: Any,
    finite: bool,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    lowest = float(jnp.finfo(x.dtype).min)
    # XLA's TPU compiler computes `exp(x - max(x))` and the sums in the loop of the product before, if
    # nothing is between: operations for infinite and masked entries are only where these occur
    if not finite:
        # infinite entries share the row, where their differences would be NaN
        x = jnp.clip(x, lowest, -lowest)
    if mask is not None:
        x = jnp.where(mask, x, jnp.asarray(lowest, x.dtype))
    # the maximum of no entries is an error without `initial`
    initial = None if all(x.shape[a] for a in axes) else lowest
    largest = jnp.max(x, axes, keepdims=True, initial=initial)
    largest = largest if sinks is None else jnp.maximum(largest, sinks)
    y = jnp.exp(x - largest)
    # In a row with an entry, masked entries add 0: their difference to the maximum is below the range of `exp`.
    # In a row without entries all are 1. So no sum is 0, and the device needs no operation to replace zeros.
    total, shares = jnp.sum(y, axes, keepdims=True), None
    if sinks is not None:
        shares = jnp.exp(sinks - largest)
        total = total + shares
    if initial is not None:  # the sum of no entries
        total = jnp.where(total == 0, jnp.ones_like(total), total)
    if mask is not None or not finite:
        # a row without entries has the maximum `lowest`, so its exponentials would be 1
        y = jnp.where(x > lowest, y, jnp.zeros_like(y))
    if dtype != jnp.bfloat16 or has_typed_axes(x):
        return y.astype(dtype), total, shares
    # XLA's GPU compiler computes maximum, sum and quotient in one kernel, and without the quotient in two. Quotients
    # in float16 would leave its range.
    on_gpu = compute(On("gpu"))
    total, divisor = (jnp.where(on_gpu, a, b) for a, b in ((1, total), (total, 1)))
    y = compute(_Kept(), (y / divisor).astype(dtype))
    return y, total, None if shares is None else shares / divisor


@_exponentials.defjvp
def _exponentials_jvp(
    axes: tuple[int, ...], dtype: Any, finite: bool, primals: tuple, tangents: tuple
) -> tuple:
    # only `y` is kept for the gradient, neither the mask nor the comparisons of minimum and maximum
    y, total, shares = _exponentials(*primals, axes, dtype, finite)
    tangent = tangents[0] * y.astype(tangents[0].dtype)
    t_total, t_shares = jnp.sum(tangent, axes, keepdims=True), None
    if shares is not None:
        t_shares = tangents[2] * shares
        t_total = t_total + t_shares
    if dtype == wide_dtype(dtype) and not has_typed_axes(y):
        # The factor of a row is free. On GPUs its change keeps the sum: XLA's compiler computes the sums of the
        # gradient and the difference in one kernel. Elsewhere the gradient of the sum reads smaller arrays.
        change, t_total = (compute(_Only(gpu), t_total) for gpu in (True, False))
        change = change / total
        tangent = tangent - y * change
        t_shares = None if shares is None else t_shares - shares * change
    return (y, total, shares), (tangent.astype(dtype), t_total, t_shares)


# as in `numerics.slopes`: without jit, each call of a custom rule would take .3 ms
_compiled = jax.jit(_exponentials, static_argnums=(3, 4, 5), inline=True)


def exponentials(
    x: jax.Array,
    mask: jax.Array | None,
    axes: Sequence[int],
    dtype: Any = None,
    finite: bool = False,
    sinks: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Computes `exp(x)` up to one factor for each row, and the sums that normalize the rows.

    Args:
        mask: True where an entry counts; broadcasts to `x`. None for everywhere.
        dtype: dtype of the exponentials; None for that of `x`, which the sums have.
        finite: whether no entry is infinite.
        sinks: one more entry of each row, which counts in the sums alone: an array like the sums, or one that
            broadcasts to them; None for no such entry.

    Returns:
        The exponentials, 0 where the mask is False, and their sums with axes of size 1; the sum of a row that
        is empty, masked entirely, or all -inf is a positive number. Derivatives are those of the quotient of
        both: those of the factor depend on the platform.
    """
    dtype = jnp.dtype(x.dtype if dtype is None else dtype)
    return _compiled(x, mask, sinks, tuple(axes), dtype, finite)[:2]


def masked_softmax(
    x: jax.Array, mask: jax.Array | None = None, axis: int | Sequence[int] = -1
) -> jax.Array:
    """Computes `exp(x) / sum(exp(x))` over `axis`, with 0 where `mask` is False.

    A fully masked row gives 0, with gradient 0.

    Args:
        mask: Boolean array with as many axes that broadcasts to `x`, or None.
        axis: axis, or axes that are summed together.

    Returns:
        An array like `x`; sums are in float32 or float64.
    """
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.dtype("float32")
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    x = x.astype(wide_dtype(dtype))
    return _compiled_softmax(x, mask, axes, jnp.dtype(dtype))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _softmax(x: jax.Array, mask: jax.Array | None, axes: tuple[int, ...], dtype: Any) -> jax.Array:
    y, total = exponentials(x, mask, axes)
    return (y / total).astype(dtype)


@_softmax.defjvp
def _softmax_jvp(
    axes: tuple[int, ...], dtype: Any, primals: tuple, tangents: tuple
) -> tuple[jax.Array, jax.Array]:
    # the gradient reads the result alone, not `x` again
    y, tangent = _softmax(*primals, axes, dtype), tangents[0]
    wide = y.astype(tangent.dtype)
    slope = wide * (tangent - jnp.sum(wide * tangent, axes, keepdims=True))
    return y, slope.astype(dtype)


_compiled_softmax = jax.jit(_softmax, static_argnums=(2, 3), inline=True)
