"""`RMSNormalization`: divides each sample by its root mean square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.engine import Layer, option, weight
from fkeras.engine.config.converters import real
from fkeras.engine.config.field_types import Axes, Real
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.values.frozen import FrozenDict
from fkeras.engine.values.spec import SpecLike
from fkeras.layers.normalization.axes import (
    as_tuple,
    check_axes,
    check_weight_sizes,
    normalized_axes,
)
from fkeras.nn.normalization import rms_normalization


class RMSNormalization(Layer):
    """Divides each sample by the root of its mean square over `axis`, then scales.

    The mean is not subtracted. Mean squares are float32 even if the compute dtype is half
    precision, and `scale` keeps the variable dtype. `scale` is always aligned with `axis`; Keras
    3.15 always aligns it with the last axes, so results differ for other axes.

    Args:
        axis: axis or axes that are normalized together.
        epsilon: added to the mean square.

    Shapes:
        (b, ..., d) -> (b, ..., d); scale has the sizes of the axes in `axis`, sorted.

    Raises:
        TypeError: if `axis` is neither an integer nor a list of different integers.
        ValueError: if the input lacks an axis.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RMSNormalization(epsilon=0.0).build(jax.random.key(0), (None, 2))
        >>> layer(jnp.array([[3.0, -3.0]]))
        Array([[ 1., -1.]], dtype=float32)

    References:
        Zhang and Sennrich, 2019, Root mean square layer normalization,
        https://arxiv.org/abs/1910.07467
    """

    _keras_form: ClassVar[KerasForm] = KerasForm(input_names=("x",))

    axis: Axes = option(default=-1, convert=normalized_axes)
    epsilon: Real = option(default=1e-6, convert=real(minimum=0))

    scale: jax.Array = weight(initializer=jax.nn.initializers.ones)

    @property
    def axis_names(self) -> AxisNames:
        # one letter for the features, the usual axis; other normalized axes have no names
        letters = "_" * (len(as_tuple(self.axis)) - 1) + "d"
        return AxisNames(FrozenDict({"scale": letters}))

    supports_masking: ClassVar[bool] = True

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        # Keras's layer does not declare support for masks, so a mask ends here
        return True

    # scale and the mean squares remain float32
    _autocast: ClassVar[bool] = False

    def build(self, key: jax.Array, x: SpecLike) -> Self:
        return self.with_weights(key, scale=self._sizes(x.shape))

    def call(self, x: jax.Array) -> jax.Array:
        sizes = self._sizes(x.shape)
        check_weight_sizes(self, self.axis, self.scale, sizes, x.shape)
        dtype = self.policy.compute_dtype
        # rounds to the compute dtype as Keras does, before the statistics in float32
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(dtype)
        return rms_normalization(x, self.scale, self.axis, self.epsilon).astype(dtype)

    def _sizes(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(shape[a] for a in sorted(check_axes(self, self.axis, shape)))
