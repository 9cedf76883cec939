"""BART, mBART, Pegasus, Marian and M2M100 (also NLLB): an encoder and a decoder with cross-attention.

The model takes ids (b, s) and decoder ids (b, t), and returns logits (b, t, v). Decoder ids start with
`decoder_start_token_id`; models of several languages expect the id of the language after it.
`fk.generate(model, state, decoder_ids, inputs=ids)` computes the encoder once.

A classifier of texts and a model of answers take ids alone: the decoder reads the same ids, one place later. They
return a dictionary with "hidden" (b, s, d), and "classes" (b, n) at the last end token, or "start" and "end" (b, s).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from fkeras import layers, ops
from fkeras.authoring.engine import (
    Integer,
    OptionalInteger,
    boolean,
    choice,
    describe_value,
    either,
    integer,
    several,
)
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.masks import Causal
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.blocks.encoder_blocks import Tensor, add, attention, last_token, norm
from fkeras.pretrained.blocks.encoder_config import EncoderConfig, with_parts
from fkeras.pretrained.blocks.heads import token_heads
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.tables.config import (
    check_heads,
    count,
    optional_positive,
    positive,
    token_id,
)
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Reshape, Row, in_blocks
from fkeras.pretrained.tables.rows import (
    attention_rows,
    dense_rows,
    logit_row,
    norm_rows,
    pre_norm_rows,
    token_head_rows,
)

_EPSILON = 1e-5
_WAVELENGTH = 10_000.0
_optional_id = integer(minimum=0, maximum=2**31 - 1, optional=True)


class BartConfig(EncoderConfig):
    """Configuration of BART, mBART and Pegasus: the fields are the keys of `config.json`.

    Args:
        d_model: size of the hidden states.
        encoder_layers: number of blocks of the encoder.
        encoder_attention_heads: number of attention heads of the encoder.
        encoder_ffn_dim: hidden size of the encoder's MLP.
        decoder_layers: number of blocks of the decoder.
        decoder_attention_heads: number of attention heads of the decoder.
        decoder_ffn_dim: hidden size of the decoder's MLP.
        scale_embedding: whether the token embeddings are multiplied by `d_model**0.5`.
        tie_word_embeddings: only True is supported.
        eos_token_id: id of the end token, whose hidden state the classifier reads.
        decoder_start_token_id: id with which the decoder of a classifier starts; mBART starts with the last token.
        parts: ("bias",) if the checkpoint has a bias of the logits, ("classifier",) for classes of texts, ("answers",)
            for the first and last token of an answer; `load` finds the part by the tensor names.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.BartConfig(model_type="mbart").pre_norm
        True
    """

    vocab_size: Integer = option(default=50265, convert=positive)
    d_model: Integer = option(default=1024, convert=positive)
    encoder_layers: Integer = option(default=12, convert=count)
    encoder_attention_heads: Integer = option(default=16, convert=positive)
    encoder_ffn_dim: Integer = option(default=4096, convert=positive)
    decoder_layers: Integer = option(default=12, convert=count)
    decoder_attention_heads: Integer = option(default=16, convert=positive)
    decoder_ffn_dim: Integer = option(default=4096, convert=positive)
    activation_function: str = option(default="gelu", convert=activation_name)
    max_position_embeddings: Integer = option(default=1024, convert=positive)
    scale_embedding: bool = option(default=False, convert=boolean)
    tie_word_embeddings: bool = option(default=True, convert=boolean)
    eos_token_id: int | tuple[int, ...] | None = option(
        default=2, convert=either(token_id, several(token_id, "a list of ids"), optional=True)
    )
    decoder_start_token_id: OptionalInteger = option(default=2, convert=_optional_id)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "regularization and initial values": (
                "classif_dropout",
                "decoder_layerdrop",
                "encoder_layerdrop",
                "init_std",
            ),
            "the architecture, which the model type names; transformers does not read the keys": (
                "add_bias_logits",
                "add_final_layer_norm",
                "extra_pos_embeddings",
                "force_bos_token_to_be_generated",
                "normalize_before",
                "normalize_embedding",
                "static_position_embeddings",
            ),
        }
    )
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "num_hidden_layers": ("encoder_layers",),
            "num_attention_heads": ("encoder_attention_heads",),
            "hidden_size": ("d_model",),
        }
    )
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {
            "mbart": FrozenDict({"decoder_start_token_id": None}),
            "pegasus": FrozenDict({"eos_token_id": 1, "decoder_start_token_id": 0}),
        }
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "bias": ("final_logits_bias",),
            "classifier": ("classification_head.out_proj.weight",),
            "answers": ("qa_outputs.weight",),
        }
    )
    #: whether the position embeddings are weights; otherwise they are sines and cosines
    learned: ClassVar[bool] = True
    # no annotations: fields of a subclass would come before the fields of this class
    decoder_vocab_size = None
    share_encoder_decoder_embeddings = True

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        # transformers reads the general names after its own
        copies = {key: mapping[name] for name, (key,) in cls.aliases.items() if name in mapping}
        return {**super().canonical(mapping), **copies}

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in ("encoder", "decoder"):
            check_heads(self, f"{part}_attention_heads", "d_model")
        if not self.tie_word_embeddings:
            raise ValueError(
                "BartConfig: tie_word_embeddings: expected True, received False: fkeras has no models of these "
                "types with embeddings apart. If the embeddings are equal, correct config.json."
            )
        needed = {
            "eos_token_id": "classifier" in self.parts,
            "decoder_start_token_id": self.reads_once and self.model_type != "mbart",
        }
        for key, is_needed in needed.items():
            if is_needed and not isinstance(getattr(self, key), int):
                raise ValueError(
                    f"{type(self).__name__}: {key}: expected the id of a token, which this head needs, received "
                    f"{describe_value(getattr(self, key))}. Correct config.json."
                )

    @property
    def pre_norm(self) -> bool:
        """Whether the normalizations precede attention and MLP."""
        return self.model_type in ("mbart", "m2m_100", "pegasus")

    @property
    def reads_once(self) -> bool:
        """Whether the decoder reads the ids of the encoder, one place later."""
        return bool({"classifier", "answers"} & {*self.parts})

    @property
    def embedding_norm(self) -> bool:
        """Whether the sum of the embeddings is normalized."""
        return self.learned and self.model_type != "pegasus"

    @property
    def first_position(self) -> int:
        """Index of the position of the first token."""
        return 2 if self.embedding_norm else 0

    @property
    def output_vocab_size(self) -> int:
        """Size of the decoder's vocabulary."""
        return self.vocab_size


