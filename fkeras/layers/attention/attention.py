"""`Attention` and `AdditiveAttention`: means of values, weighted by a softmax of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.attention import both, causal_mask
from fkeras.nn.noise import dropout
from fkeras.nn.numerics.axes import format_shape, may_equal
from fkeras.nn.softmax import masked_softmax


def query_value_key(where: str, inputs: fk.Tree) -> tuple[Any, Any, Any]:
    """Unpacks a list of two or three inputs; the value is the default of the key.

    Raises:
        ValueError: for anything but a list of two or three inputs.
    """
    if not isinstance(inputs, list | tuple) or len(inputs) not in (2, 3):
        received = f"a list of {len(inputs)}" if isinstance(inputs, list | tuple) else "one tensor"
        raise ValueError(
            f"{where}: expected a list [query, value] or [query, value, key], received {received}. "
            "For self-attention write layer([x, x])."
        )
    return inputs[0], inputs[1], inputs[-1]


def query_value_masks(where: str, mask: fk.Tree) -> tuple[Any, Any]:
    """Unpacks the masks of query and value; each mask may be None.

    Raises:
        ValueError: for anything but None or a list of two or three masks.
    """
    if mask is None:
        return None, None
    if not isinstance(mask, list | tuple) or len(mask) not in (2, 3):
        raise ValueError(
            f"{where}: expected a mask for each input, [query_mask, value_mask], received "
            f"{type(mask).__name__}. Give None for an input without a mask."
        )
    return mask[0], mask[1]


class ScoredAttention(fk.Layer):
    """Computes means of values, weighted by a softmax of the scores that a subclass computes.

    The fields of a subclass that come first in Keras's order of arguments stand in a base class on
    the right of this class.

    Args of the family:
        dropout: probability of dropping an attention weight in training.
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.
        empty_rows: result for queries that attend to no key: "zeros", or "keras" for the mean of
            all values, as in Keras. Layers from Keras's files have "keras". Keyword only.

    Call of the family:
        mask: [query_mask, value_mask], of shapes (b, t) and (b, s).
        return_attention_scores: whether to also return the attention weights (b, t, s).
        use_causal_mask: whether step t attends only to the steps up to t.
    """

    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))
    empty_rows: str = fk.option(default="zeros", convert=fk.choice("zeros", "keras"), kw_only=True)

    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(option_names=("mask",))

    def _scores(self, query: jax.Array, key: jax.Array) -> jax.Array:
        """Returns the scores (b, t, s) of a query (b, t, d) and a key (b, s, d)."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return without_default_rows(super().get_config())

    def forward(
        self,
        context: fk.Context,
        inputs: fk.Tree,
        *,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> fk.Output:
        query, value, key = query_value_key(self._where, inputs)
        query_mask, value_mask = query_value_masks(self._where, context.mask)
        check_widths(self._where, (query.shape, key.shape))
        check_steps(self._where, value.shape, key.shape)
        logits = self._scores(query, key)
        mask = None if value_mask is None else _boolean(value_mask)[..., None, :]
        if use_causal_mask:
            steps = causal_mask(logits.shape[-2], logits.shape[-1])
            mask = both(mask, jnp.reshape(steps, (*(1,) * (logits.ndim - 2), *steps.shape)))
        weights = masked_softmax(logits, mask)
        if self.empty_rows == "keras" and mask is not None and value.shape[-2] != 0:
            # Keras subtracts a constant from masked scores: a fully masked row gives equal weights
            empty_rows = jnp.logical_not(jnp.any(mask, axis=-1, keepdims=True))
            weights = jnp.where(
                empty_rows, jnp.asarray(1 / value.shape[-2], weights.dtype), weights
            )
        if context.training and self.dropout > 0:
            weights = dropout(context.seeded_key(self.seed), weights, self.dropout)
        y = jnp.einsum("...ts,...sd->...td", weights, value)
        if query_mask is not None:
            # Keras multiplies by the mask; `where` also stops NaN at masked steps
            y = jnp.where(_boolean(query_mask)[..., None], y, jnp.zeros_like(y))
        if return_attention_scores:
            return fk.Output((y, weights), mask=(query_mask, None))
        return fk.Output(y, mask=query_mask)


def check_widths(where: str, shapes: Sequence[Sequence[Any]]) -> None:
    """Raises an error if the last axes of query and key have different known sizes."""
    query, key = shapes[0][-1], shapes[-1][-1]
    if isinstance(query, int) and isinstance(key, int) and query != key:
        raise ValueError(
            f"{where}: expected query and key with last axes of one size, received {query} and "
            f"{key}. Project the query or the key to the size of the other, for example with "
            f"Dense({query})."
        )


def check_steps(where: str, value: Sequence[Any], key: Sequence[Any]) -> None:
    """Raises an error if value and key have different known numbers of steps.

    A single key or value would broadcast.
    """
    if len(value) != len(key) or not may_equal(value[1:-1], key[1:-1]):
        raise ValueError(
            f"{where}: expected a key for each value, received values of shape {format_shape(value)} "
            f"and keys of shape {format_shape(key)}. Give both the same steps."
        )


def without_default_rows(config: dict[str, Any]) -> dict[str, Any]:
    """Removes `empty_rows` at its default from a config, because Keras lacks this argument."""
    if config.get("empty_rows") == "zeros":
        del config["empty_rows"]
    return config


def _boolean(mask: jax.Array) -> jax.Array:
    return mask if mask.dtype == jnp.bool_ else mask != 0


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
    """
    # an array (b, t, s, d): tanh of a sum does not factorize as a dot product does
    pairs = query[..., :, None, :] + key[..., None, :, :]
    pairs = jnp.tanh(pairs if scale is None else scale * pairs)
    # weights per feature (AdditiveAttention), or one weight for the sum (Attention)
    if features is not None and features.ndim == 1:
        return jnp.einsum("...d,d->...", pairs, features)
    total = jnp.sum(pairs, axis=-1)
    return total if features is None else features * total


class _Score(fk.Layer):
    """Options of the scores of `Attention`, the first of its arguments."""

    use_scale: bool = fk.option(default=False, convert=fk.boolean)
    score_mode: str = fk.option(default="dot", convert=fk.choice("dot", "concat"))


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

    scale: jax.Array | None = fk.weight(initializer=fk.initializers.Ones(), axes="")
    concat_score_weight: jax.Array | None = fk.weight(initializer=fk.initializers.Ones(), axes="")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    @property
    def built(self) -> bool:
        return self.__dict__.get("_built", False) or self._weightless

    @property
    def _weightless(self) -> bool:
        return not self.use_scale and self.score_mode == "dot"

    def build(self, key: jax.Array, inputs: fk.Tree) -> Self:
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


class _Scale(fk.Layer):
    """Option of the scores of `AdditiveAttention`, the first of its arguments."""

    use_scale: bool = fk.option(default=True, convert=fk.boolean)


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

    seed: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(optional=True), kw_only=True
    )

    scale: jax.Array | None = fk.weight(initializer=fk.initializers.GlorotUniform(), axes="d")

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames()

    @property
    def built(self) -> bool:
        return self.__dict__.get("_built", False) or not self.use_scale

    def build(self, key: jax.Array, inputs: fk.Tree) -> Self:
        query, _, _ = query_value_key(self._where, inputs)
        return self.with_weights(key, scale=(query.shape[-1],) if self.use_scale else None)

    def _scores(self, query: jax.Array, key: jax.Array) -> jax.Array:
        return concatenation_scores(query, key, features=self.scale)
