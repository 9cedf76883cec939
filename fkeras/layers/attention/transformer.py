"""`TransformerEncoder` and `TransformerDecoder`: the blocks of a transformer, as KerasHub has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.attention.multi_head import MultiHeadAttention
from fkeras.layers.common import authoring as fk
from fkeras.layers.core.dense import Dense
from fkeras.layers.normalization.layer import LayerNormalization
from fkeras.nn.noise import dropout
from fkeras.nn.numerics.axes import format_shape

_FEEDFORWARD = (
    "feedforward_layer_norm",
    "feedforward_intermediate_dense",
    "feedforward_output_dense",
)
_SELF = ("self_attention_layer", "self_attention_layer_norm")
_CROSS = ("cross_attention_layer", "cross_attention_layer_norm")


class TransformerBlock(fk.Layer):
    """Attention and a feed-forward network, each with a residual connection and a normalization.

    Args of the family:
        intermediate_dim: size of the hidden vectors of the feed-forward network.
        num_heads: number of heads.
        dropout: probability of dropping an attention weight, and an output of attention and of the
            feed-forward network, in training.
        activation: activation function of the feed-forward network.
        layer_norm_epsilon: added to the variances of the normalizations.
        kernel_initializer: draws the kernels.
        bias_initializer: draws the biases.
        normalize_first: whether to normalize the inputs of attention and of the feed-forward
            network, as GPT-2 does, instead of the sums after them, as BERT does.
    """

    intermediate_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    num_heads: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    activation: fk.Activation = fk.option(default="relu", convert=fk.activation)
    layer_norm_epsilon: fk.Real = fk.option(default=1e-5, convert=fk.real(minimum=0))
    kernel_initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    normalize_first: bool = fk.option(default=False, convert=fk.boolean)

    self_attention_layer: MultiHeadAttention | None = dataclasses.field(default=None, init=False)
    self_attention_layer_norm: LayerNormalization | None = dataclasses.field(
        default=None, init=False
    )
    feedforward_layer_norm: LayerNormalization | None = dataclasses.field(default=None, init=False)
    feedforward_intermediate_dense: Dense | None = dataclasses.field(default=None, init=False)
    feedforward_output_dense: Dense | None = dataclasses.field(default=None, init=False)

    supports_masking: ClassVar[bool] = True

    def _children(self, x: fk.Spec, source: fk.Spec | None) -> dict[str, tuple]:
        """Returns for each child the unbuilt layer, and the shapes to build it for."""
        options = {"dtype": self.dtype, "trainable": self.trainable}
        initializers = {
            "kernel_initializer": self.kernel_initializer,
            "bias_initializer": self.bias_initializer,
        }
        width = x.shape[-1]
        if x.ndim != 3 or not isinstance(width, int) or width < self.num_heads:
            raise ValueError(
                f"{self._where}: expected an input of shape (b, t, d) with at least "
                f"num_heads={self.num_heads} features, received {format_shape(x.shape)}. Choose fewer "
                "heads, or project the input to more features."
            )
        attention = MultiHeadAttention(
            self.num_heads, width // self.num_heads, dropout=self.dropout, **initializers, **options
        )
        norm = LayerNormalization(epsilon=self.layer_norm_epsilon, **options)
        hidden = Dense(self.intermediate_dim, activation=self.activation, **initializers, **options)
        children = {
            "self_attention_layer": (attention, (x, x)),
            "self_attention_layer_norm": (norm, (x,)),
            "feedforward_layer_norm": (norm, (x,)),
            "feedforward_intermediate_dense": (hidden, (x,)),
            "feedforward_output_dense": (
                Dense(width, **initializers, **options),
                (fk.Spec((*x.dims[:-1], self.intermediate_dim), x.dtype),),
            ),
        }
        if source is not None:
            children["cross_attention_layer"] = (attention, (x, source))
            children["cross_attention_layer_norm"] = (norm, (x,))
        return children

    def _built_for(self, key: jax.Array, x: fk.Spec, source: fk.Spec | None = None) -> Self:
        children = {
            name: layer.replace(name=name).build(fk.subkey(key, name), *specs)
            for name, (layer, specs) in self._children(x, source).items()
        }
        return self.replace(**children, _built=True)

    def _unbuilt(self) -> Self:
        """Returns a copy without weights, and without the layers that hold them."""
        names = [name for name in (*_SELF, *_CROSS, *_FEEDFORWARD) if hasattr(self, name)]
        return self.replace(**dict.fromkeys(names), _built=False)

    def _run(self, context: fk.Context, name: str, *inputs: fk.Tree, **options: fk.Option) -> Any:
        return context.child(name).run(getattr(self, name), *inputs, **options).value

    def _drop(self, context: fk.Context, name: str, x: jax.Array) -> jax.Array:
        if not context.training or self.dropout == 0:
            return x
        return dropout(context.child(name).key, x, self.dropout)

    def _attended(
        self,
        context: fk.Context,
        kind: str,
        x: jax.Array,
        source: jax.Array | None,
        with_scores: bool = False,
        **options: fk.Option,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the sum of the input and its attention, normalized, and the attention weights."""
        layer, norm = f"{kind}_attention_layer", f"{kind}_attention_layer_norm"
        y = self._run(context, norm, x) if self.normalize_first else x
        value = y if source is None else source
        y = self._run(context, layer, y, value, return_attention_scores=with_scores, **options)
        y, scores = y if with_scores else (y, None)
        y = x + self._drop(context, f"{kind}_attention_dropout", y)
        return y if self.normalize_first else self._run(context, norm, y), scores

    def _fed_forward(self, context: fk.Context, x: jax.Array) -> jax.Array:
        norm, hidden, output = _FEEDFORWARD
        y = self._run(context, norm, x) if self.normalize_first else x
        y = self._run(context, output, self._run(context, hidden, y))
        y = x + self._drop(context, "feedforward_dropout", y)
        return y if self.normalize_first else self._run(context, norm, y)

    def _mask(self, padding: fk.Mask, attention: fk.Mask, inherited: fk.Mask, name: str) -> fk.Mask:
        """Returns the mask (b, t, s) of a mask of steps, by default the input's, and a mask of pairs."""
        padding = inherited if padding is None else padding
        for mask, rank, axes in ((padding, 2, "(b, s)"), (attention, 3, "(b, t, s)")):
            if mask is not None and mask.ndim != rank:
                raise ValueError(
                    f"{self._where}: expected {name}{'padding' if rank == 2 else 'attention'}_mask of "
                    f"shape {axes}, received {format_shape(mask.shape)}."
                )
        pairs = None if padding is None else padding.astype(bool)[:, None, :]
        if attention is None or pairs is None:
            return pairs if attention is None else attention.astype(bool)
        return jnp.logical_and(pairs, attention.astype(bool))


