"""`GroupNormalization`: normalizes each sample over groups of channels."""

from __future__ import annotations

from typing import Self

import jax

from fkeras.layers.common import authoring as fk
from fkeras.layers.normalization.layer import ScaleAndShift
from fkeras.nn.normalization import group_normalization

_axis = fk.either(
    fk.integer(minimum=1),
    fk.integer(maximum=-1),
    hint="Give the channel axis: -1, or 1 for channels first; axis 0 is the batch axis.",
)


class _Groups(fk.Layer):
    """Groups of channels, the first arguments of `GroupNormalization`."""

    groups: fk.Integer = fk.option(
        default=32,
        convert=fk.integer(
            minimum=1,
            also=(-1,),
            hint=(
                "-1 means one group per channel; otherwise give a divisor of the number of "
                "channels."
            ),
        ),
    )
    axis: fk.Integer = fk.option(default=-1, convert=_axis)
    epsilon: fk.Real = fk.option(default=1e-3, convert=fk.real(minimum=0))


class GroupNormalization(ScaleAndShift, _Groups):
    """Normalizes groups of a sample's channels to mean 0 and variance 1, then scales and shifts.

    Unlike batch normalization, the result does not depend on other samples. One group is layer
    normalization over all axes except the batch; -1 (one group per channel) is instance
    normalization. Statistics are float32 even if the compute dtype is half precision, and weights
    keep the variable dtype.

    Args:
        groups: number of groups, a divisor of the number of channels; -1 for one group per channel.
        axis: the channel axis.
        epsilon: added to the variance.

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

    gamma: jax.Array | None = fk.weight(axes="c")
    beta: jax.Array | None = fk.weight(axes="c")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    @property
    def input_spec(self) -> fk.InputSpec:
        sizes = [w.shape[0] for w in (self.gamma, self.beta) if w is not None]
        return fk.InputSpec(
            min_ndim=max(2, self.axis + 1, 1 - self.axis),
            axes={self.axis: sizes[0] if sizes else None},
        )

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
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
        # the inputs are not cast: the compute dtype may not hold them
        y = group_normalization(x, groups, self.gamma, self.beta, self.axis, self.epsilon)
        return y.astype(self.policy.compute_dtype)

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
