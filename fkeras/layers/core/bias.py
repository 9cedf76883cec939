"""`Bias`: adds a learned vector to the last axis."""

from __future__ import annotations

from typing import ClassVar, Self

import jax

from fkeras.layers.common import authoring as fk
from fkeras.nn.cpu.broadcasting import for_rows


class Bias(fk.Layer):
    """Computes `x + bias` over the last axis.

    The layer completes logits that another layer computes without a bias, such as the reverse call
    of `ReversibleEmbedding`.

    Args:
        bias_initializer: draws the bias.

    Shapes:
        (b, ..., d) -> (b, ..., d); bias (d,).

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> fk.layers.Bias("ones").build(jax.random.key(0), (None, 2))(jnp.zeros((1, 2)))
        Array([[1., 1.]], dtype=float32)
    """

    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)

    bias: jax.Array = fk.weight(axes="d")

    supports_masking: ClassVar[bool] = True

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(output="...d")

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        return self.with_weights(key, bias=(x.shape[-1],))

    def call(self, x: jax.Array) -> jax.Array:
        return x + for_rows(self.bias, x)