class MarianConfig(BartConfig):
    """Configuration of Marian and M2M100, whose position embeddings are sines and cosines; other fields are those of `BartConfig`.

    Args:
        pad_token_id: id of the padding token; positions of M2M100 start at `pad_token_id + 1`.
        decoder_vocab_size: size of the decoder's vocabulary if Marian does not share the embeddings; None for
            `vocab_size`.
        share_encoder_decoder_embeddings: whether encoder and decoder of Marian share the embeddings.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.MarianConfig(model_type="m2m_100")
        >>> config.scale_embedding, config.pre_norm, config.first_position
        (True, True, 2)
    """

    model_type: str = option(default="marian", convert=choice("marian", "m2m_100"), kw_only=True)
    pad_token_id: Integer = option(default=1, convert=token_id)
    decoder_vocab_size: OptionalInteger = option(default=None, convert=optional_positive)
    share_encoder_decoder_embeddings: bool = option(default=True, convert=boolean)

    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"m2m_100": ("decoder_vocab_size", "share_encoder_decoder_embeddings")}
    )
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {
            "marian": FrozenDict(
                {
                    "vocab_size": 58101,
                    "pad_token_id": 58100,
                    "eos_token_id": 0,
                    "decoder_start_token_id": 58100,
                }
            ),
            "m2m_100": FrozenDict(
                {"vocab_size": 128112, "activation_function": "relu", "scale_embedding": True}
            ),
        }
    )
    learned: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % 2:
            raise ValueError(
                "MarianConfig: d_model: expected an even number for sines and cosines, received "
                f"{self.d_model}."
            )

    @property
    def first_position(self) -> int:
        return self.pad_token_id + 1 if self.model_type == "m2m_100" else 0

    @property
    def output_vocab_size(self) -> int:
        separate = None if self.share_encoder_decoder_embeddings else self.decoder_vocab_size
        return separate or self.vocab_size


