"""`GroupQueryAttention`: groups of query heads share key and value heads."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

from fkeras.layers.attention.projected import (
    PROJECTIONS,
    ProjectedAttention,
    projection,
    projection_options,
)
from fkeras.layers.common import authoring as fk
from fkeras.nn.numerics.axes import format_shape

_NAME = "GroupQueryAttention"


class _Groups(fk.Layer):
    """Sizes of `GroupQueryAttention`, the first of its arguments."""

    head_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    num_query_heads: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    num_key_value_heads: fk.Integer = fk.option(convert=fk.integer(minimum=1))


class GroupQueryAttention(ProjectedAttention, _Groups):
    """Computes attention with groups of query heads that share one key head and one value head.

    With equal numbers of query and key heads this is multi-head attention, with one key head
    multi-query attention. The shared heads are not copied in memory. For queries that attend to no
    key see `MultiHeadAttention`.

    Args:
        head_dim: size of a head.
        num_query_heads: number of query heads.
        num_key_value_heads: number of key and value heads; a divisor of `num_query_heads`.
        activity_regularizer: penalty on the outputs of the layer and of each projection, divided by
            the batch size.

    Shapes:
        query (b, t, d), value (b, s, f), key (b, s, e), by default the value -> (b, t, d);
        kernels of query_dense (d, heads, head_dim), of key_dense and value_dense (e or f, groups,
        head_dim), of output_dense (heads, head_dim, d); biases have the last axes of the kernels.

    Raises:
        ValueError: for sizes that are not positive integers, heads that do not form equal groups,
            a dropout outside of [0, 1] or with flash_attention; in training with dropout and
            without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = jnp.ones((2, 5, 8))
        >>> layer = fk.layers.GroupQueryAttention(4, num_query_heads=6, num_key_value_heads=2)
        >>> layer = layer.build(jax.random.key(0), x, x)
        >>> layer(x, x).shape, layer.key_dense.kernel.shape
        ((2, 5, 8), (8, 2, 4))

    References:
        Ainslie et al., GQA: training generalized multi-query transformer models from multi-head
        checkpoints (2023), https://arxiv.org/abs/2305.13245
    """

    # Keras's files store each projection under its private attribute
    _keras_form: ClassVar[fk.KerasForm] = dataclasses.replace(
        ProjectedAttention._keras_form,
        groups=fk.FrozenDict({name: f"_{name}" for name in PROJECTIONS}),
    )

    # fewer heads than devices are common for keys and values: their letter has a role of its own
    kernel_axes: ClassVar[Mapping[str, str]] = fk.FrozenDict(
        {
            **dict.fromkeys(("query_dense", "gate_dense"), "dhk"),
            **dict.fromkeys(("key_dense", "value_dense"), "dgk"),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_query_heads % self.num_key_value_heads:
            raise ValueError(
                f"{self._where}: expected num_query_heads to be a multiple of num_key_value_heads, "
                f"received {self.num_query_heads} and {self.num_key_value_heads}. Each key head "
                "serves the same number of query heads: give a divisor of num_query_heads."
            )

    @property
    def query_scale(self) -> float:
        return 1.0 / math.sqrt(self.head_dim)

    def axes_of_attention(self, rank: int) -> tuple[int, ...]:
        return (1,)

    def projections(self, query: fk.Spec, value: fk.Spec, key: fk.Spec) -> Mapping[str, tuple]:
        if query.ndim != 3:
            raise ValueError(
                f"{self._where}: expected a query of shape (b, t, d), received "
                f"{format_shape(query.shape)}. For inputs with more axes use MultiHeadAttention."
            )
        regularizer = self.activity_regularizer
        options = {**projection_options(self), "activity_regularizer": regularizer}
        heads, groups = (
            (n, self.head_dim) for n in (self.num_query_heads, self.num_key_value_heads)
        )
        layers_and_inputs = {
            "query_dense": (projection(3, 1, heads, name="query", **options), query),
            "key_dense": (projection(3, 1, groups, name="key", **options), key),
        }
        if self.use_gate:
            gate = projection(3, 1, heads, name="gate", activation="sigmoid", **options)
            layers_and_inputs["gate_dense"] = (gate, query)
        layers_and_inputs["value_dense"] = (
            projection(3, 1, groups, name="value", **options),
            value,
        )
        last = projection(4, 2, query.shape[-1:], name="attention_output", **options)
        layers_and_inputs["output_dense"] = (last, fk.Spec((*query.dims[:-1], *heads), query.dtype))
        return layers_and_inputs
