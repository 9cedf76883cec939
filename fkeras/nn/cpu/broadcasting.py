"""Large weights that each row of a batch uses, with a fast gradient on CPUs."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.nn.cpu import limits
from fkeras.nn.cpu.forms import Form, Spec, bind, has_typed_axes
from fkeras.nn.numerics.dtypes import wide_dtype


@dataclasses.dataclass(frozen=True)
class Repeat(Form):
    """Repeats an array along new leading axes.

    The gradient is a sum over these axes. XLA's reduction on CPUs reads large arrays column by
    column, which is slow. A product with ones reads them row by row.

    Args:
        leading: the sizes of the new axes.
    """

    linear: ClassVar[tuple[int, ...]] = (0,)

    leading: tuple[int, ...]

    def default(self, weight: jax.Array) -> jax.Array:
        return jnp.broadcast_to(weight, (*self.leading, *weight.shape))

    def fast(self, weight: jax.Array) -> jax.Array:
        return self.default(weight)

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        rows = operands[0].reshape(math.prod(self.leading), -1)
        ones = jnp.ones((1, rows.shape[0]), spec.dtype)
        total = jnp.matmul(ones, rows, preferred_element_type=wide_dtype(spec.dtype))
        return total.reshape(spec.shape).astype(spec.dtype)


def for_rows(weight: jax.Array, x: jax.Array) -> jax.Array:
    """Returns a weight that broadcasts against the last axes of `x`, with all its axes.

    Args:
        weight: array with at most the axes of `x`.
        x: array whose leading axes, such as the batch, use the same weight.

    Example:
        >>> for_rows(jnp.ones(3), jnp.ones((2, 5, 3))).shape
        (1, 1, 3)
    """
    leading = x.shape[: x.ndim - weight.ndim]
    known = all(isinstance(size, int) and size > 0 for size in leading)
    if leading and known and weight.size >= limits.REPEATED and not has_typed_axes(weight, x):
        return bind(Repeat(leading), weight)
    return jnp.reshape(weight, (1,) * len(leading) + weight.shape)