def _groups(*names: str) -> fk.FrozenDict[str]:
    return fk.FrozenDict({name: f"_{name}" for name in names})


class TransformerEncoder(TransformerBlock):
    """Runs one block of a transformer encoder: self-attention and a feed-forward network.

    No step attends to a masked step. A row without any unmasked step has zero attention, where
    KerasHub gives the mean of all values. At steps that the mask of the input masks, the values
    differ from KerasHub's, whose attention there has no keys.

    Call:
        padding_mask: mask of steps (b, t); None for the mask of the input.
        attention_mask: mask of pairs of steps (b, t, t).
        return_attention_scores: whether to also return the attention weights (b, heads, t, t).

    Shapes:
        (b, t, d) -> (b, t, d).

    Raises:
        ValueError: for inputs with other axes, fewer features than heads, and masks with other
            axes; in training with dropout and without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.TransformerEncoder(intermediate_dim=16, num_heads=2)
        >>> layer = layer.build(jax.random.key(0), (None, None, 8))
        >>> layer(jnp.ones((2, 5, 8))).shape
        (2, 5, 8)

    References:
        Vaswani et al., Attention is all you need (2017), https://arxiv.org/abs/1706.03762
    """

    _keras_module: ClassVar[str] = "keras_hub.src.layers.modeling.transformer_encoder"
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        option_names=("padding_mask", "attention_mask"),
        training_default=None,
        groups=_groups(*_SELF, *_FEEDFORWARD),
    )

    def build(self, key: jax.Array, x: fk.Spec) -> Self:
        return self._built_for(key, x)

    def forward(
        self,
        context: fk.Context,
        x: jax.Array,
        *,
        padding_mask: fk.Mask = None,
        attention_mask: fk.Mask = None,
        return_attention_scores: bool = False,
    ) -> fk.Output:
        mask = self._mask(padding_mask, attention_mask, context.mask, "")
        y, scores = self._attended(
            context, "self", x, None, return_attention_scores, attention_mask=mask
        )
        y = self._fed_forward(context, y)
        if return_attention_scores:
            return fk.Output((y, scores), mask=(context.mask, None))
        return fk.Output(y, mask=context.mask)