def build(config: BartConfig) -> Model:
    """Returns the graph: ids (b, s) and decoder ids (b, t) -> logits (b, t, v), or ids -> a dictionary.

    The nested models "encoder" and "decoder" take embeddings: both share one embedding layer.
    """
    ids = Input((None,), dtype="int32", name="ids")
    width = config.d_model
    embedding = source = layers.ReversibleEmbedding(
        config.output_vocab_size, width, name="embedding"
    )
    if not config.share_encoder_decoder_embeddings:
        source = layers.Embedding(config.vocab_size, width, name="encoder_embedding")
    positions = layers.Positions(name="encoder_positions")(ids)
    x = _scaled(config, source(ids), "encoder_embedding_scale")
    encoded = _stack(config, decoder=False)([x, positions])
    name = config.model_type or "bart"
    if config.reads_once:
        x = _scaled(config, embedding(_later(config, ids, positions)), "embedding_scale")
        x = _stack(config, decoder=True)([x, positions, encoded])
        return Model(ids, _outputs(config, x, ids, positions), name=name)
    decoder_ids = Input((None,), dtype="int32", name="decoder_ids")
    positions = layers.Positions(name="positions")(decoder_ids)
    x = _scaled(config, embedding(decoder_ids), "embedding_scale")
    x = embedding(_stack(config, decoder=True)([x, positions, encoded]), reverse=True)
    if "bias" in config.parts:
        x = layers.Bias(name="logit_bias")(x)
    return Model([ids, decoder_ids], x, name=name)


def _later(config: BartConfig, ids: Tensor, positions: Tensor) -> Tensor:
    """Records the start token and the ids but the last, at the places of the ids."""
    positions = ops.unmask(positions)
    if config.model_type == "mbart":
        # the last token names the language
        start = last_token(ops.expand_dims(ids, -1), positions)
    else:
        start = cast("int", config.decoder_start_token_id)
    return ops.where(positions > 0, ops.roll(ops.unmask(ids), 1, axis=1), start)


def _outputs(config: BartConfig, x: Tensor, ids: Tensor, positions: Tensor) -> dict[str, Tensor]:
    outputs = {"hidden": x, **token_heads(config, x)}
    if "classifier" in config.parts:
        is_end = ops.equal(ops.unmask(ids), cast("int", config.eos_token_id))
        y = last_token(x, ops.where(is_end, ops.unmask(positions), -1))
        y = layers.Dense(config.d_model, "tanh", name="classifier_dense")(y)
        outputs["classes"] = layers.Dense(config.num_labels, name="classifier")(y)
    return outputs


def _scaled(config: BartConfig, x: Tensor, name: str) -> Tensor:
    return layers.Rescaling(config.d_model**0.5, name=name)(x) if config.scale_embedding else x


def _stack(config: BartConfig, decoder: bool) -> Model:
    x = Input((None, config.d_model), name="x")
    positions = Input((None,), dtype="int32", name="positions")
    inputs = [x, positions]
    y = add(x, _position_vectors(config, x, positions), "position_add")
    if config.embedding_norm:
        y = norm(y, _EPSILON, "embedding_norm")
    if decoder:
        encoded = Input((None, config.d_model), name="encoded")
        inputs.append(encoded)
        for block in repeated(lambda i: _decoder_block(config), [()] * config.decoder_layers):
            y = block([y, positions, encoded])
    else:
        for block in repeated(lambda i: _encoder_block(config), [()] * config.encoder_layers):
            y = block(y)
    if config.pre_norm:
        y = norm(y, _EPSILON, "norm")
    return Model(inputs, y, name="decoder" if decoder else "encoder")


def _position_vectors(config: BartConfig, x: Tensor, positions: Tensor) -> Tensor:
    width = config.d_model
    positions = ops.maximum(positions, 0) + config.first_position
    if config.learned:
        number = config.max_position_embeddings + config.first_position
        return layers.Embedding(number, width, name="position_embedding")(positions)
    # M2M100 ends at the longest wavelength: the powers are i / (d / 2 - 1) instead of i / (d / 2)
    power = width / max(width - 2, 1) if config.model_type == "m2m_100" else 1
    encoding = layers.SinePositionEncoding(_WAVELENGTH**power, name="position_encoding")
    # the layer has pairs of sine and cosine; the models have all sines before all cosines
    y = ops.unmask(encoding(x, positions))
    return layers.Concatenate(name="sines_and_cosines")([y[..., ::2], y[..., 1::2]])


def _residual(config: BartConfig, x: Tensor, part: str, branch: Any) -> Tensor:
    """Records `branch` with its residual connection and normalization, such as "attention_norm"."""
    if config.pre_norm:
        return add(x, branch(norm(x, _EPSILON, f"{part}_norm")), f"{part}_add")
    return norm(add(x, branch(x), f"{part}_add"), _EPSILON, f"{part}_norm")


def _encoder_block(config: BartConfig) -> Model:
    inputs = Input((None, config.d_model), name="x")
    heads, inner = config.encoder_attention_heads, config.encoder_ffn_dim
    x = _residual(config, inputs, "attention", lambda x: attention(x, heads))
    x = _residual(config, x, "mlp", lambda x: mlp(x, inner, config.activation_function))
    return Model(inputs, x)


