"""OPT and Galactica: learned positions, layer normalization before or after, embeddings of another width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras import layers
from fkeras.authoring.engine import OptionalInteger, boolean, choice
from fkeras.engine import FrozenDict, Model, option
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.blocks.encoder_blocks import norm
from fkeras.pretrained.blocks.heads import decoder_inputs, decoder_outputs
from fkeras.pretrained.families import gpt_neox
from fkeras.pretrained.families.gpt_neox import Blocks, LayerNormConfig, Tensors
from fkeras.pretrained.tables.config import count, optional_positive, positive
from fkeras.pretrained.tables.decoder_config import pad_id
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row
from fkeras.pretrained.tables.rows import dense_rows

# transformers has no key for the epsilon
_EPSILON = 1e-5
# the embedding of the first position, after those of padding
_FIRST = 2


class OPTConfig(LayerNormConfig):
    """Configuration of OPT: the fields are the keys of `config.json`.

    Args:
        max_position_embeddings: context length; the outputs of longer sequences are NaN.
        ffn_dim: hidden size of the MLP.
        do_layer_norm_before: whether the inputs of attention and MLP are normalized, instead of the sums.
        word_embed_proj_dim: size of the token embeddings; None for `hidden_size`.
        enable_bias: whether the projections of attention and MLP have biases.
        layer_norm_elementwise_affine: whether the normalizations have weights.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.OPTConfig(100, 32, 2, 4, ffn_dim=48, word_embed_proj_dim=16)
        >>> fk.pretrained.build(config).layers["project_in"].units, config.embedding_size
        (32, 16)
    """

    model_type: str = option(default="opt", convert=choice("opt"), kw_only=True)
    vocab_size: int = option(default=50272, convert=positive)
    hidden_size: int = option(default=768, convert=positive)
    num_hidden_layers: int = option(default=12, convert=count)
    num_attention_heads: int = option(default=12, convert=positive)
    tie_word_embeddings: bool = option(default=True, convert=boolean)
    ffn_dim: int = option(default=3072, convert=positive)
    activation_function: str = option(default="relu", convert=activation_name)
    do_layer_norm_before: bool = option(default=True, convert=boolean)
    word_embed_proj_dim: int | None = option(default=None, convert=optional_positive)
    enable_bias: bool = option(default=True, convert=boolean)
    layer_norm_elementwise_affine: bool = option(default=True, convert=boolean)
    pad_token_id: OptionalInteger = option(default=1, convert=pad_id, kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict({"initial values of weights": ("init_std",)})

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        if mapping.get("_remove_final_layer_norm"):
            raise ValueError(
                "OPTConfig: _remove_final_layer_norm: expected false, received "
                f"{str(mapping['_remove_final_layer_norm'])[:80]}: checkpoints without the last normalization, "
                "which versions of transformers before 4.20.1 wrote, are not supported."
            )
        return super().canonical(mapping)

    @property
    def embedding_size(self) -> int:
        """Size of the token embeddings."""
        return self.word_embed_proj_dim or self.hidden_size

    def blocks(self) -> Blocks:
        return Blocks(
            self.ffn_dim,
            self.activation_function,
            _EPSILON,
            self.num_attention_heads,
            bias=self.enable_bias,
            mlp_bias=self.enable_bias,
            norm_first=self.do_layer_norm_before,
            affine=self.layer_norm_elementwise_affine,
        )

    def tensors(self) -> Tensors:
        return Tensors(
            "model.decoder.layers.{i}.",
            tuple(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")),
            ("self_attn_layer_norm", "final_layer_norm"),
            ("fc1", "fc2"),
            embedding="model.decoder.embed_tokens",
            norm="model.decoder.final_layer_norm" if self.do_layer_norm_before else None,
            head="lm_head",
        )


def build(config: OPTConfig) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    inputs = decoder_inputs(config)
    positions = layers.Positions(name="positions")(*inputs)
    width, size, affine = config.hidden_size, config.embedding_size, config.blocks().affine
    embedding = layers.ReversibleEmbedding(
        config.vocab_size, size, tie_weights=config.is_tied, name="embedding"
    )
    x = embedding(inputs[0])
    if size != width:
        x = layers.Dense(width, use_bias=False, name="project_in")(x)
    rows = config.max_position_embeddings + _FIRST
    learned = layers.Embedding(rows, width, name="position_embedding")(positions + _FIRST)
    x = layers.Add(name="embedding_add")([x, learned])
    x = gpt_neox.all_blocks(config, x, positions)
    if config.do_layer_norm_before:
        x = norm(x, _EPSILON, "norm", center=affine, scale=affine)
    if size != width:
        x = layers.Dense(size, use_bias=False, name="project_out")(x)
    return Model(inputs, decoder_outputs(config, x, inputs[0], positions, embedding), name="opt")


def names(config: OPTConfig) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    prefix, rows = "model.decoder.", gpt_neox.names(config)
    positions = Row(f"{prefix}embed_positions.weight", "position_embedding/embeddings")
    parts = ("project_in", "project_out") if config.embedding_size != config.hidden_size else ()
    projections = [row for part in parts for row in dense_rows(prefix + part, part, bias=False)]
    return (*rows, positions, *projections)


TINY = OPTConfig(
    vocab_size=67,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=40,
    ffn_dim=20,
    activation_function="gelu",
    do_layer_norm_before=False,
    word_embed_proj_dim=12,
)

FAMILY = Family(
    classes=FrozenDict({"opt": decoder_classes("OPT", tokens=False)}),
    config=OPTConfig,
    tiny=TINY,
    prefix="model.",
    **{**gpt_neox.COMMON, "build": build, "names": names},
)
