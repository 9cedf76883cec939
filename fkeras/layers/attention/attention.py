"""`Attention`: means of values, weighted by the dot product of query and key."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras import initializers
from fkeras.engine import Context, Layer, Output, option, weight
from fkeras.engine.config.converters import boolean, choice, integer, probability
from fkeras.engine.config.field_types import OptionalInteger, Real
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.layers.attention.scored import (
    attend_by_scores,
    check_widths,
    query_value_key,
    without_default_rows,
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
        scale: a number, or None for 1.
        features: a number, an array of shape (d,), or None for 1.

    Returns:
        An array of shape (b, t, s).

    Example:
        >>> import jax.numpy as jnp
        >>> concatenation_scores(jnp.zeros((1, 2, 3)), jnp.ones((1, 4, 3))).shape
        (1, 2, 4)
    """
    pairs = query[..., :, None, :] + key[..., None, :, :]
    pairs = jnp.tanh(pairs if scale is None else scale * pairs)
    if features is not None and features.ndim == 1:
        return jnp.einsum("...d,d->...", pairs, features)
    total = jnp.sum(pairs, axis=-1)
    return total if features is None else features * total


class Attention(Layer):
    """Computes `softmax(query @ key^T) @ value`: Luong's attention.

    A masked step of the value is attended to by no query, and a masked step of the query is zero
    in the output. A query that may attend to no key gives zeros, without a gradient.

    Args:
        use_scale: whether the scores are multiplied with a learned number.
        score_mode: "dot" for the dot product; "concat" for
            `weight * sum(tanh(scale * (query + key)))`.
        dropout: the share of the weights that is dropped in training.
        seed: folded into the key of each call; the key alone decides where it is None.
        empty_rows: by keyword only: the result of a query that may attend to no key: "zeros", or
            "keras" for Keras's, the mean of all values. Layers of Keras's files have "keras".

    Call:
        mask: [query_mask, value_mask], of shapes (b, t) and (b, s).
        return_attention_scores: whether the weights (b, t, s) are returned too.
        use_causal_mask: whether step t attends to the steps up to t only.

    Shapes:
        [(b, t, d), (b, s, f)] or [(b, t, d), (b, s, f), (b, s, d)], which are query, value and
        key (the value, if none is given) -> (b, t, f); scale and concat_score_weight ().

    Raises:
        ValueError: for something else than a list of two or three tensors, a dropout outside of
            [0, 1], an unknown mode; in training with dropout and without a key.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> query, value = jnp.ones((2, 3, 4)), jnp.ones((2, 5, 4))
        >>> fk.layers.Attention()([query, value]).shape
        (2, 3, 4)

    References:
        Luong et al., Effective approaches to attention-based neural machine translation (2015),
        https://arxiv.org/abs/1508.04025
    """

    use_scale: bool = option(default=False, convert=boolean)
    score_mode: str = option(default="dot", convert=choice("dot", "concat"))
    dropout: Real = option(default=0.0, convert=probability)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))
    empty_rows: str = option(default="zeros", convert=choice("zeros", "keras"), kw_only=True)

    scale: jax.Array | None = weight(initializer=initializers.Ones())
    concat_score_weight: jax.Array | None = weight(initializer=initializers.Ones())

    supports_masking: ClassVar[bool] = True
    keras_form: ClassVar[KerasForm] = KerasForm(option_names=("mask",))

    def get_config(self) -> dict[str, Any]:
        return without_default_rows(super().get_config())

    @property
    def built(self) -> bool:
        return self.__dict__.get("_built", False) or self._weightless

    @property
    def _weightless(self) -> bool:
        return not self.use_scale and self.score_mode == "dot"

    def build(self, key: jax.Array, inputs: Any) -> Self:
        # checks the form of the inputs only
        query_value_key(self.where, inputs)
        scale = () if self.use_scale else None
        concat = () if self.score_mode == "concat" else None
        return self.with_weights(key, scale=scale, concat_score_weight=concat)

    def forward(
        self,
        context: Context,
        inputs: Any,
        *,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Output:
        return attend_by_scores(
            self, context, inputs, self._scores, return_attention_scores, use_causal_mask
        )

    def _scores(self, query: jax.Array, key: jax.Array) -> jax.Array:
        check_widths(self.where, (query.shape, key.shape))
        if self.score_mode == "concat":
            return concatenation_scores(query, key, self.scale, self.concat_score_weight)
        if self.scale is not None:
            query = query * self.scale
        return jnp.einsum("...td,...sd->...ts", query, key)
