"""Maximum and minimum along axes, with gradients that are robust to recomputation, and their positions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.custom_batching
import jax.numpy as jnp

from fkeras.nn.cpu.forms import Form, Spec, compute, has_typed_axes
from fkeras.nn.numerics.axes import canonical_axes
from fkeras.nn.numerics.dtypes import wide_dtype


def largest(x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Returns the maximum along the axes, with a gradient that is robust to recomputation.

    JAX's derivative searches the elements that equal the maximum. XLA may compute an operand twice,
    with different rounding, once to count these elements and once to select them. Then the shares
    of the gradient do not add up to 1; without an equal element the gradient is 0 / 0. This
    function counts and selects on one array in memory. Equal elements share the gradient; if the
    maximum is NaN, so is the gradient. Only programs for CPUs have conditionals.

    Args:
        axis: axis, axes, or None for all axes.
        keepdims: whether to keep the axes, with size 1.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.max(x, axis=axis, keepdims=keepdims)
    axes = canonical_axes(axis, x.ndim)
    y = _largest(x, axes)
    return y if keepdims else jnp.squeeze(y, axes)


def smallest(x: jax.Array, axis: Any = None, keepdims: bool = False) -> jax.Array:
    """Returns the minimum along the axes, with a gradient like that of `largest`.

    Args:
        axis: axis, axes, or None for all axes.
        keepdims: whether to keep the axes, with size 1.
    """
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.min(x, axis=axis, keepdims=keepdims)
    return -largest(-x, axis, keepdims)


def position(x: jax.Array, axis: int, of_largest: bool = True) -> jax.Array:
    """Returns the positions of the maxima or minima along an axis: the first of NaNs, else of equal elements."""
    form = _Position(axis, of_largest)
    # JAX compares no complex numbers
    if jnp.iscomplexobj(x):
        return form.default(x)
    return compute(form, jax.lax.stop_gradient(x))


@dataclasses.dataclass(frozen=True)
class _Position(Form):
    """The position of the maximum or minimum along an axis.

    XLA's CPU compiler does not vectorize a reduction to pairs of elements and positions.
    """

    axis: int
    of_largest: bool

    def default(self, x: jax.Array) -> jax.Array:
        return (jnp.argmax if self.of_largest else jnp.argmin)(x, axis=self.axis)

    def fast(self, x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return self._search(x)
        # As in `_distribute`, the operand of a conditional is in memory: an operand that XLA computes twice, with
        # different rounding, may have no element that equals the maximum.
        first = x[(slice(1),) * x.ndim]
        return jax.lax.cond(jnp.any(jnp.isnan(first)), self.default, self._search, x)

    def transformed(self, x: jax.Array) -> jax.Array:
        # under `jax.vmap` a conditional is a selection
        return self.default(x)

    def _search(self, x: jax.Array) -> jax.Array:
        y = (jnp.max if self.of_largest else jnp.min)(x, axis=self.axis, keepdims=True)
        places = jax.lax.broadcasted_iota(jnp.arange(0).dtype, x.shape, self.axis % x.ndim)
        return jnp.min(jnp.where((x == y) | (x != x), places, x.shape[self.axis]), axis=self.axis)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _largest(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    return jnp.max(x, axis=axes, keepdims=True)


@_largest.defjvp
def _largest_jvp(axes: tuple[int, ...], primals: tuple, tangents: tuple) -> Any:
    (x,), (tangent,) = primals, tangents
    # compilers for accelerators keep the operands of a barrier in memory
    x = jax.lax.optimization_barrier(x)
    y = _largest(x, axes)
    operands = (*jax.lax.stop_gradient((x, y)), tangent)
    form = _Tangent(axes)
    if has_typed_axes(*operands):
        choice = jax.lax.platform_dependent(*operands, cpu=form.fast, default=form.default)
        return y, choice
    return y, compute(form, *operands)


@dataclasses.dataclass(frozen=True)
class _Tangent(Form):
    """The tangent of the maximum: the mean of the tangents of the elements that equal it.

    The operands are the input of the maximum, the maximum, and the tangent of the input.
    """

    axes: tuple[int, ...]

    linear: ClassVar[tuple[int, ...]] = (2,)

    def default(self, x: jax.Array, y: jax.Array, tangent: jax.Array) -> jax.Array:
        # a maximum of NaN has no equal element: the quotient is NaN
        equal = (x == y).astype(wide_dtype(x.dtype))
        total = jnp.sum(tangent.astype(equal.dtype) * equal, axis=self.axes, keepdims=True)
        return (total / jnp.sum(equal, axis=self.axes, keepdims=True)).astype(x.dtype)

    def fast(self, x: jax.Array, y: jax.Array, tangent: jax.Array) -> jax.Array:
        shares = _distribute(self.axes)(x, y, jnp.ones_like(y))
        return jnp.sum(tangent * shares, axis=self.axes, keepdims=True)

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        return _distribute(self.axes)(*operands)


def _distribute(axes: tuple[int, ...]) -> Callable[..., jax.Array]:
    """Returns a function that distributes the gradient of the maximum over the elements.

    The arguments of the function are the input, its maximum, and the gradient of the maximum.
    """

    @jax.custom_batching.custom_vmap
    def distribute(x: jax.Array, y: jax.Array, gradient: jax.Array) -> jax.Array:
        # XLA keeps the operands of a conditional in memory; the compiler for CPUs removes a
        # barrier before the fusion that computes an operand twice
        return jax.lax.cond(jnp.any(jnp.isnan(y)), with_nan, without_nan, x, y, gradient)

    def without_nan(x: jax.Array, y: jax.Array, gradient: jax.Array) -> jax.Array:
        wide = wide_dtype(x.dtype)
        counts = jnp.sum((x == y).astype(wide), axis=axes, keepdims=True)
        quotients = (gradient.astype(wide) / counts).astype(x.dtype)
        # no element equals a maximum that was computed from an `x` with other rounding
        return jax.lax.cond(jnp.all(counts > 0), select, again, x, y, quotients, gradient)

    def select(x: jax.Array, y: jax.Array, quotients: jax.Array, _: jax.Array) -> jax.Array:
        # the sign of a zero product: `smallest` has no negative zeros
        return jnp.where(x == y, quotients, 0 * quotients)

    def again(x: jax.Array, y: jax.Array, _: jax.Array, gradient: jax.Array) -> jax.Array:
        return with_nan(x, y, gradient)

    def with_nan(x: jax.Array, _: jax.Array, gradient: jax.Array) -> jax.Array:
        y = jnp.max(x, axis=axes, keepdims=True)
        equal = (x == y).astype(wide_dtype(x.dtype))
        shares = equal / jnp.sum(equal, axis=axes, keepdims=True)
        return jnp.where(jnp.isnan(y), y, shares.astype(x.dtype)) * gradient

    @distribute.def_vmap
    def _(size: int, batched: list[bool], *operands: jax.Array) -> tuple[jax.Array, bool]:
        # under a batched condition, jax.vmap would replace the conditional by a selection
        pairs = zip(operands, batched, strict=True)
        full = (x if mapped else jnp.broadcast_to(x, (size, *x.shape)) for x, mapped in pairs)
        return _distribute(tuple(axis + 1 for axis in axes))(*full), True

    return distribute
