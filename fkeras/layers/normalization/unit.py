"""`UnitNormalization`: divides vectors by their norm."""

from __future__ import annotations

from typing import ClassVar

import jax

from fkeras.engine import Layer, option
from fkeras.engine.config.converters import axes
from fkeras.engine.config.field_types import Axes
from fkeras.nn.normalization import unit_normalization
from fkeras.nn.numerics.axes import format_shape


class UnitNormalization(Layer):
    """Divides each vector by its norm: `x / |x|` over `axis`.

    A zero vector stays zero, with gradient 0 (NaN in Keras 3.15). Squares are summed in float32
    even if the compute dtype is half precision.

    Args:
        axis: axis or axes of a vector.

    Shapes:
        (b, ...) -> (b, ...).

    Raises:
        TypeError: if `axis` is neither an integer nor a list of integers.
        ValueError: if the input lacks an axis.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> fk.layers.UnitNormalization()(jnp.array([[3.0, 4.0]]))
        Array([[0.6, 0.8]], dtype=float32)
    """

    axis: Axes = option(default=-1, convert=axes())

    supports_masking: ClassVar[bool] = True

    def call(self, x: jax.Array) -> jax.Array:
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        if any(not -x.ndim <= a < x.ndim for a in axes):
            raise ValueError(
                f"{self._where}: expected an input with the axes {self.axis}, received "
                f"{format_shape(x.shape)}. Use axes from {-x.ndim} to {x.ndim - 1}."
            )
        return unit_normalization(x, axes)