def _decoder_block(config: BartConfig) -> Model:
    inputs = Input((None, config.d_model), name="x")
    positions = Input((None,), dtype="int32", name="positions")
    encoded = Input((None, config.d_model), name="encoded")
    heads, inner = config.decoder_attention_heads, config.decoder_ffn_dim

    def attend(x: Tensor) -> Tensor:
        return attention(x, heads, mask=Causal(), positions=positions)

    x = _residual(config, inputs, "attention", attend)
    x = _residual(
        config, x, "cross", lambda x: attention(x, heads, source=encoded, prefix="cross_")
    )
    x = _residual(config, x, "mlp", lambda x: mlp(x, inner, config.activation_function))
    return Model([inputs, positions, encoded], x)


def names(config: BartConfig) -> tuple[Row, ...]:
    """Returns the table of names of a configuration."""
    shares = config.share_encoder_decoder_embeddings
    rows = [*token_head_rows(config.parts)]
    if "classifier" in config.parts:
        rows += dense_rows("classification_head.dense", "classifier_dense")
        rows += dense_rows("classification_head.out_proj", "classifier")
    if not config.reads_once:
        rows.append(logit_row("lm_head.weight", tied=True))
    if shares:
        rows.append(Row("model.shared.weight", "embedding/embeddings"))
    for part, separate in (("encoder", "encoder_embedding"), ("decoder", "embedding")):
        p, block = f"model.{part}.", f"{part}/block_{{i}}/"
        path = "embedding" if shares else separate
        rows.append(Row(f"{p}embed_tokens.weight", f"{path}/embeddings", copy=shares))
        if config.learned:
            rows.append(Row(f"{p}embed_positions.weight", f"{part}/position_embedding/embeddings"))
        if config.embedding_norm:
            rows += norm_rows(f"{p}layernorm_embedding", f"{part}/embedding_norm")
        heads = getattr(config, f"{part}_attention_heads")
        shape = heads, config.d_model // heads
        norms = ("self_attn_layer_norm", "final_layer_norm")
        b = f"{p}layers.{{i}}."
        block_rows = [*pre_norm_rows(b, block, *shape, norms, mlp="")]
        if part == "decoder":
            block_rows += norm_rows(f"{b}encoder_attn_layer_norm", f"{block}cross_norm")
            block_rows += attention_rows(f"{b}encoder_attn.", f"{block}cross_", *shape)
        rows += in_blocks(range(getattr(config, f"{part}_layers")), *block_rows)
        if config.pre_norm:
            rows += norm_rows(f"{p}layer_norm", f"{part}/norm")
    if "bias" in config.parts:
        size = config.output_vocab_size
        shape = Reshape((1, size), (size,))
        rows.append(Row("final_logits_bias", "logit_bias/bias", shape))
    return tuple(rows)


_COMMON: Mapping[str, Any] = FrozenDict(
    {"build": build, "names": names, "prefix": "model.", "adapted": with_parts}
)
_TINY: Mapping[str, Any] = FrozenDict(
    {
        "vocab_size": 67,
        "d_model": 16,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 28,
        "decoder_layers": 3,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 36,
        "activation_function": "gelu_new",
        "max_position_embeddings": 50,
        "scale_embedding": True,
        "parts": ("bias",),
    }
)


def _classes(name: str) -> tuple[str, ...]:
    ends = (
        "ForConditionalGeneration",
        "Model",
        "ForSequenceClassification",
        "ForQuestionAnswering",
    )
    return tuple(f"{name}{end}" for end in ends)


BART = Family(
    classes={
        "bart": _classes("Bart"),
        "mbart": _classes("MBart"),
        "pegasus": ("PegasusForConditionalGeneration", "PegasusModel"),
    },
    config=BartConfig,
    tiny=BartConfig(**_TINY, model_type="bart"),
    **_COMMON,
)
MARIAN = Family(
    classes={
        "marian": ("MarianMTModel", "MarianModel"),
        "m2m_100": ("M2M100ForConditionalGeneration",),
    },
    config=MarianConfig,
    tiny=MarianConfig(
        **_TINY,
        decoder_vocab_size=59,
        share_encoder_decoder_embeddings=False,
        model_type="marian",
    ),
    # tables of sines and cosines, which the graph computes
    ignored=("*.embed_positions.weight", "*.embed_positions.weights"),
    **_COMMON,
)
