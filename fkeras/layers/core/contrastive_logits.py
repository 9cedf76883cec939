"""`ContrastiveLogits`: similarities of two sets of vectors with a learned scale."""

from __future__ import annotations

from typing import Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk


class ContrastiveLogits(fk.Layer):
    """Computes `exp(log_scale) * x @ y^T + bias`: a logit for each pair of rows.

    The rows are usually unit vectors, such as those of images and of texts. The numbers of rows may
    differ.

    Args:
        use_bias: whether to add a bias.
        log_scale_initializer: draws the logarithm of the scale.
        bias_initializer: draws the bias.

    Shapes:
        x (b, d), y (c, d) -> (b, c); log_scale (), bias ().

    Raises:
        ValueError: for inputs of other ranks or widths.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ContrastiveLogits(log_scale_initializer="zeros")
        >>> layer = layer.build(jax.random.key(0), (None, 2), (None, 2))
        >>> layer(jnp.eye(2), jnp.array([[1.0, 2.0]]))
        Array([[1.],
               [2.]], dtype=float32)

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

    log_scale: jax.Array = fk.weight()
    bias: jax.Array | None = fk.weight()

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    @property
    def input_spec(self) -> list[fk.InputSpec]:
        return [fk.InputSpec(ndim=2), fk.InputSpec(ndim=2)]

    def build(self, key: jax.Array, x: fk.SpecLike, y: fk.SpecLike) -> Self:
        return self.with_weights(key, log_scale=(), bias=() if self.use_bias else None)

    def call(self, x: jax.Array, y: jax.Array) -> jax.Array:
        if x.shape[-1] != y.shape[-1]:
            raise ValueError(
                f"{self._where}: expected rows of one width, received {x.shape[-1]} and "
                f"{y.shape[-1]}. Project both to the same width."
            )
        logits = jnp.exp(self.log_scale) * (x @ y.T)
        return logits if self.bias is None else logits + self.bias