class TransformerDecoder(TransformerBlock):
    """Runs one block of a transformer decoder: causal self-attention and a feed-forward network.

    With a second input, the encoder's sequence, the block attends to this sequence between the two.
    Masked steps receive no attention, as in `TransformerEncoder`. The call has no arguments for caches:
    `fk.layers.DotProductAttention` has its cache in the state, for `fk.generate`.

    Call:
        decoder_padding_mask: mask of steps (b, t); None for the mask of the input.
        decoder_attention_mask: mask of pairs of steps (b, t, t).
        encoder_padding_mask: mask of the encoder's steps (b, s); None for the mask of the input.
        encoder_attention_mask: mask of pairs (b, t, s).
        use_causal_mask: whether step t attends only to the steps up to t.

    Shapes:
        (b, t, d) -> (b, t, d), with an encoder's sequence (b, s, e) as second input.

    Raises:
        ValueError: for inputs with other axes, fewer features than heads, and masks with other
            axes; for another number of inputs than in the first call; in training with dropout and
            without a key.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.TransformerDecoder(intermediate_dim=16, num_heads=2)
        >>> layer = layer.build(jax.random.key(0), (None, None, 8), (None, None, 6))
        >>> layer(jnp.ones((2, 5, 8)), jnp.ones((2, 3, 6))).shape
        (2, 5, 8)

    References:
        Vaswani et al., Attention is all you need (2017), https://arxiv.org/abs/1706.03762
    """

    _keras_module: ClassVar[str] = "keras_hub.src.layers.modeling.transformer_decoder"
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        input_names=("decoder_sequence", "encoder_sequence"),
        option_names=(
            "decoder_padding_mask",
            "decoder_attention_mask",
            "encoder_padding_mask",
            "encoder_attention_mask",
        ),
        training_default=None,
        groups=_groups(*_SELF, *_CROSS, *_FEEDFORWARD),
    )

    cross_attention_layer: MultiHeadAttention | None = dataclasses.field(default=None, init=False)
    cross_attention_layer_norm: LayerNormalization | None = dataclasses.field(
        default=None, init=False
    )

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        # shapes that KerasHub builds the layer for; here the call does
        shapes = ("decoder_sequence_shape", "encoder_sequence_shape")
        arguments = {key: value for key, value in config.items() if key not in shapes}
        return super().from_config(arguments, custom_objects)

    def build(self, key: jax.Array, x: fk.Spec, source: fk.Spec | None = None) -> Self:
        return self._built_for(key, x, source)

    def forward(
        self,
        context: fk.Context,
        x: jax.Array,
        source: jax.Array | None = None,
        *,
        decoder_padding_mask: fk.Mask = None,
        decoder_attention_mask: fk.Mask = None,
        encoder_padding_mask: fk.Mask = None,
        encoder_attention_mask: fk.Mask = None,
        use_causal_mask: bool = True,
    ) -> fk.Output:
        if (source is None) != (self.cross_attention_layer is None):
            raise ValueError(
                f"{self._where}: expected {'one input' if source is not None else 'two inputs'}, as in "
                f"the call that built the layer, received {'two' if source is not None else 'one'}. "
                "Cross-attention has weights: use another layer for the other number of inputs."
            )
        masks = context.input_masks(2)
        mask = self._mask(decoder_padding_mask, decoder_attention_mask, masks[0], "decoder_")
        y, _ = self._attended(
            context, "self", x, None, attention_mask=mask, use_causal_mask=use_causal_mask
        )
        if source is not None:
            mask = self._mask(encoder_padding_mask, encoder_attention_mask, masks[1], "encoder_")
            y, _ = self._attended(context, "cross", y, source, attention_mask=mask)
        return fk.Output(self._fed_forward(context, y), mask=masks[0])
