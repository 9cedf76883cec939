"""`GroupNormalization`: normalizes each sample over groups of channels."""

from __future__ import annotations

from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras import constraints, initializers, regularizers
from fkeras.engine import InputSpec, Layer, option, weight
from fkeras.engine.config.converters import boolean, either, integer, real
from fkeras.engine.config.field_types import Constraint, Initializer, Integer, Real, Regularizer
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.values.spec import SpecLike
from fkeras.nn.normalization import group_normalization

_axis = either(
    integer(minimum=1),
    integer(maximum=-1),
    hint="Give the channel axis: -1, or 1 for channels first; axis 0 is the batch axis.",
)


class GroupNormalization(Layer):
    """Normalizes groups of a sample's channels to mean 0 and variance 1, then scales and shifts.

    Unlike batch normalization, the result does not depend on other samples. One group is layer
    normalization over all axes except the batch; -1 (one group per channel) is instance
    normalization. Statistics are float32 even if the compute dtype is half precision, and weights
    keep the variable dtype.

    Args:
        groups: number of groups, a divisor of the number of channels; -1 for one group per channel.
        axis: the channel axis.
        Other arguments: those of `LayerNormalization`.

    Shapes:
        (b, ..., c) -> (b, ..., c); gamma and beta (c,).

    Raises:
        ValueError: if the number of groups does not divide the number of channels.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.GroupNormalization(2, epsilon=0.0)
        >>> layer = layer.build(jax.random.key(0), (None, 4))
        >>> layer(jnp.array([[1.0, 3.0, 5.0, 9.0]]))
        Array([[-1.,  1., -1.,  1.]], dtype=float32)

    References:
        Wu and He, 2018, Group normalization, https://arxiv.org/abs/1803.08494
    """

    groups: Integer = option(
        default=32,
        convert=integer(
            minimum=1,
            also=(-1,),
            hint=(
                "-1 means one group per channel; otherwise give a divisor of the number of "
                "channels."
            ),
        ),
    )
    axis: Integer = option(default=-1, convert=_axis)
    epsilon: Real = option(default=1e-3, convert=real(minimum=0))
    center: bool = option(default=True, convert=boolean)
    scale: bool = option(default=True, convert=boolean)
    beta_initializer: Initializer = option(default="zeros", convert=initializers.get)
    gamma_initializer: Initializer = option(default="ones", convert=initializers.get)
    beta_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    gamma_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    beta_constraint: Constraint = option(default=None, convert=constraints.get)
    gamma_constraint: Constraint = option(default=None, convert=constraints.get)

    gamma: jax.Array | None = weight(axes="c")
    beta: jax.Array | None = weight(axes="c")

    @property
    def axis_names(self) -> AxisNames:
        return AxisNames()

    supports_masking: ClassVar[bool] = True
    # gamma, beta and the statistics remain float32
    _autocast: ClassVar[bool] = False

    @property
    def input_spec(self) -> InputSpec:
        sizes = [w.shape[0] for w in (self.gamma, self.beta) if w is not None]
        return InputSpec(
            min_ndim=max(2, self.axis + 1, 1 - self.axis),
            axes={self.axis: sizes[0] if sizes else None},
        )

    def build(self, key: jax.Array, x: SpecLike) -> Self:
        size = x.shape[self.axis]
        if size is None:
            raise ValueError(
                f"{self._where}: expected an input with a known size on axis {self.axis}, received "
                f"{x}. Give the channels a size, as in fk.Input((None, 8))."
            )
        self._checked_groups(size)
        return self.with_weights(
            key, gamma=(size,) if self.scale else None, beta=(size,) if self.center else None
        )

    def call(self, x: jax.Array) -> jax.Array:
        groups = self._checked_groups(x.shape[self.axis])
        dtype = self.policy.compute_dtype
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(dtype)
        y = group_normalization(x, groups, self.gamma, self.beta, self.axis, self.epsilon)
        return y.astype(dtype)

    def _checked_groups(self, size: int) -> int:
        groups = size if self.groups == -1 else self.groups
        if size % groups != 0:
            divisors = [n for n in range(1, size + 1) if size % n == 0]
            nearest = min(divisors, key=lambda n: abs(n - groups))
            raise ValueError(
                f"{self._where}: expected a number of groups that divides the {size} channels on "
                f"axis {self.axis}, received groups={groups}. Give groups={nearest}."
            )
        return groups
