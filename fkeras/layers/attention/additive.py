"""`AdditiveAttention`: means of values, weighted by a function of query plus key."""

from __future__ import annotations

from typing import Any, Self

import jax

from fkeras import initializers
from fkeras.engine import Layer, option, weight
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import OptionalInteger
from fkeras.engine.tree.axes import AxisNames
from fkeras.layers.attention.attention import concatenation_scores
from fkeras.layers.attention.scored import (
    ScoredAttention,
    query_value_key,
)


class _Scale(Layer):
    """Option of the scores of `AdditiveAttention`, the first of its arguments."""

    use_scale: bool = option(default=True, convert=boolean)


class AdditiveAttention(ScoredAttention, _Scale):
    """Computes `softmax(sum(scale * tanh(query + key))) @ value`: Bahdanau's attention.

    No query attends to a masked step of the value. A masked step of the query gives zeros. A query
    that attends to no key gives zeros, with gradient 0.

    Args:
        use_scale: whether to multiply the features of the sum by learned weights.

    Shapes:
        [(b, t, d), (b, s, f)] or [(b, t, d), (b, s, f), (b, s, d)]: query, value and key, where
        the value is the default of the key -> (b, t, f); scale (d,).

    Raises:
        ValueError: for anything but a list of two or three tensors, and a dropout outside of
            [0, 1]; in training with dropout and without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> query, value = jnp.ones((2, 3, 4)), jnp.ones((2, 5, 4))
        >>> layer = fk.layers.AdditiveAttention().build(jax.random.key(0), [query, value])
        >>> layer([query, value]).shape
        (2, 3, 4)

    References:
        Bahdanau et al., Neural machine translation by jointly learning to align and translate
        (2014), https://arxiv.org/abs/1409.0473
    """

    seed: OptionalInteger = option(default=None, convert=integer(optional=True), kw_only=True)

    scale: jax.Array | None = weight(initializer=initializers.GlorotUniform(), axes="d")

    @property
    def axis_names(self) -> AxisNames:
        return AxisNames()

    @property
    def built(self) -> bool:
        return self.__dict__.get("_built", False) or not self.use_scale

    def build(self, key: jax.Array, inputs: Any) -> Self:
        query, _, _ = query_value_key(self._where, inputs)
        return self.with_weights(key, scale=(query.shape[-1],) if self.use_scale else None)

    def _scores(self, query: jax.Array, key: jax.Array) -> jax.Array:
        return concatenation_scores(query, key, features=self.scale)
