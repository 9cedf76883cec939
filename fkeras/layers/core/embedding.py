"""`Embedding`: a learned vector for each of a fixed number of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras import constraints, initializers, regularizers
from fkeras.engine import Context, Layer, Output, option, weight
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import Constraint, Initializer, Integer, Regularizer
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.values.spec import SpecLike
from fkeras.layers.common.id_checks import refuse_fractions
from fkeras.layers.core.masking import both_masks
from fkeras.nn.numerics.indices import unsigned_indices


def embed(ids: jax.Array, embeddings: jax.Array) -> jax.Array:
    """Looks up a row of `embeddings` for each id.

    An id that is no row (negative, beyond the last row, a fraction, NaN) gives a row of NaN, and no
    gradient reaches the embeddings from this row. Integer tables, such as quantized codes, give
    their lowest number.

    Args:
        ids: array of numbers of any shape.
        embeddings: array of shape (v, d).

    Returns:
        An array of shape (*ids.shape, d).

    Example:
        >>> import jax.numpy as jnp
        >>> embed(jnp.array([[1, 0]]), jnp.array([[1.0], [2.0]]))
        Array([[[2.],
                [1.]]], dtype=float32)
    """
    ids = unsigned_indices(ids, embeddings.shape[0])
    return jnp.take(embeddings, ids, axis=0, mode="fill")


class Embedding(Layer):
    """Computes `embeddings[ids]`.

    Ids of any integer type are taken, and floats that are whole. Where the values are known, in a
    call outside of jit, a fraction raises an error. In a compiled program an id that is no row
    gives NaN; `fit`, `evaluate` and `predict` report the row of such an id before they begin. With `mask_zero`, id 0 is
    padding and the output carries the mask `ids != 0`; a subclass that overrides `compute_mask`
    masks other ids. A mask that arrives is kept, as each id is looked up by itself.

    Args:
        input_dim: the number `v` of ids: they go from 0 to `input_dim - 1`.
        output_dim: the size `d` of a vector.
        embeddings_initializer: makes the vectors.
        embeddings_regularizer: a penalty on the vectors.
        embeddings_constraint: projects the vectors after an update.
        mask_zero: whether id 0 is padding.
        activity_regularizer: by keyword only: a penalty on the output, divided by the batch size.

    Shapes:
        (b, ...) -> (b, ..., d); embeddings (v, d).

    Raises:
        ValueError: where a size is no positive integer; in a call outside of jit, for ids that are
            not whole.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Embedding(10, 4, mask_zero=True)
        >>> layer = layer.build(jax.random.key(0), jax.ShapeDtypeStruct((None, 3), "int32"))
        >>> out = layer.apply(jnp.array([[5, 2, 0]]))
        >>> out.value.shape, out.mask
        ((1, 3, 4), Array([[ True,  True, False]], dtype=bool))
    """

    input_dim: Integer = option(convert=integer(minimum=1))
    output_dim: Integer = option(convert=integer(minimum=1))
    embeddings_initializer: Initializer = option(default="uniform", convert=initializers.get)
    embeddings_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    embeddings_constraint: Constraint = option(default=None, convert=constraints.get)
    mask_zero: bool = option(default=False, convert=boolean)
    activity_regularizer: Regularizer = option(default=None, convert=regularizers.get, kw_only=True)

    embeddings: jax.Array = weight()

    supports_masking: ClassVar[bool] = True
    keras_form: ClassVar[KerasForm] = KerasForm(quantized_as="QuantizedEmbedding")
    # ids in a short float type would be rounded to other ids
    autocast: ClassVar[bool] = False

    @property
    def id_count(self) -> int:
        """How many ids there are; `fit` and `predict` check their inputs against this number."""
        return self.input_dim

    def apply(self, *inputs: Any, **options: Any) -> Output:
        """The `Output` of the layer; ids are checked to be whole where they are known."""
        for ids in inputs:
            refuse_fractions(ids, self.where)
        return super().apply(*inputs, **options)

    def build(self, key: jax.Array, ids: SpecLike) -> Self:
        return self.with_weights(key, embeddings=(self.input_dim, self.output_dim))

    def compute_mask(self, ids: jax.Array) -> jax.Array | None:
        """The mask of the ids: True where an id is no padding; None without padding."""
        return ids != 0 if self.mask_zero else None

    def loses_masks(self, masks: Sequence[Any]) -> bool:
        return True  # for its own

    def forward(self, context: Context, ids: jax.Array) -> Output:
        y = embed(ids, self.embeddings).astype(self.policy.compute_dtype)
        return Output(y, mask=both_masks(context.mask, self.compute_mask(ids)))
