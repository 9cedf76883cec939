"""`RMSNormalization`: each example divided by its root mean square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.engine import Layer, option, weight
from fkeras.engine.config.converters import axes, real
from fkeras.engine.config.field_types import Axes, Real
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.values.spec import SpecLike
from fkeras.nn.normalization import rms_normalization
from fkeras.nn.numerics.axes import format_shape

_axes = axes(hint="For the last axis give -1, for an image's features (1, 2, 3).")


def _axis(value: Any) -> int | tuple[int, ...]:
    axes_or_axis = _axes(value)
    return (
        axes_or_axis[0]
        if isinstance(axes_or_axis, tuple) and len(axes_or_axis) == 1
        else axes_or_axis
    )


class RMSNormalization(Layer):
    """Divides each example by the root of its mean square over `axis`, then scales.

    No mean is taken off. Mean squares are float32 under a shorter compute dtype, and `scale` stays
    in the dtype of variables. `scale` lies along `axis` always; in Keras 3.15 it lies along the
    last axes whatever `axis` says, so that numbers differ where these are not the same.

    Args:
        axis: the axis, or the axes, that are normalized together.
        epsilon: added to the mean square.

    Shapes:
        (b, ..., d) -> (b, ..., d); scale has the sizes of the axes in `axis`, sorted.

    Raises:
        TypeError: where `axis` is no integer and no list of different integers.
        ValueError: where an axis is missing in the input.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RMSNormalization(epsilon=0.0).build(jax.random.key(0), (None, 2))
        >>> layer(jnp.array([[3.0, -3.0]]))
        Array([[ 1., -1.]], dtype=float32)

    References:
        Zhang and Sennrich, 2019, Root mean square layer normalization,
        https://arxiv.org/abs/1910.07467
    """

    keras_form: ClassVar[KerasForm] = KerasForm(input_names=("x",))

    axis: Axes = option(default=-1, convert=_axis)
    epsilon: Real = option(default=1e-6, convert=real(minimum=0))

    scale: jax.Array = weight(initializer=jax.nn.initializers.ones)

    supports_masking: ClassVar[bool] = True

    def loses_masks(self, masks: Sequence[Any]) -> bool:
        return True

    # scale and the mean squares stay in float32
    autocast: ClassVar[bool] = False

    def build(self, key: jax.Array, x: SpecLike) -> Self:
        return self.with_weights(key, scale=self._sizes(x.shape))

    def call(self, x: jax.Array) -> jax.Array:
        sizes = self._sizes(x.shape)
        if self.scale.shape != sizes:
            raise ValueError(
                f"{self.where}: expected sizes {self.scale.shape} on axis {self.axis}, received "
                f"{format_shape(x.shape)}. Its weights are for these sizes; use another layer "
                "for other ones."
            )
        dtype = self.policy.compute_dtype
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(dtype)
        return rms_normalization(x, self.scale, self._axes, self.epsilon).astype(dtype)

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.axis if isinstance(self.axis, tuple) else (self.axis,)

    def _sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        ndim = len(shape)
        front = {a % ndim for a in self._axes if -ndim <= a < ndim}
        if len(front) != len(self._axes):
            raise ValueError(
                f"{self.where}: expected an input with the axes {self.axis}, each once, received "
                f"{format_shape(shape)}. Use axes from {-ndim} to {ndim - 1}."
            )
        return tuple(shape[a] for a in sorted(front))
