"""`AdditiveAttention`: means of values, weighted by a function of query plus key."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax

from fkeras import initializers
from fkeras.engine import Context, Layer, Output, option, weight
from fkeras.engine.config.converters import boolean, choice, integer, probability
from fkeras.engine.config.field_types import OptionalInteger, Real
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.tree.axes import AxisNames
from fkeras.layers.attention.attention import concatenation_scores
from fkeras.layers.attention.scored import (
    attend_by_scores,
    check_widths,
    query_value_key,
    without_default_rows,
)


class AdditiveAttention(Layer):
    """Computes `softmax(sum(scale * tanh(query + key))) @ value`: Bahdanau's attention.

    No query attends to a masked step of the value. A masked step of the query gives zeros. A query
    that attends to no key gives zeros, with gradient 0.

    Args:
        use_scale: whether to multiply the features of the sum by learned weights.
        Other arguments: those of `Attention`, without `score_mode`; `seed` by keyword only.

    Call:
        Arguments: those of `Attention`.

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

    use_scale: bool = option(default=True, convert=boolean)
    dropout: Real = option(default=0.0, convert=probability)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True), kw_only=True)
    empty_rows: str = option(default="zeros", convert=choice("zeros", "keras"), kw_only=True)

    scale: jax.Array | None = weight(initializer=initializers.GlorotUniform(), axes="d")

    @property
    def axis_names(self) -> AxisNames:
        return AxisNames()

    supports_masking: ClassVar[bool] = True
    keras_form: ClassVar[KerasForm] = KerasForm(option_names=("mask",))

    def get_config(self) -> dict[str, Any]:
        return without_default_rows(super().get_config())

    @property
    def built(self) -> bool:
        return self.__dict__.get("_built", False) or not self.use_scale

    def build(self, key: jax.Array, inputs: Any) -> Self:
        query, _, _ = query_value_key(self.where, inputs)
        return self.with_weights(key, scale=(query.shape[-1],) if self.use_scale else None)

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
        return concatenation_scores(query, key, features=self.scale)
