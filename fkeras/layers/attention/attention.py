"""`Attention`: means of values, weighted by the dot product of query and key."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp

from fkeras import initializers
from fkeras.engine import Layer, option, weight
from fkeras.engine.config.converters import boolean, choice
from fkeras.engine.tree.axes import AxisNames
from fkeras.layers.attention.scored import (
    ScoredAttention,
    query_value_key,
)


def concatenation_scores(
    query: jax.Array,
    key: jax.Array,
    scale: jax.Array | None = None,
    features: jax.Array | None = None,
) -> jax.Array:
    """Computes `sum(features * tanh(scale * (query + key)))` for each pair of steps.

    Args:
        query: array of shape (b, t, d).
        key: array of shape (b, s, d).
        scale: a scalar, or None for 1.
        features: a scalar, an array of shape (d,), or None for 1.

    Returns:
        An array of shape (b, t, s).

    Example:
        >>> import jax.numpy as jnp
        >>> concatenation_scores(jnp.zeros((1, 2, 3)), jnp.ones((1, 4, 3))).shape
        (1, 2, 4)
    """
    # an array (b, t, s, d): tanh of a sum does not factorize as a dot product does
    pairs = query[..., :, None, :] + key[..., None, :, :]
    pairs = jnp.tanh(pairs if scale is None else scale * pairs)
    # weights per feature (AdditiveAttention), or one weight for the sum (Attention)
    if features is not None and features.ndim == 1:
        return jnp.einsum("...d,d->...", pairs, features)
    total = jnp.sum(pairs, axis=-1)
    return total if features is None else features * total


class _Score(Layer):
    """Options of the scores of `Attention`, the first of its arguments."""

    use_scale: bool = option(default=False, convert=boolean)
    score_mode: str = option(default="dot", convert=choice("dot", "concat"))


class Attention(ScoredAttention, _Score):
    """Computes `softmax(query @ key^T) @ value`: Luong's attention.

    No query attends to a masked step of the value. A masked step of the query gives zeros. A query
    that attends to no key gives zeros, with gradient 0.

    Args:
        use_scale: whether to multiply the scores by a learned scalar.
        score_mode: "dot" for the dot product; "concat" for
            `weight * sum(tanh(scale * (query + key)))`.

    Shapes:
        [(b, t, d), (b, s, f)] or [(b, t, d), (b, s, f), (b, s, d)]: query, value and key, where
        the value is the default of the key -> (b, t, f); scale and concat_score_weight ().

    Raises:
        ValueError: for anything but a list of two or three tensors, a dropout outside of [0, 1],
            and an unknown mode; in training with dropout and without a key.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> query, value = jnp.ones((2, 3, 4)), jnp.ones((2, 5, 4))
        >>> fk.layers.Attention()([query, value]).shape
        (2, 3, 4)

    References:
        Luong et al., Effective approaches to attention-based neural machine translation (2015),
        https://arxiv.org/abs/1508.04025
    """

    scale: jax.Array | None = weight(initializer=initializers.Ones(), axes="")
    concat_score_weight: jax.Array | None = weight(initializer=initializers.Ones(), axes="")

    @property
    def axis_names(self) -> AxisNames:
        return AxisNames()

    @property
    def built(self) -> bool:
        return self.__dict__.get("_built", False) or self._weightless

    @property
    def _weightless(self) -> bool:
        return not self.use_scale and self.score_mode == "dot"

    def build(self, key: jax.Array, inputs: Any) -> Self:
        # only checks the inputs: the shapes of the weights do not depend on them
        query_value_key(self._where, inputs)
        scale = () if self.use_scale else None
        concat = () if self.score_mode == "concat" else None
        return self.with_weights(key, scale=scale, concat_score_weight=concat)

    def _scores(self, query: jax.Array, key: jax.Array) -> jax.Array:
        if self.score_mode == "concat":
            return concatenation_scores(query, key, self.scale, self.concat_score_weight)
        # scaling the query costs less than scaling the scores (b, t, s)
        if self.scale is not None:
            query = query * self.scale
        return jnp.einsum("...td,...sd->...ts", query, key)
