"""`MultiHeadAttention`: parallel attention heads, each with separate projections."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras import constraints, initializers, regularizers
from fkeras.engine import Spec, option
from fkeras.engine.config.converters import axes, boolean, either, integer, probability, several
from fkeras.engine.config.field_types import (
    Constraint,
    Initializer,
    Integer,
    OptionalInteger,
    OptionalSizes,
    Real,
    Regularizer,
)
from fkeras.layers.attention.projected import (
    ProjectedAttention,
    check_flash,
    projection,
    projection_options,
)

_NAME = "MultiHeadAttention"


_output_shape = several(
    integer(minimum=1),
    "positive sizes",
    single=True,
    optional=True,
    hint="Give the sizes that replace the query's last axis, such as 64.",
)


_axes = axes(
    batch=False,
    optional=True,
    hint="Axes lie between batch and features: 1 for the time of (b, t, d), or None for all.",
)


def _attention_axes(value: Any) -> tuple[int, ...] | None:
    axes_or_axis = _axes(value)
    return (axes_or_axis,) if isinstance(axes_or_axis, int) else axes_or_axis


class MultiHeadAttention(ProjectedAttention):
    """Computes `softmax(q @ k^T / sqrt(key_dim)) @ v` for each head, and mixes the heads.

    Each head projects query, key and value to q, k, v. A masked value or key is
    attended to by no query, and a masked query attends to no key. A query that may attend to no key
    has weights of zero and no gradient, and gives the bias of the last projection. (Keras gives the
    projected mean of all values there, but for calls that return scores, with a dropout, or over
    several axes: see `empty_rows`.)

    Args:
        num_heads: the number of heads.
        key_dim: the size of a head's queries and keys.
        value_dim: the size of a head's values; `key_dim` where it is None.
        dropout: the share of the weights that is dropped in training.
        use_bias: whether the projections have biases.
        output_shape: the sizes that stand for the query's last axis in the output; None for that
            axis's own size.
        attention_axes: the axes over which is attended; None for all between batch and features.
        sliding_window: how many steps to either side, itself included, a step attends to; None
            for all.
        flash_attention: whether cuDNN's fused kernel computes, on a GPU in a short float type;
            None is False. (Keras uses the kernel wherever possible.)
        kernel_initializer: makes the kernels.
        bias_initializer: makes the biases.
        kernel_regularizer: a penalty on each kernel.
        bias_regularizer: a penalty on each bias.
        activity_regularizer: penalty on the output of each projection, divided by the batch size.
        kernel_constraint: projects the kernels after an update.
        bias_constraint: projects the biases after an update.
        use_gate: whether the means are multiplied with a sigmoid of a further projection of the
            query.
        seed: folded into the key of each call; the key alone decides where it is None.
        quantization: by keyword only: "int8" or another mode of `fk.quantizers` for all
            projections, or a dictionary by their names, such as "query_dense"; None for floats.
        projection_dtypes: by keyword only: dtype policies of projections by their names, where they
            are not the layer's, such as {"query_dense": "mixed_bfloat16"}; None for no difference.
        empty_rows: by keyword only: the result of a query that may attend to no key: "zeros", or
            "keras" for Keras's rule. Layers of Keras's files have "keras".

    Call:
        query_mask, value_mask, key_mask: masks of shapes (b, t), (b, s), (b, s); those that came
            with the inputs, where they are None.
        attention_mask: a mask (t, s), (b, t, s) or (b, heads, t, s).
        return_attention_scores: whether the weights (b, heads, t, s) are returned too, as they are
            before dropout.
        use_causal_mask: whether step t attends to the steps up to t only.

    Shapes:
        query (b, t, d), value (b, s, f), key (b, s, e), the value if none is given -> (b, t, d);
        kernels of query_dense and key_dense (d or e, heads, key_dim), of value_dense (f, heads,
        value_dim), of output_dense (heads, value_dim, d), biases their last axes.

    Raises:
        ValueError: for sizes that are no positive integers, a dropout outside of [0, 1] or beside
            flash_attention, missing values; in training with dropout and without a key.

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

    num_heads: Integer = option(convert=integer(minimum=1))
    key_dim: Integer = option(convert=integer(minimum=1))
    value_dim: OptionalInteger = option(default=None, convert=integer(minimum=1, optional=True))
    dropout: Real = option(default=0.0, convert=probability)
    use_bias: bool = option(default=True, convert=boolean)
    output_shape: OptionalSizes = option(default=None, convert=_output_shape)
    attention_axes: OptionalSizes = option(default=None, convert=_attention_axes)
    sliding_window: OptionalInteger = option(
        default=None, convert=integer(minimum=1, optional=True)
    )
    flash_attention: bool | None = option(default=None, convert=either(boolean, optional=True))
    kernel_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)
    kernel_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    bias_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    activity_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    kernel_constraint: Constraint = option(default=None, convert=constraints.get)
    bias_constraint: Constraint = option(default=None, convert=constraints.get)
    use_gate: bool = option(default=False, convert=boolean)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.key_dim)
        check_flash(self.where, self.flash_attention, self.dropout)

    @property
    def query_scale(self) -> float:
        return 1.0 / math.sqrt(self.key_dim)

    def axes_of_attention(self, rank: int) -> tuple[int, ...]:
        if self.attention_axes is None:
            return tuple(range(1, rank - 1))
        if any(not 1 <= a % rank < rank - 1 for a in self.attention_axes):
            raise ValueError(
                f"{self.where}: expected attention_axes from 1 to {rank - 2} for inputs of {rank} "
                f"axes, received {self.attention_axes}. The first axis is the batch, the last one "
                "the features."
            )
        return tuple(a % rank for a in self.attention_axes)

    def projections(self, query: Spec, value: Spec, key: Spec) -> Mapping[str, tuple]:
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
        # the activity of the last projection is that of the layer, which the engine penalizes
        last = projection(rank + 1, 2, sizes, name="attention_output", **options)
        layers_and_inputs["output_dense"] = (last, Spec((*query.dims[:-1], *values), query.dtype))
        return layers_and_inputs
