"""`UnitNormalization`: every vector divided by its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine import Layer, option
from fkeras.engine.config.converters import axes
from fkeras.layers.common.arguments import format_shape
from fkeras.layers.common.dtypes import wide_dtype

_LARGEST = 1e12  # factor, as in Keras


def unit_normalization(x: jax.Array, axis: int | Sequence[int] = -1) -> jax.Array:
    """Computes `x / |x|`, the length over the axes `axis`; a zero vector stays what it is.

    Its gradient there is 0: a vector of length 0 points nowhere.

    Args:
        x: array of any shape.
        axis: the axis, or the axes, of a vector.

    Returns:
        An array of the shape and dtype of `x`. The computation is in float32 at least.

    Example:
        >>> import jax.numpy as jnp
        >>> unit_normalization(jnp.array([[3.0, 4.0], [0.0, 0.0]]))
        Array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    dtype = x.dtype
    x = x.astype(wide_dtype(dtype))
    square = jnp.sum(jnp.square(x), axes, keepdims=True)
    # the root has no slope at 0, and a branch that is not taken must not divide by it
    empty = square == 0
    factor = jax.lax.rsqrt(jnp.where(empty, jnp.ones_like(square), square))
    factor = jnp.where(empty, jnp.zeros_like(factor), jnp.minimum(factor, _LARGEST))
    y = x * factor
    return y.astype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else y


class UnitNormalization(Layer):
    """Divides each vector by its length: `x / |x|` over `axis`.

    A zero vector stays what it is, and its gradient is 0 (in Keras 3.15 it is not a number).
    Squares are summed in float32 under a shorter compute dtype.

    Args:
        axis: the axis, or the axes, of a vector.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        TypeError: where `axis` is no integer and no list of integers.
        ValueError: where an axis is missing in the input.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.UnitNormalization()(jnp.array([[3.0, 4.0]]))
        Array([[0.6, 0.8]], dtype=float32)
    """

    axis: int | tuple[int, ...] = option(default=-1, convert=axes())

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        if any(not -x.ndim <= a < x.ndim for a in axes):
            raise ValueError(
                f"{self.where}: expected an input with the axes {self.axis}, received "
                f"{format_shape(x.shape)}. Use axes from {-x.ndim} to {x.ndim - 1}."
            )
        return unit_normalization(x, axes)
