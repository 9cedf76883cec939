"""`LogitScale`: a learned temperature of logits."""

from __future__ import annotations

from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk


class LogitScale(fk.Layer):
    """Computes `exp(log_scale) * x + bias` with one scale and one bias for all numbers.

    Models of images and texts multiply the similarities of their vectors by such a scale.

    Args:
        use_bias: whether to add a bias.
        log_scale_initializer: draws the logarithm of the scale.
        bias_initializer: draws the bias.

    Shapes:
        (b, ...) -> (b, ...); log_scale (), bias ().

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.LogitScale(True, "zeros", "ones").build(jax.random.key(0), (None, 2))
        >>> layer(jnp.array([[1.0, 2.0]]))
        Array([[2., 3.]], dtype=float32)

    References:
        Radford et al., 2021, Learning transferable visual models from natural language supervision,
        https://arxiv.org/abs/2103.00020
    """

    use_bias: bool = fk.option(default=False, convert=fk.boolean)
    # log(1 / 0.07), the start of CLIP's training
    log_scale_initializer: fk.Initializer = fk.option(
        default=fk.initializers.Constant(2.6592), convert=fk.initializer
    )
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)

    log_scale: jax.Array = fk.weight(axes="")
    bias: jax.Array | None = fk.weight(axes="")

    supports_masking: ClassVar[bool] = True

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        return self.with_weights(key, log_scale=(), bias=() if self.use_bias else None)

    def call(self, x: jax.Array) -> jax.Array:
        y = jnp.exp(self.log_scale) * x
        return y if self.bias is None else y + self.bias
