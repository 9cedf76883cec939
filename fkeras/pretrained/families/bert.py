"""BERT, RoBERTa and DistilBERT: text encoders, with the heads of the checkpoint.

ELECTRA, ALBERT and MPNet (`electra.py` and `mpnet.py`) are variants of the same graph.

The models return a dictionary: "hidden" (b, t, d), and "pooled", "logits", "next_sentence" or
"classes" if the checkpoint has that head. A checkpoint of sentence-transformers adds "sentence", the
sentence embedding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

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

C = TypeVar("C", bound="TextEncoderConfig")


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
    #: index of the position embedding of the first token
    first_position: ClassVar[int] = 0
    # no annotations: an attribute that a subclass declares as a field would be the first argument
    #: number of token types; 0 without embeddings of types
    type_vocab_size = 0
    #: number of buckets of relative positions; 0 without biases of relative positions
    relative_attention_num_buckets = 0
    #: activation of the hidden layer of a classifier without pooler
    classifier_activation = "tanh"
    #: epsilon of the normalizations
    layer_norm_eps = 1e-12
    #: whether a layer projects the embeddings to the size of the hidden states
    projects: ClassVar[bool] = False

    @property
    def has_pooler(self) -> bool:
        """Whether the model has a pooler."""
        return "pooler" in self.parts


class PostNormConfig(TextEncoderConfig):
    """Fields that text encoders share whose normalizations follow attention and MLP."""

    vocab_size: Integer = option(default=30522, convert=positive)
    hidden_size: Integer = option(default=768, convert=positive)
    num_hidden_layers: Integer = option(default=12, convert=count)
    num_attention_heads: Integer = option(default=12, convert=positive)
    intermediate_size: Integer = option(default=3072, convert=positive)
    hidden_act: str = option(default="gelu", convert=activation_name)
    max_position_embeddings: Integer = option(default=512, convert=positive)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "num_attention_heads", "hidden_size")

    @property
    def embedding_size(self) -> int:
        """Size of the embeddings, and of the states that give the logits."""
        return self.hidden_size

    @property
    def block_order(self) -> tuple[int, ...]:
        """Indices of the blocks in the order of the calls."""
        return tuple(range(self.num_hidden_layers))

    @property
    def head_activation(self) -> str:
        """Activation of the masked-language-model head."""
        return self.hidden_act


class BertConfig(PostNormConfig):
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

    type_vocab_size: Integer = option(default=2, convert=positive)
    layer_norm_eps: Real = option(default=1e-12, convert=epsilon)
    position_embedding_type: str = option(default="absolute", convert=choice("absolute"))

    pooling: ClassVar[tuple[str, ...]] = (".pooler.dense.weight",)

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
    head_activation = property(lambda self: "gelu")

    @property
    def first_position(self) -> int:
        """Index of the position embedding of the first token."""
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
    embedding_size = property(lambda self: self.dim)
    block_order = property(lambda self: tuple(range(self.n_layers)))
    head_activation = property(lambda self: self.activation)
    classifier_activation: ClassVar[str] = "relu"
    pooling: ClassVar[tuple[str, ...]] = ("pre_classifier.weight",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "n_heads", "dim")


def build(config: PostNormConfig | DistilBertConfig) -> Model:
    """Returns the graph of a configuration."""
    ids = Input((None,), dtype="int32", name="ids")
    inputs = [ids]
    positions = layers.Positions(name="positions")(ids)
    shifted = ops.maximum(positions + config.first_position, 0)
    width, epsilon = config.embedding_size, config.layer_norm_eps
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
    if config.projects:
        x = layers.Dense(config.hidden_size, name="embedding_projection")(x)
    bias = None
    if config.relative_attention_num_buckets:
        relative = layers.RelativePositionBias(
            config.num_attention_heads, config.relative_attention_num_buckets, name="position_bias"
        )
        # explicit key positions: an encoder has no KV cache
        bias = relative(positions, positions)
    blocks = [*repeated(lambda i: _block(config), [()] * (max(config.block_order) + 1))]
    for i in config.block_order:
        x = blocks[i](x if bias is None else [x, bias])
    return Model(
        inputs, _outputs(config, x, positions, embedding), name=config.model_type or "bert"
    )


def _block(config: PostNormConfig | DistilBertConfig) -> Model:
    heads, bias = config.num_attention_heads, None
    x = inputs = Input((None, config.hidden_size), name="x")
    if config.relative_attention_num_buckets:
        # "t" ties the axes of the bias to the length of the sequence
        x, bias = Input(("t", config.hidden_size), name="x"), Input((heads, "t", "t"), name="bias")
        inputs = [x, bias]
    y = attention(x, heads, score_bias=bias)
    x = norm(add(x, y, "attention_add"), config.layer_norm_eps, "attention_norm")
    y = mlp(x, config.intermediate_size, config.hidden_act)
    x = norm(add(x, y, "mlp_add"), config.layer_norm_eps, "mlp_norm")
    return Model(inputs, x)


def _outputs(
    config: PostNormConfig | DistilBertConfig,
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
        y = layers.Dense(config.embedding_size, name="head_dense")(x)
        y = activate(config.head_activation, y)
        # RoBERTa and DistilBERT too take the epsilon of this head from the configuration
        y = norm(y, config.layer_norm_eps, "head_norm")
        outputs["logits"] = layers.Bias(name="head_bias")(embedding(y, reverse=True))
    if "replaced" in config.parts:
        y = layers.Dense(width, name="replaced_dense")(x)
        y = layers.Dense(1, name="replaced")(activate(config.hidden_act, y))
        outputs["replaced"] = ops.unmask(y)[..., 0]
    for part, units in (("next_sentence", 2), ("sentence_order", config.num_labels)):
        if part in config.parts:
            outputs[part] = layers.Dense(units, name=part)(outputs["pooled"])
    if "classifier" in config.parts:
        if config.has_pooler:
            y = outputs["pooled"]
        else:
            activation = config.classifier_activation
            y = layers.Dense(width, activation, name="classifier_dense")(first)
        outputs["classes"] = layers.Dense(config.num_labels, name="classifier")(y)
    if config.has_sentence:
        outputs["sentence"] = sentence(config, x, positions)
    return outputs


def _norms(config: TextEncoderConfig, tensor: str, layer: str) -> tuple[Row, ...]:
    weight, bias = ("gamma", "beta") if "gamma" in config.parts else ("weight", "bias")
    return (
        Row(f"{tensor}.{weight}", f"{layer}/gamma"),
        Row(f"{tensor}.{bias}", f"{layer}/beta"),
    )


def embedding_rows(config: PostNormConfig, p: str) -> tuple[Row, ...]:
    """Returns the rows of the embeddings; `p` is the prefix of the tensor names."""
    tables = (
        ("word", "embedding"),
        ("position", "position_embedding"),
        ("token_type", "type_embedding"),
    )
    return (
        *(
            Row(f"{p}embeddings.{theirs}_embeddings.weight", f"{ours}/embeddings")
            for theirs, ours in tables[: 2 + bool(config.type_vocab_size)]
        ),
        *_norms(config, f"{p}embeddings.LayerNorm", "embedding_norm"),
    )


def block_rows(
    config: PostNormConfig,
    p: str,
    tensors: Sequence[str] = ("self.query", "self.key", "self.value", "output.dense"),
    norm: str = "output.LayerNorm",
) -> tuple[Row, ...]:
    """Returns the rows of the blocks.

    Args:
        p: prefix of the tensor names.
        tensors: tensor names of query, key, value and output, after "attention.".
        norm: tensor name of the normalization after attention, after "attention.".
    """
    b = f"{p}encoder.layer.{{i}}."
    n = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    return in_blocks(
        range(config.num_hidden_layers),
        *attention_rows(f"{b}attention.", "block_{i}/", *n, tensors),
        *_norms(config, f"{b}attention.{norm}", "block_{i}/attention_norm"),
        *dense_rows(f"{b}intermediate.dense", "block_{i}/mlp_in"),
        *dense_rows(f"{b}output.dense", "block_{i}/mlp_out"),
        *_norms(config, f"{b}output.LayerNorm", "block_{i}/mlp_norm"),
    )


def masked_rows(config: PostNormConfig, head: str, transform: str, norm: str) -> tuple[Row, ...]:
    """Returns the rows of the masked-language-model head.

    Args:
        head: prefix of the tensor names of the logits.
        transform: prefix of the tensor names of the layers before the logits.
        norm: tensor name of the normalization, after `transform`.
    """
    biases = [f"{head}bias", f"{head}decoder.bias"]
    # transformers ties the biases like the kernels; otherwise only the second is used
    if not (config.tie_word_embeddings or "bias" in config.parts):
        biases.reverse()
    return (
        *dense_rows(f"{transform}dense", "head_dense"),
        *_norms(config, f"{transform}{norm}", "head_norm"),
        logit_row(f"{head}decoder.weight", config.tie_word_embeddings),
        Row(biases[0], "head_bias/bias"),
        Row(biases[1], "head_bias/bias", copy=True),
    )


def _bert_names(config: BertConfig) -> tuple[Row, ...]:
    roberta = isinstance(config, RobertaConfig)
    p = "roberta." if roberta else "bert."
    rows = [*embedding_rows(config, p), *block_rows(config, p)]
    if config.has_pooler:
        rows += dense_rows(f"{p}pooler.dense", "pooler")
    if "masked" in config.parts and roberta:
        rows += masked_rows(config, "lm_head.", "lm_head.", "layer_norm")
    if "masked" in config.parts and not roberta:
        rows += masked_rows(config, "cls.predictions.", "cls.predictions.transform.", "LayerNorm")
    if "next_sentence" in config.parts:
        rows += dense_rows("cls.seq_relationship", "next_sentence")
    if "classifier" in config.parts and not roberta:
        rows += dense_rows("classifier", "classifier")
    if "classifier" in config.parts and roberta:
        rows += dense_rows("classifier.dense", "classifier_dense")
        rows += dense_rows("classifier.out_proj", "classifier")
    return (*rows, *token_head_rows(config.parts), *sentence_rows(config.beside))


def adapted(config: C, tensors: Collection[str]) -> C:
    """Returns the configuration with the parts of the checkpoint."""
    config = with_parts(config, tensors)
    is_old = not any(name.endswith("decoder.bias") for name in tensors)
    has_old = "bias" in config.endings and "masked" in config.parts and is_old
    if has_old and not config.tie_word_embeddings:
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


USUAL = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
SIZES: Mapping[str, Any] = FrozenDict({"vocab_size": 67, "max_position_embeddings": 29})
TINY: Mapping[str, Any] = FrozenDict(
    {
        **SIZES,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 3e-3,
    }
)
COMMON: Mapping[str, Any] = FrozenDict(
    {
        "build": build,
        "ignored": ("*.position_ids",),
        "files": SENTENCE_FILES,
    }
)

BERT = Family(
    classes={
        "bert": tuple(
            f"Bert{end}" for end in (*USUAL, "ForPreTraining", "ForNextSentencePrediction")
        )
    },
    config=BertConfig,
    names=_bert_names,
    tiny=BertConfig(**TINY, type_vocab_size=3, parts=("pooler",), model_type="bert"),
    prefix="bert.",
    adapted=adapted,
    **COMMON,
)
ROBERTA = Family(
    classes={
        "roberta": tuple(f"Roberta{end}" for end in USUAL),
        "xlm-roberta": tuple(f"XLMRoberta{end}" for end in USUAL),
        "camembert": tuple(f"Camembert{end}" for end in USUAL),
    },
    config=RobertaConfig,
    names=_bert_names,
    tiny=RobertaConfig(**TINY, type_vocab_size=1, parts=("masked",), model_type="roberta"),
    prefix="roberta.",
    adapted=adapted,
    **COMMON,
)
DISTILBERT = Family(
    classes={"distilbert": tuple(f"DistilBert{end}" for end in USUAL)},
    config=DistilBertConfig,
    names=_distilbert_names,
    tiny=DistilBertConfig(
        **SIZES,
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
    **COMMON,
)
