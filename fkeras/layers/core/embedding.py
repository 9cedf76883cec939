"""`Embedding`: a table with a learned vector for each id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.id_checks import reject_fractions
from fkeras.layers.core.masking import both_masks
from fkeras.nn.numerics.indices import unsigned_indices


def embed(ids: jax.Array, embeddings: jax.Array) -> jax.Array:
    """Looks up a row of `embeddings` for each id.

    An invalid id (negative, beyond the last row, a fraction, NaN) gives a row of NaN, which passes
    no gradient to the embeddings. Integer tables, such as quantized codes, give the lowest number
    of their dtype instead of NaN.

    Args:
        embeddings: array of shape (v, d).

    Returns:
        An array of shape (*ids.shape, d).

    Example:
        >>> import jax.numpy as jnp
        >>> embed(jnp.array([[1, 0]]), jnp.array([[1.0], [2.0]]))
        Array([[[2.],
                [1.]]], dtype=float32)
    """
    # jnp.take counts negative indices from the end; as unsigned numbers they are out of range, and
    # mode="fill" then returns NaN for them
    ids = unsigned_indices(ids, embeddings.shape[0])
    rows, table = jax.typeof(ids).sharding, jax.typeof(embeddings).sharding
    mesh = rows.mesh if rows.mesh.explicit_axes else table.mesh
    if not mesh.explicit_axes:
        return jnp.take(embeddings, ids, axis=0, mode="fill")
    # the types of explicit axes leave open how a gather is laid out: as the ids and the vectors
    layout = NamedSharding(mesh, PartitionSpec(*rows.spec, table.spec[1]))
    return embeddings.at[ids].get(mode="fill", out_sharding=layout)


class Embedding(fk.Layer):
    """Computes `embeddings[ids]`.

    Ids are integers of any dtype, or floats without a fraction. A call outside of jit rejects
    fractions. A compiled program cannot raise for values: there an invalid id gives NaN. `fit`,
    `evaluate` and `predict` report the row of an invalid id before they begin.

    With `mask_zero`, id 0 is padding and the output carries the mask `ids != 0`. To mask other ids,
    override `compute_mask` in a subclass. The layer keeps a mask of its input: a step is valid
    where both masks are True.

    Args:
        input_dim: number `v` of ids; valid ids are 0 to `input_dim - 1`.
        output_dim: size `d` of a vector.
        embeddings_initializer: draws the embeddings.
        embeddings_regularizer: penalty on the embeddings.
        embeddings_constraint: projection of the embeddings after each update.
        mask_zero: whether id 0 is padding.
        activity_regularizer: penalty on the output, divided by the batch size; by keyword only.

    Shapes:
        (b, ...) -> (b, ..., d); embeddings (v, d).

    Raises:
        ValueError: where a size is not a positive integer; outside of jit, for ids with a fraction.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Embedding(10, 4, mask_zero=True)
        >>> layer = layer.build(jax.random.key(0), jax.ShapeDtypeStruct((None, 3), "int32"))
        >>> out = layer.apply(jnp.array([[5, 2, 0]]))
        >>> out.value.shape, out.mask
        ((1, 3, 4), Array([[ True,  True, False]], dtype=bool))
    """

    input_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    output_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    embeddings_initializer: fk.Initializer = fk.option(default="uniform", convert=fk.initializer)
    embeddings_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    embeddings_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    mask_zero: bool = fk.option(default=False, convert=fk.boolean)
    activity_regularizer: fk.Regularizer = fk.option(
        default=None, convert=fk.regularizer, kw_only=True
    )

    embeddings: jax.Array = fk.weight(axes="vd")

    supports_masking: ClassVar[bool] = True
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(quantized_as="QuantizedEmbedding")
    # a cast of float ids to the compute dtype would change them: float16 is exact up to 2048 only
    _autocast: ClassVar[bool] = False

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(roles=fk.FrozenDict({"v": "vocab"}), output="...d")

    @property
    def id_count(self) -> int:
        """The number of valid ids; `fit` and `predict` check their inputs against this number."""
        return self.input_dim

    def apply(self, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        """Returns the `Output` of the layer; rejects fractions where the ids are concrete."""
        for ids in inputs:
            reject_fractions(ids, self._where)
        return super().apply(*inputs, **options)

    def build(self, key: jax.Array, ids: fk.SpecLike) -> Self:
        return self.with_weights(key, embeddings=(self.input_dim, self.output_dim))

    def compute_mask(self, ids: jax.Array) -> jax.Array | None:
        """Returns the mask of the ids: False where an id is padding; None without `mask_zero`."""
        return ids != 0 if self.mask_zero else None

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        # Keras's compute_mask ignores the mask of the input, and returns its own mask or None
        return True

    def forward(self, context: fk.Context, ids: jax.Array) -> fk.Output:
        # cast the looked-up rows, not the table: the table may be far larger
        y = embed(ids, self.embeddings).astype(self.policy.compute_dtype)
        return fk.Output(y, mask=both_masks(context.mask, self.compute_mask(ids)))
