"""`MultiHeadAttention`: parallel attention heads, each with separate projections."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from fkeras.layers.attention.projected import ProjectedAttention, projection, projection_options
from fkeras.layers.common import authoring as fk

_NAME = "MultiHeadAttention"


_output_shape = fk.several(
    fk.integer(minimum=1),
    "positive sizes",
    single=True,
    optional=True,
    hint="Give the sizes that replace the query's last axis, such as 64.",
)


_axes = fk.axes(
    batch=False,
    optional=True,
    hint="Axes lie between batch and features: 1 for the time of (b, t, d), or None for all.",
)


def _attention_axes(value: fk.Field) -> tuple[int, ...] | None:
    axes_or_axis = _axes(value)
    return (axes_or_axis,) if isinstance(axes_or_axis, int) else axes_or_axis


class _Sizes(fk.Layer):
    """Sizes and axes of `MultiHeadAttention`, the first of its arguments."""

    num_heads: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    key_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    value_dim: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    # also fields of `ProjectedAttention`: here only for their position
    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    use_bias: bool = fk.option(default=True, convert=fk.boolean)
    output_shape: fk.OptionalSizes = fk.option(default=None, convert=_output_shape)
    attention_axes: fk.OptionalSizes = fk.option(default=None, convert=_attention_axes)


class MultiHeadAttention(ProjectedAttention, _Sizes):
    """Computes `softmax(q @ k^T / sqrt(key_dim)) @ v` for each head, and mixes the heads.

    Each head projects query, key and value to q, k, v. No query attends to a masked value or key,
    and a masked query attends to no key. A query that attends to no key has zero weights and zero
    gradient, and gives the bias of the last projection. (Keras gives the projected mean of all
    values, except in calls that return scores, use dropout, or attend over several axes: see
    `empty_rows`.)

    Args:
        num_heads: number of heads.
        key_dim: size of a head's queries and keys.
        value_dim: size of a head's values; None for `key_dim`.
        output_shape: sizes that replace the query's last axis in the output; None for the size of
            this axis.
        attention_axes: axes that attention runs over; None for all between batch and features.

    Shapes:
        query (b, t, d), value (b, s, f), key (b, s, e), by default the value -> (b, t, d);
        kernels of query_dense and key_dense (d or e, heads, key_dim), of value_dense (f, heads,
        value_dim), of output_dense (heads, value_dim, d); biases have the last axes of the kernels.

    Raises:
        ValueError: for sizes that are not positive integers, a dropout outside of [0, 1] or with
            flash_attention, and missing values; in training with dropout and without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.ones((2, 5, 8))
        >>> layer = fk.layers.MultiHeadAttention(num_heads=2, key_dim=4)
        >>> layer = layer.build(jax.random.key(0), x, x)
        >>> layer(x, x, use_causal_mask=True).shape, layer.query_dense.kernel.shape
        ((2, 5, 8), (8, 2, 4))

    References:
        Vaswani et al., Attention is all you need (2017), https://arxiv.org/abs/1706.03762
    """

    detaches_masks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.key_dim)

    @property
    def query_scale(self) -> float:
        return 1.0 / math.sqrt(self.key_dim)

    def axes_of_attention(self, rank: int) -> tuple[int, ...]:
        if self.attention_axes is None:
            return tuple(range(1, rank - 1))
        if any(not 1 <= a % rank < rank - 1 for a in self.attention_axes):
            raise ValueError(
                f"{self._where}: expected attention_axes from 1 to {rank - 2} for inputs of {rank} "
                f"axes, received {self.attention_axes}. The first axis is the batch, the last axis "
                "the features."
            )
        return tuple(a % rank for a in self.attention_axes)

    def projections(self, query: fk.Spec, value: fk.Spec, key: fk.Spec) -> Mapping[str, tuple]:
        options = projection_options(self)
        value_dim = self.key_dim if self.value_dim is None else self.value_dim
        inner = {**options, "activity_regularizer": self.activity_regularizer}
        rank = query.ndim
        keys, values = (self.num_heads, self.key_dim), (self.num_heads, value_dim)
        layers_and_inputs = {
            "query_dense": (projection(rank, 1, keys, name="query", **inner), query),
            "key_dense": (projection(rank, 1, keys, name="key", **inner), key),
        }
        if self.use_gate:
            gate = projection(rank, 1, values, name="gate", activation="sigmoid", **inner)
            layers_and_inputs["gate_dense"] = (gate, query)
        layers_and_inputs["value_dense"] = (
            projection(rank, 1, values, name="value", **inner),
            value,
        )
        sizes = self.output_shape or query.shape[-1:]
        # the engine penalizes the activity of the layer, which is that of the last projection
        last = projection(rank + 1, 2, sizes, name="attention_output", **options)
        layers_and_inputs["output_dense"] = (
            last,
            fk.Spec((*query.dims[:-1], *values), query.dtype),
        )
        return layers_and_inputs
