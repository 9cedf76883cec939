"""`RelativePositionBias`: a learned bias of attention scores for each distance of two positions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk


def distance_buckets(buckets: int, max_distance: int) -> np.ndarray:
    """Returns the bucket of each distance from 0 to `max_distance`.

    The first half of the buckets hold one distance each. The widths of the others grow
    logarithmically up to `max_distance`, and the last bucket holds all larger distances.
    """
    exact = buckets // 2
    distances = np.arange(max_distance + 1)
    # float32, as in the models that were trained with these buckets: at powers of the base, another
    # precision would choose the next bucket
    steps = np.log(np.maximum(distances, 1).astype("float32") / np.float32(exact))
    steps = steps / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    wide = np.minimum(exact + steps.astype(int), buckets - 1)
    return np.where(distances < exact, distances, wide)


class RelativePositionBias(fk.Layer):
    """Computes a bias for each pair of a query and a key, which depends on their distance.

    Distances share a bias in buckets: one for each small distance, and wider ones for larger
    distances. Positions are absolute, so the layer serves packed rows and caches too.

    In self-attention leave the key positions out. `init_cache(batch, length)` then makes the positions of
    the slots of a cache of `DotProductAttention`, and the keys are those of the cache.

    Args:
        num_heads: number `h` of heads; each has its own biases.
        num_buckets: number of buckets, half of them for keys after the query if `bidirectional`.
        max_distance: all distances from here on share the last bucket.
        bidirectional: whether keys after the query have their own biases; otherwise they have the
            bias of distance 0, and a causal mask excludes them.
        embeddings_initializer: draws the biases.

    Call:
        query_positions, key_positions: integers of shape (b, t) and (b, s); key positions are by
            default the query positions.

    Shapes:
        (b, t), (b, s) -> (b, h, t, s); embeddings (num_buckets, h).

    Raises:
        ValueError: for sizes that are not positive integers, fewer than two buckets (four if
            `bidirectional`), an odd number of buckets if `bidirectional`, or a `max_distance` that
            does not exceed the distances with their own bucket.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.RelativePositionBias(2, num_buckets=8, max_distance=16)
        >>> layer = layer.build(jax.random.key(0), jax.ShapeDtypeStruct((None, 5), "int32"))
        >>> layer(jnp.arange(5)[None]).shape
        (1, 2, 5, 5)

    References:
        Raffel et al., Exploring the limits of transfer learning with a unified text-to-text
        transformer (2020), https://arxiv.org/abs/1910.10683
    """

    num_heads: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    num_buckets: fk.Integer = fk.option(default=32, convert=fk.integer(minimum=2))
    # a table with an entry for each distance: a crafted file must not make a large one
    max_distance: fk.Integer = fk.option(
        default=128, convert=fk.integer(minimum=1, maximum=1 << 20)
    )
    bidirectional: bool = fk.option(default=True, convert=fk.boolean)
    embeddings_initializer: fk.Initializer = fk.option(default="uniform", convert=fk.initializer)

    embeddings: jax.Array = fk.weight(axes="_h")

    # positions are integers
    _autocast: ClassVar[bool] = False
    supports_masking: ClassVar[bool] = True
    # positions of a cache: files and lists of weights leave them out
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(stores_state=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional and (self.num_buckets % 2 or self.num_buckets < 4):
            raise ValueError(
                f"{self._where}: num_buckets: expected an even number of 4 or more, received "
                f"{self.num_buckets}. Half of the buckets are for keys after the query; for causal "
                "attention give bidirectional=False."
            )
        exact = self._side_buckets // 2
        if self.max_distance <= exact:
            raise ValueError(
                f"{self._where}: max_distance: expected more than {exact}, the number of distances "
                f"with their own bucket, received {self.max_distance}. Give fewer buckets, or a "
                "larger max_distance."
            )

    @property
    def _side_buckets(self) -> int:
        return self.num_buckets // 2 if self.bidirectional else self.num_buckets

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(roles=fk.FrozenDict({"h": "heads"}), output="_h__")

    def build(
        self, key: jax.Array, query_positions: fk.SpecLike, key_positions: fk.SpecLike = None
    ) -> Self:
        return self.with_weights(key, embeddings=(self.num_buckets, self.num_heads))

    if not TYPE_CHECKING:  # callers use the signature of `Layer`

        def init_cache(self, size: fk.CacheSize, *specs: fk.Tree) -> dict[str, Any]:
            if len(specs) > 1 and specs[1] is not None:
                return {}
            slots = jnp.arange(size.length, dtype="int32")
            return {"positions": jnp.broadcast_to(slots, (size.batch, size.length))}

    def forward(
        self,
        context: fk.Context,
        query_positions: jax.Array,
        key_positions: jax.Array | None = None,
    ) -> fk.Output:
        keys = query_positions if key_positions is None else key_positions
        if context.state:
            keys = context.state["positions"]
        distance = query_positions[:, :, None] - keys[:, None, :]
        table = jnp.asarray(distance_buckets(self._side_buckets, self.max_distance))
        after = distance < 0
        if self.bidirectional:
            distance, offset = jnp.abs(distance), jnp.where(after, self._side_buckets, 0)
        else:
            distance, offset = jnp.where(after, 0, distance), 0
        buckets = offset + table[jnp.minimum(distance, self.max_distance)]
        bias = jnp.take(self.embeddings, buckets, axis=0).astype(self.policy.compute_dtype)
        return fk.Output(jnp.moveaxis(bias, -1, 1))
