"""`TokenAndPositionEmbedding`: vectors of tokens plus vectors of their positions, as KerasHub has it."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax

from fkeras.layers.attention.position_encoding import PositionEmbedding
from fkeras.layers.common import authoring as fk
from fkeras.layers.common.id_checks import reject_fractions
from fkeras.layers.core.reversible_embedding import ReversibleEmbedding


class TokenAndPositionEmbedding(fk.Layer):
    """Computes the sum of a learned vector for each token and a learned vector for its position.

    Ids follow the rules of `Embedding`, and positions those of `PositionEmbedding`.
    `layer.token_embedding(x, reverse=True)` gives logits.

    Args:
        vocabulary_size: number `v` of ids.
        sequence_length: number `s` of positions.
        embedding_dim: size `d` of a vector.
        tie_weights: whether logits use the weights of the tokens.
        embeddings_initializer: draws both tables.
        mask_zero: whether id 0 is padding.

    Call:
        start_index: the position of the first token, where no positions are given.
        positions: integers (t,) or (b, t); None counts from `start_index`.

    Shapes:
        (b, t) -> (b, t, d); token_embedding (v, d), position_embedding (s, d).

    Raises:
        ValueError: for sizes that are not positive integers, more tokens than positions, and
            positions beyond the table.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.TokenAndPositionEmbedding(100, 16, 8)
        >>> layer = layer.build(jax.random.key(0), jax.ShapeDtypeStruct((None, None), "int32"))
        >>> layer(jnp.array([[5, 2, 0]])).shape
        (1, 3, 8)
    """

    vocabulary_size: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    sequence_length: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    embedding_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    tie_weights: bool = fk.option(default=True, convert=fk.boolean)
    embeddings_initializer: fk.Initializer = fk.option(default="uniform", convert=fk.initializer)
    mask_zero: bool = fk.option(default=False, convert=fk.boolean)

    token_embedding: ReversibleEmbedding | None = dataclasses.field(default=None, init=False)
    position_embedding: PositionEmbedding | None = dataclasses.field(default=None, init=False)

    supports_masking: ClassVar[bool] = True
    _keras_module: ClassVar[str] = "keras_hub.src.layers.modeling.token_and_position_embedding"
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(option_names=("start_index", "positions"))
    # a cast of float ids to the compute dtype would change them
    _autocast: ClassVar[bool] = False

    @property
    def id_count(self) -> int:
        """The number of valid ids; `fit` and `predict` check their inputs against this number."""
        return self.vocabulary_size

    def build(self, key: jax.Array, x: fk.Spec, *more: fk.Tree) -> Self:
        options: dict[str, Any] = {"dtype": self.dtype, "trainable": self.trainable}
        tokens = ReversibleEmbedding(
            self.vocabulary_size,
            self.embedding_dim,
            tie_weights=self.tie_weights,
            embeddings_initializer=self.embeddings_initializer,
            mask_zero=self.mask_zero,
            name="token_embedding",
            **options,
        )
        positions = PositionEmbedding(
            self.sequence_length,
            initializer=self.embeddings_initializer,
            name="position_embedding",
            **options,
        )
        vectors = fk.Spec((*x.dims, self.embedding_dim), self.policy.compute_dtype)
        return self.replace(
            token_embedding=tokens.build(fk.subkey(key, "token_embedding"), x),
            position_embedding=positions.build(fk.subkey(key, "position_embedding"), vectors),
            _built=True,
        )

    def _unbuilt(self) -> Self:
        """Returns a copy without weights, and without the layers that hold them."""
        return self.replace(token_embedding=None, position_embedding=None, _built=False)

    def apply(self, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        """Returns the `Output` of the layer; rejects fractions where the ids are concrete."""
        for ids in inputs[:1]:
            reject_fractions(ids, self._where)
        return super().apply(*inputs, **options)

    def forward(
        self, context: fk.Context, x: jax.Array, positions: Any = None, start_index: Any = 0
    ) -> fk.Output:
        assert self.token_embedding is not None  # `build` makes both
        assert self.position_embedding is not None
        (mask,) = context.input_masks(1)
        tokens = context.child("token_embedding", mask=mask).run(self.token_embedding, x)
        places = context.child("position_embedding").run(
            self.position_embedding, tokens.value, positions, start_index=start_index
        )
        return fk.Output(tokens.value + places.value, mask=tokens.mask)
