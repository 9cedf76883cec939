"""ModernBERT: a text encoder with rotary positions, and sliding attention in most blocks.

The model returns a dictionary, like BERT: "hidden", and "logits", "classes" or "sentence".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from fkeras import layers
from fkeras.authoring.engine import Integer, OptionalReal, Real, boolean, choice
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.masks import Window
from fkeras.pretrained.blocks.activation import activate, activation_name
from fkeras.pretrained.blocks.encoder_blocks import Tensor, add, attention, first_token, norm
from fkeras.pretrained.blocks.encoder_config import with_parts
from fkeras.pretrained.blocks.heads import token_heads
from fkeras.pretrained.blocks.projections import gated_mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.blocks.sentences import sentence
from fkeras.pretrained.families.bert import TextEncoderConfig
from fkeras.pretrained.tables.config import (
    block_types,
    check_heads,
    count,
    epsilon,
    factor,
    optional_factor,
    positive,
)
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import HeadsIn, Row, in_blocks
from fkeras.pretrained.tables.rows import (
    dense_rows,
    fused_attention_rows,
    fused_mlp_rows,
    logit_row,
    norm_rows,
    token_head_rows,
)
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES, sentence_rows

_FULL, _SLIDING = "full_attention", "sliding_attention"


class ModernBertConfig(TextEncoderConfig):
    """Configuration of ModernBERT: the fields are the keys of `config.json`.

    Args:
        hidden_activation: activation of the MLP.
        norm_eps: epsilon of the layer normalizations.
        norm_bias: whether the layer normalizations have a bias.
        attention_bias: whether the attention projections have biases.
        mlp_bias: whether the projections of the MLP have biases.
        decoder_bias: whether the masked-language-model logits have a bias.
        classifier_bias: whether the dense layer of the heads has a bias.
        classifier_activation: activation of the heads.
        classifier_pooling: "cls" to classify the hidden state of the first token, "mean" to classify the
            mean of all hidden states.
        layer_types: "full_attention" or "sliding_attention" for each block; None to derive the types
            from `global_attn_every_n_layers`.
        local_attention: window of sliding attention, in tokens.
        global_rope_theta: base of the rotary frequencies in blocks with full attention.
        local_rope_theta: base in blocks with sliding attention; None for `global_rope_theta`.
        global_attn_every_n_layers: n, where every n-th block has full attention.
        parts: heads that the checkpoint has, of "masked" (masked language model), "classifier" (of texts),
            "token_classifier" and "answers"; `load` finds them by the tensor names and the class.

    Example:
        >>> import fkeras as fk
        >>> [fk.pretrained.ModernBertConfig().slides(i) for i in range(4)]
        [False, True, True, False]
    """

    vocab_size: Integer = option(default=50368, convert=positive)
    hidden_size: Integer = option(default=768, convert=positive)
    intermediate_size: Integer = option(default=1152, convert=positive)
    num_hidden_layers: Integer = option(default=22, convert=count)
    num_attention_heads: Integer = option(default=12, convert=positive)
    hidden_activation: str = option(default="gelu", convert=activation_name)
    norm_eps: Real = option(default=1e-5, convert=epsilon)
    norm_bias: bool = option(default=False, convert=boolean)
    attention_bias: bool = option(default=False, convert=boolean)
    mlp_bias: bool = option(default=False, convert=boolean)
    decoder_bias: bool = option(default=True, convert=boolean)
    classifier_bias: bool = option(default=False, convert=boolean)
    classifier_activation: str = option(default="gelu", convert=activation_name)
    classifier_pooling: str = option(default="cls", convert=choice("cls", "mean"))
    local_attention: Integer = option(default=128, convert=positive)
    global_attn_every_n_layers: Integer = option(default=3, convert=positive)
    layer_types: tuple[str, ...] | None = option(default=None, convert=block_types(_FULL, _SLIDING))
    global_rope_theta: Real = option(default=160000.0, convert=factor)
    local_rope_theta: OptionalReal = option(default=10000.0, convert=optional_factor)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "token ids": ("cls_token_id",),
            "how transformers computes attention and losses": (
                "deterministic_flash_attn",
                "reference_compile",
                "repad_logits_with_grad",
                "sparse_pred_ignore_index",
                "sparse_prediction",
            ),
            "initial values, and dropout in training": (
                "initializer_cutoff_factor",
                "embedding_dropout",
                "mlp_dropout",
            ),
            "transformers reads `norm_eps` instead": ("layer_norm_eps",),
            "positions are rotary": ("max_position_embeddings", "position_embedding_type"),
        }
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "masked": ("decoder.bias", "decoder.weight"),
            "classifier": ("classifier.weight",),
            "token_classifier": (),
            "answers": (),
        }
    )
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"rope_parameters": ("global_rope_theta", "local_rope_theta")}
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        fields = dict(super().canonical(mapping))
        parameters = fields.get("rope_parameters") or {}
        for kind, key in ((_FULL, "global_rope_theta"), (_SLIDING, "local_rope_theta")):
            rope = parameters.get(kind) or {}
            if rope.get("rope_type", "default") != "default":
                raise ValueError(
                    f"rope_parameters: expected the rope_type 'default', received "
                    f"{str(rope['rope_type'])[:80]!r}. fkeras does not scale the positions of ModernBERT."
                )
            if "rope_theta" in rope:
                fields[key] = rope["rope_theta"]
        return fields

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "num_attention_heads", "hidden_size")
        if self.layer_types and len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"ModernBertConfig: layer_types: expected one type for each of {self.num_hidden_layers} "
                f"blocks, received {len(self.layer_types)}. Correct config.json."
            )

    def slides(self, i: int) -> bool:
        """Returns whether block `i` has sliding attention."""
        if not self.layer_types:
            return i % self.global_attn_every_n_layers != 0
        return self.layer_types[i] == _SLIDING


def build(config: ModernBertConfig) -> Model:
    """Returns the graph of a configuration."""
    ids = Input((None,), dtype="int32", name="ids")
    tied = "masked" not in config.parts or config.tie_word_embeddings
    embedding = layers.ReversibleEmbedding(
        config.vocab_size, config.hidden_size, tie_weights=tied, name="embedding"
    )
    x = _norm(config, embedding(ids), "embedding_norm")
    kinds = [(i == 0, config.slides(i)) for i in range(config.num_hidden_layers)]
    for block in repeated(lambda i: _block(config, i), kinds):
        x = block(x)
    x = _norm(config, x, "norm")
    outputs, positions = {"hidden": x}, layers.Positions(name="positions")(ids)
    if {"token_classifier", "answers"} & {*config.parts}:
        outputs |= token_heads(config, _head(config, x))
    if "masked" in config.parts:
        y = embedding(_head(config, x), reverse=True)
        outputs["logits"] = layers.Bias(name="head_bias")(y) if config.decoder_bias else y
    if "classifier" in config.parts:
        mean = config.classifier_pooling == "mean"
        y = layers.GlobalAveragePooling1D(name="mean")(x) if mean else first_token(x, positions)
        outputs["classes"] = layers.Dense(config.num_labels, name="classifier")(_head(config, y))
    if config.has_sentence:
        outputs["sentence"] = sentence(config, x, positions)
    return Model(ids, outputs, name="modernbert")


def _norm(config: ModernBertConfig, x: Tensor, name: str) -> Tensor:
    return norm(x, config.norm_eps, name, center=config.norm_bias)


def _head(config: ModernBertConfig, x: Tensor) -> Tensor:
    head = layers.Dense(config.hidden_size, use_bias=config.classifier_bias, name="head_dense")
    return _norm(config, activate(config.classifier_activation, head(x)), "head_norm")


def _block(config: ModernBertConfig, i: int) -> Model:
    x = inputs = Input((None, config.hidden_size), name="x")
    sliding = config.slides(i)
    theta = config.local_rope_theta if sliding else None
    theta = config.global_rope_theta if theta is None else theta
    y = attention(
        # the embeddings are already normalized
        x if i == 0 else _norm(config, x, "attention_norm"),
        config.num_attention_heads,
        mask=Window(config.local_attention // 2 + 1, both_sides=True) if sliding else None,
        bias=config.attention_bias,
        rotary=layers.RotaryEmbedding(theta, name="rotary"),
    )
    x = add(x, y, "attention_add")
    y = gated_mlp(
        _norm(config, x, "mlp_norm"),
        config.intermediate_size,
        config.hidden_activation,
        bias=config.mlp_bias,
    )
    return Model(inputs, add(x, y, "mlp_add"))


def names(config: ModernBertConfig) -> tuple[Row, ...]:
    """Returns the table of names of a configuration."""
    n = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    inner, bias, mlp_bias = config.intermediate_size, config.attention_bias, config.mlp_bias
    blocks, center = range(config.num_hidden_layers), config.norm_bias
    b = "model.layers.{i}."
    rows = [
        Row("model.embeddings.tok_embeddings.weight", "embedding/embeddings"),
        *norm_rows("model.embeddings.norm", "embedding_norm", center),
        *in_blocks(blocks[1:], *norm_rows(f"{b}attn_norm", "block_{i}/attention_norm", center)),
        *in_blocks(
            blocks,
            *fused_attention_rows(f"{b}attn.Wqkv.", "block_{i}/", *n, bias=bias),
            *dense_rows(f"{b}attn.Wo", "block_{i}/output", bias, HeadsIn(*n)),
            *norm_rows(f"{b}mlp_norm", "block_{i}/mlp_norm", center),
            *fused_mlp_rows(f"{b}mlp.Wi.", "block_{i}/", inner, mlp_bias),
            *dense_rows(f"{b}mlp.Wo", "block_{i}/down", mlp_bias),
        ),
        *norm_rows("model.final_norm", "norm", center),
    ]
    if config.parts:
        rows += dense_rows("head.dense", "head_dense", config.classifier_bias)
        rows += norm_rows("head.norm", "head_norm", center)
    if "masked" in config.parts:
        rows.append(logit_row("decoder.weight", config.tie_word_embeddings))
        rows += [Row("decoder.bias", "head_bias/bias")] if config.decoder_bias else []
    if "classifier" in config.parts:
        rows += dense_rows("classifier", "classifier")
    rows += token_head_rows(config.parts, answers="classifier")
    return (*rows, *sentence_rows(config.beside))


def _adapted(config: ModernBertConfig, tensors: Collection[str]) -> ModernBertConfig:
    config = with_parts(config, tensors)
    # tied logits without a bias have no tensors of their own
    is_bare = config.tie_word_embeddings and not (config.decoder_bias or config.parts)
    if is_bare and any(name.endswith("head.dense.weight") for name in tensors):
        return dataclasses.replace(config, parts=("masked",))
    return config


MODERNBERT = Family(
    classes={
        "modernbert": tuple(
            f"ModernBert{end}"
            for end in (
                "ForMaskedLM",
                "Model",
                "ForSequenceClassification",
                "ForTokenClassification",
                "ForQuestionAnswering",
            )
        )
    },
    config=ModernBertConfig,
    build=build,
    names=names,
    tiny=ModernBertConfig(
        vocab_size=67,
        hidden_size=24,
        intermediate_size=28,
        num_hidden_layers=5,
        num_attention_heads=3,
        hidden_activation="gelu_new",
        norm_eps=3e-3,
        norm_bias=True,
        attention_bias=True,
        mlp_bias=True,
        local_attention=6,
        global_attn_every_n_layers=2,
        global_rope_theta=500.0,
        local_rope_theta=30.0,
        parts=("masked",),
        model_type="modernbert",
    ),
    prefix="model.",
    adapted=_adapted,
    files=SENTENCE_FILES,
)
