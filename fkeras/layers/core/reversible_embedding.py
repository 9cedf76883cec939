"""`ReversibleEmbedding`: an embedding that also maps vectors to logits with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.id_checks import reject_fractions
from fkeras.layers.core.embedding import embed
from fkeras.layers.core.masking import both_masks
from fkeras.nn.numerics.axes import format_shape


def soft_cap(x: jax.Array, cap: float) -> jax.Array:
    """Computes `cap * tanh(x / cap)`: close to x for small x, and bounded by `cap`."""
    return jnp.tanh(x / cap) * cap


def _dtype(value: fk.Field) -> str | None:
    name = None if value is None else fk.dtype_name(value)
    if value is not None and (name is None or not jnp.issubdtype(name, jnp.floating)):
        raise ValueError(
            f"expected a floating-point dtype, received {fk.describe_value(value)}. Give 'float32', "
            "or None for the dtype that the layer computes in."
        )
    return name


class ReversibleEmbedding(fk.Layer):
    """Computes `embeddings[ids]`, and in reverse the logits `x @ embeddings^T`.

    Ids follow the rules of `Embedding`. The layer passes a mask of its input on, in both
    directions.

    Args:
        input_dim: number `v` of ids; valid ids are 0 to `input_dim - 1`.
        output_dim: size `d` of a vector.
        tie_weights: whether the logits use the weights of the embeddings.
        embeddings_initializer: draws the embeddings, and the separate weights of the logits.
        embeddings_regularizer: penalty on the embeddings.
        embeddings_constraint: projection of the embeddings after each update.
        mask_zero: whether id 0 is padding.
        reverse_dtype: dtype of the logits and of their computation; None for the compute dtype.
        logit_soft_cap: bound of the logits, which become `cap * tanh(logits / cap)`; None for none.
        activity_regularizer: penalty on the output, divided by the batch size; by keyword only.

    Call:
        reverse: whether the input holds vectors and the output logits, instead of ids and vectors.

    Shapes:
        (b, ...) -> (b, ..., d), in reverse (b, ..., d) -> (b, ..., v); embeddings (v, d), and
        reverse_embeddings (d, v) without `tie_weights`.

    Raises:
        ValueError: where a size is not a positive integer, or vectors have another size than `d`.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.ReversibleEmbedding(10, 4)
        >>> layer = layer.build(jax.random.key(0), jax.ShapeDtypeStruct((None, 3), "int32"))
        >>> vectors = layer(jnp.array([[5, 2, 0]]))
        >>> vectors.shape, layer(vectors, reverse=True).shape
        ((1, 3, 4), (1, 3, 10))

    References:
        Press and Wolf, Using the output embedding to improve language models (2017),
        https://arxiv.org/abs/1608.05859
    """

    input_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    output_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    tie_weights: bool = fk.option(default=True, convert=fk.boolean)
    embeddings_initializer: fk.Initializer = fk.option(default="uniform", convert=fk.initializer)
    embeddings_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    embeddings_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    mask_zero: bool = fk.option(default=False, convert=fk.boolean)
    reverse_dtype: fk.OptionalDTypeName = fk.option(default=None, convert=_dtype)
    logit_soft_cap: fk.OptionalReal = fk.option(
        default=None, convert=fk.real(above=0, optional=True)
    )
    activity_regularizer: fk.Regularizer = fk.option(
        default=None, convert=fk.regularizer, kw_only=True
    )

    embeddings: jax.Array = fk.weight(axes="vd")
    reverse_embeddings: jax.Array | None = fk.weight(axes="dv")

    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(quantized_as="QuantizedEmbedding")
    # a cast of float ids to the compute dtype would change them: float16 is exact up to 2048 only
    _autocast: ClassVar[bool] = False

    @property
    def axis_names(self) -> fk.AxisNames:
        # no letters for the output: its last axis is "d", or "v" of a reverse call
        return fk.AxisNames(roles=fk.FrozenDict({"v": "vocab"}))

    @property
    def reverse_embeddings_initializer(self) -> Any:
        """The initializer of the separate weights of the logits, as in Keras."""
        # `with_weights` looks an initializer up by the name of the weight
        return self.embeddings_initializer

    @property
    def id_count(self) -> int:
        """The number of valid ids; `fit` and `predict` check their inputs against this number."""
        return self.input_dim

    def apply(self, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        """Returns the `Output` of the layer; rejects fractions where the ids are concrete."""
        for ids in () if options.get("reverse") else inputs:
            reject_fractions(ids, self._where)
        return super().apply(*inputs, **options)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        reverse = None if self.tie_weights else (self.output_dim, self.input_dim)
        return self.with_weights(
            key, embeddings=(self.input_dim, self.output_dim), reverse_embeddings=reverse
        )

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        # Keras's compute_mask ignores the mask of the input
        return True

    def forward(self, context: fk.Context, x: jax.Array, *, reverse: bool = False) -> fk.Output:
        if reverse:
            return fk.Output(self._scores(x), mask=context.mask)
        y = embed(x, self.embeddings).astype(self.policy.compute_dtype)
        return fk.Output(y, mask=both_masks(context.mask, x != 0 if self.mask_zero else None))

    def check_vectors(self, x: fk.Tree) -> None:
        """Checks that the last axis of `x` has the size of the vectors.

        Raises:
            ValueError: where the last axis has another known size.
        """
        if isinstance(x.shape[-1], int) and x.shape[-1] != self.output_dim:
            raise ValueError(
                f"{self._where}: expected vectors of size {self.output_dim} to reverse, received "
                f"{format_shape(x.shape)}. Project them first, such as with "
                f"Dense({self.output_dim})."
            )

    def _scores(self, x: jax.Array) -> jax.Array:
        self.check_vectors(x)
        dtype = self.policy.compute_dtype if self.reverse_dtype is None else self.reverse_dtype
        weights, axis = self.embeddings, 1
        if self.reverse_embeddings is not None:
            weights, axis = self.reverse_embeddings, 0
        # compute dtype first: autocast is off for ids, so vectors and weights are rounded here as
        # the inputs of other layers are, also where reverse_dtype is wider
        x, weights = (w.astype(self.policy.compute_dtype).astype(dtype) for w in (x, weights))
        y = jnp.tensordot(x, weights, axes=((-1,), (axis,)))
        return y if self.logit_soft_cap is None else soft_cap(y, self.logit_soft_cap)
