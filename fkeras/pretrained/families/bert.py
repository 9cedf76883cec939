"""BERT, RoBERTa and DistilBERT: text encoders, with the heads of the checkpoint.

The models return a dictionary: "hidden" (b, t, d), and "pooled", "logits", "next_sentence" or
"classes" if the checkpoint has that head. A checkpoint of sentence-transformers adds "sentence", the
sentence embedding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from fkeras import layers, ops
from fkeras.authoring.engine import Integer, Real, boolean, choice
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.pretrained.blocks.activation import activate, activation_name
from fkeras.pretrained.blocks.encoder_blocks import Tensor, add, attention, first_token, norm
from fkeras.pretrained.blocks.encoder_config import EncoderConfig, with_parts
from fkeras.pretrained.blocks.heads import token_heads
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.blocks.sentences import sentence
from fkeras.pretrained.tables.config import check_heads, count, epsilon, positive, token_id
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.heads import TextHeadsConfig
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row, in_blocks
from fkeras.pretrained.tables.rows import (
    attention_rows,
    dense_rows,
    logit_row,
    norm_rows,
    token_head_rows,
)
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES, sentence_rows


class TextEncoderConfig(EncoderConfig, TextHeadsConfig):
    """Fields that text encoders share.

    Args of the family:
        tie_word_embeddings: whether the token embeddings are also the kernel of the masked-language-model
            logits.
    """

    tie_word_embeddings: bool = option(default=True, convert=boolean, kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "dropout in training": ("qa_dropout", "seq_classif_dropout"),
            "initial values of the position embeddings": ("sinusoidal_pos_embds",),
            "options of the first code of BERT, which transformers does not read": (
                "directionality",
                "pooler_fc_size",
                "pooler_num_attention_heads",
                "pooler_num_fc_layers",
                "pooler_size_per_head",
                "pooler_type",
            ),
        }
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "pooler": (".pooler.dense.weight",),
            "masked": ("predictions.bias", "lm_head.bias", "vocab_projector.bias", "decoder.bias"),
            "next_sentence": ("cls.seq_relationship.weight",),
            "classifier": ("classifier.weight", "classifier.out_proj.weight"),
            "token_classifier": (),
            "answers": ("qa_outputs.weight",),
            "gamma": ("embeddings.LayerNorm.gamma",),
            "bias": (),
        }
    )


class BertConfig(TextEncoderConfig):
    """Configuration of BERT: the fields are the keys of `config.json`.

    Args:
        type_vocab_size: number of token types.
        position_embedding_type: only "absolute" is supported.
        parts: heads that the checkpoint has, of "pooler", "masked" (masked language model),
            "next_sentence", "classifier" (of texts), "token_classifier" and "answers" (first and last token of
            an answer); "gamma" if the checkpoint has the old tensor names of the layer normalizations, and
            "bias" if it has the old name of the bias of untied logits. `load` finds the parts by the tensor
            names and the class.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.BertConfig(hidden_size=384).num_attention_heads
        12
    """

    vocab_size: Integer = option(default=30522, convert=positive)
    hidden_size: Integer = option(default=768, convert=positive)
    num_hidden_layers: Integer = option(default=12, convert=count)
    num_attention_heads: Integer = option(default=12, convert=positive)
    intermediate_size: Integer = option(default=3072, convert=positive)
    hidden_act: str = option(default="gelu", convert=activation_name)
    max_position_embeddings: Integer = option(default=512, convert=positive)
    type_vocab_size: Integer = option(default=2, convert=positive)
    layer_norm_eps: Real = option(default=1e-12, convert=epsilon)
    position_embedding_type: str = option(default="absolute", convert=choice("absolute"))

    pooling: ClassVar[tuple[str, ...]] = (".pooler.dense.weight",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "num_attention_heads", "hidden_size")

    @property
    def first_position(self) -> int:
        """Index of the position embedding of the first token."""
        return 0

    @property
    def has_pooler(self) -> bool:
        """Whether the model has a pooler, from which BERT classifies texts and next sentences."""
        return bool({"pooler", "classifier", "next_sentence"} & {*self.parts})


class RobertaConfig(BertConfig):
    """Configuration of RoBERTa and XLM-RoBERTa; other fields are those of `BertConfig`.

    Args:
        pad_token_id: id of the padding token; positions start at `pad_token_id + 1`.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.RobertaConfig().first_position
        2
    """

    pad_token_id: Integer = option(default=1, convert=token_id, kw_only=True)

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {"roberta": FrozenDict({"vocab_size": 50265})}
    )

    pooling: ClassVar[tuple[str, ...]] = ("classifier.out_proj.weight",)

    @property
    def first_position(self) -> int:
        return self.pad_token_id + 1

    @property
    def has_pooler(self) -> bool:
        return bool({"pooler", "next_sentence"} & {*self.parts})


class DistilBertConfig(TextEncoderConfig):
    """Configuration of DistilBERT: the fields are the keys of `config.json`.

    Args:
        dim: size of the hidden states.
        n_layers: number of blocks.
        n_heads: number of attention heads.
        hidden_dim: hidden size of the MLP.
        activation: activation of the MLP.
        parts: heads that the checkpoint has, of "masked" (masked language model), "classifier" (of texts),
            "token_classifier" and "answers"; `load` finds them by the tensor names and the class.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.DistilBertConfig(dim=384).hidden_size
        384
    """

    vocab_size: Integer = option(default=30522, convert=positive)
    dim: Integer = option(default=768, convert=positive)
    n_layers: Integer = option(default=6, convert=count)
    n_heads: Integer = option(default=12, convert=positive)
    hidden_dim: Integer = option(default=3072, convert=positive)
    activation: str = option(default="gelu", convert=activation_name)
    max_position_embeddings: Integer = option(default=512, convert=positive)

    hidden_size = property(lambda self: self.dim)
    num_hidden_layers = property(lambda self: self.n_layers)
    num_attention_heads = property(lambda self: self.n_heads)
    intermediate_size = property(lambda self: self.hidden_dim)
    hidden_act = property(lambda self: self.activation)
    layer_norm_eps: ClassVar[float] = 1e-12
    type_vocab_size: ClassVar[int] = 0
    first_position: ClassVar[int] = 0
    has_pooler: ClassVar[bool] = False
    pooling: ClassVar[tuple[str, ...]] = ("pre_classifier.weight",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "n_heads", "dim")


def build(config: BertConfig | DistilBertConfig) -> Model:
    """Returns the graph of a configuration."""
    ids = Input((None,), dtype="int32", name="ids")
    inputs = [ids]
    positions = layers.Positions(name="positions")(ids)
    shifted = ops.maximum(positions + config.first_position, 0)
    width, epsilon = config.hidden_size, config.layer_norm_eps
    embedding = layers.ReversibleEmbedding(
        config.vocab_size,
        width,
        tie_weights="masked" not in config.parts or config.tie_word_embeddings,
        name="embedding",
    )
    table = layers.Embedding(config.max_position_embeddings, width, name="position_embedding")
    parts = [embedding(ids), table(shifted)]
    if config.type_vocab_size:
        if config.type_vocab_size > 1:
            inputs.append(Input((None,), dtype="int32", name="types", optional=True))
        types = layers.TokenTypes(name="types_or_zero")(*inputs)
        parts.append(layers.Embedding(config.type_vocab_size, width, name="type_embedding")(types))
    x = norm(layers.Add(name="embedding_add")(parts), epsilon, "embedding_norm")
    for block in repeated(lambda i: _block(config), [()] * config.num_hidden_layers):
        x = block(x)
    return Model(
        inputs, _outputs(config, x, positions, embedding), name=config.model_type or "bert"
    )


def _block(config: BertConfig | DistilBertConfig) -> Model:
    inputs = Input((None, config.hidden_size), name="x")
    y = attention(inputs, config.num_attention_heads)
    x = norm(add(inputs, y, "attention_add"), config.layer_norm_eps, "attention_norm")
    y = mlp(x, config.intermediate_size, config.hidden_act)
    x = norm(add(x, y, "mlp_add"), config.layer_norm_eps, "mlp_norm")
    return Model(inputs, x)


def _outputs(
    config: BertConfig | DistilBertConfig,
    x: Tensor,
    positions: Tensor,
    embedding: layers.ReversibleEmbedding,
) -> dict[str, Tensor]:
    outputs = {"hidden": x, **token_heads(config, x)}
    first = first_token(x, positions)
    width = config.hidden_size
    if config.has_pooler:
        outputs["pooled"] = layers.Dense(width, "tanh", name="pooler")(first)
    if "masked" in config.parts:
        y = layers.Dense(width, name="head_dense")(x)
        roberta = isinstance(config, RobertaConfig)
        y = activate("gelu" if roberta else config.hidden_act, y)
        # RoBERTa and DistilBERT too take the epsilon of this head from the configuration
        y = norm(y, config.layer_norm_eps, "head_norm")
        outputs["logits"] = layers.Bias(name="head_bias")(embedding(y, reverse=True))
    if "next_sentence" in config.parts:
        outputs["next_sentence"] = layers.Dense(2, name="next_sentence")(outputs["pooled"])
    if "classifier" in config.parts:
        if config.has_pooler:
            y = outputs["pooled"]
        else:
            activation = "relu" if isinstance(config, DistilBertConfig) else "tanh"
            y = layers.Dense(width, activation, name="classifier_dense")(first)
        outputs["classes"] = layers.Dense(config.num_labels, name="classifier")(y)
    if config.has_sentence:
        outputs["sentence"] = sentence(config, x, positions)
    return outputs


def _bert_names(config: BertConfig) -> tuple[Row, ...]:
    weight, bias = ("gamma", "beta") if "gamma" in config.parts else ("weight", "bias")

    def norms(tensor: str, layer: str) -> tuple[Row, ...]:
        return (
            Row(f"{tensor}.{weight}", f"{layer}/gamma"),
            Row(f"{tensor}.{bias}", f"{layer}/beta"),
        )

    roberta = isinstance(config, RobertaConfig)
    p = "roberta." if roberta else "bert."
    b = f"{p}encoder.layer.{{i}}."
    n = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    rows = [
        Row(f"{p}embeddings.word_embeddings.weight", "embedding/embeddings"),
        Row(f"{p}embeddings.position_embeddings.weight", "position_embedding/embeddings"),
        Row(f"{p}embeddings.token_type_embeddings.weight", "type_embedding/embeddings"),
        *norms(f"{p}embeddings.LayerNorm", "embedding_norm"),
        *in_blocks(
            range(config.num_hidden_layers),
            *attention_rows(
                f"{b}attention.",
                "block_{i}/",
                *n,
                ("self.query", "self.key", "self.value", "output.dense"),
            ),
            *norms(f"{b}attention.output.LayerNorm", "block_{i}/attention_norm"),
            *dense_rows(f"{b}intermediate.dense", "block_{i}/mlp_in"),
            *dense_rows(f"{b}output.dense", "block_{i}/mlp_out"),
            *norms(f"{b}output.LayerNorm", "block_{i}/mlp_norm"),
        ),
    ]
    if config.has_pooler:
        rows += dense_rows(f"{p}pooler.dense", "pooler")
    if "masked" in config.parts:
        head = "lm_head." if roberta else "cls.predictions."
        transform = head if roberta else f"{head}transform."
        rows += dense_rows(f"{transform}dense", "head_dense")
        rows += norms(f"{transform}{'layer_norm' if roberta else 'LayerNorm'}", "head_norm")
        biases = [f"{head}bias", f"{head}decoder.bias"]
        # transformers ties the biases like the kernels; otherwise only the second is used
        if not (config.tie_word_embeddings or "bias" in config.parts):
            biases.reverse()
        rows += [
            logit_row(f"{head}decoder.weight", config.tie_word_embeddings),
            Row(biases[0], "head_bias/bias"),
            Row(biases[1], "head_bias/bias", copy=True),
        ]
    if "next_sentence" in config.parts:
        rows += dense_rows("cls.seq_relationship", "next_sentence")
    if "classifier" in config.parts and not roberta:
        rows += dense_rows("classifier", "classifier")
    if "classifier" in config.parts and roberta:
        rows += dense_rows("classifier.dense", "classifier_dense")
        rows += dense_rows("classifier.out_proj", "classifier")
    return (*rows, *token_head_rows(config.parts), *sentence_rows(config.beside))


def _adapted(config: BertConfig, tensors: Collection[str]) -> BertConfig:
    config = with_parts(config, tensors)
    is_old = not any(name.endswith("decoder.bias") for name in tensors)
    if "masked" in config.parts and not config.tie_word_embeddings and is_old:
        return dataclasses.replace(config, parts=(*config.parts, "bias"))
    return config


def _distilbert_names(config: DistilBertConfig) -> tuple[Row, ...]:
    p, b = "distilbert.", "distilbert.transformer.layer.{i}."
    n = config.n_heads, config.dim // config.n_heads
    rows = [
        Row(f"{p}embeddings.word_embeddings.weight", "embedding/embeddings"),
        Row(f"{p}embeddings.position_embeddings.weight", "position_embedding/embeddings"),
        *norm_rows(f"{p}embeddings.LayerNorm", "embedding_norm"),
        *in_blocks(
            range(config.n_layers),
            *attention_rows(
                f"{b}attention.", "block_{i}/", *n, ("q_lin", "k_lin", "v_lin", "out_lin")
            ),
            *norm_rows(f"{b}sa_layer_norm", "block_{i}/attention_norm"),
            *dense_rows(f"{b}ffn.lin1", "block_{i}/mlp_in"),
            *dense_rows(f"{b}ffn.lin2", "block_{i}/mlp_out"),
            *norm_rows(f"{b}output_layer_norm", "block_{i}/mlp_norm"),
        ),
    ]
    if "masked" in config.parts:
        rows += dense_rows("vocab_transform", "head_dense")
        rows += norm_rows("vocab_layer_norm", "head_norm")
        rows.append(logit_row("vocab_projector.weight", config.tie_word_embeddings))
        rows.append(Row("vocab_projector.bias", "head_bias/bias"))
    if "classifier" in config.parts:
        rows += dense_rows("pre_classifier", "classifier_dense")
        rows += dense_rows("classifier", "classifier")
    return (*rows, *token_head_rows(config.parts), *sentence_rows(config.beside))


_USUAL = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
_SIZES: Mapping[str, Any] = FrozenDict({"vocab_size": 67, "max_position_embeddings": 29})
_TINY: Mapping[str, Any] = FrozenDict(
    {
        **_SIZES,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 3e-3,
    }
)
_COMMON: Mapping[str, Any] = FrozenDict(
    {
        "build": build,
        "ignored": ("*.position_ids",),
        "files": SENTENCE_FILES,
    }
)

BERT = Family(
    classes={
        "bert": tuple(
            f"Bert{end}" for end in (*_USUAL, "ForPreTraining", "ForNextSentencePrediction")
        )
    },
    config=BertConfig,
    names=_bert_names,
    tiny=BertConfig(**_TINY, type_vocab_size=3, parts=("pooler",), model_type="bert"),
    prefix="bert.",
    adapted=_adapted,
    **_COMMON,
)
ROBERTA = Family(
    classes={
        "roberta": tuple(f"Roberta{end}" for end in _USUAL),
        "xlm-roberta": tuple(f"XLMRoberta{end}" for end in _USUAL),
        "camembert": tuple(f"Camembert{end}" for end in _USUAL),
    },
    config=RobertaConfig,
    names=_bert_names,
    tiny=RobertaConfig(**_TINY, type_vocab_size=1, parts=("masked",), model_type="roberta"),
    prefix="roberta.",
    adapted=_adapted,
    **_COMMON,
)
DISTILBERT = Family(
    classes={"distilbert": tuple(f"DistilBert{end}" for end in _USUAL)},
    config=DistilBertConfig,
    names=_distilbert_names,
    tiny=DistilBertConfig(
        **_SIZES,
        dim=24,
        n_layers=2,
        n_heads=3,
        hidden_dim=40,
        activation="relu",
        parts=("masked",),
        model_type="distilbert",
    ),
    prefix="distilbert.",
    adapted=with_parts,
    **_COMMON,
)
