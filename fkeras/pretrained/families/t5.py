"""T5, T5 1.1, Flan-T5 and mT5: an encoder and a decoder with relative position biases."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from fkeras import layers
from fkeras.authoring.engine import boolean, choice, either, integer, several, text
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.masks import Causal
from fkeras.pretrained.blocks.activation import ACTIVATIONS
from fkeras.pretrained.blocks.encoder_blocks import attention
from fkeras.pretrained.blocks.projections import gated_mlp, mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.blocks.sentences import sentence
from fkeras.pretrained.tables.config import count, factor, positive
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.heads import TextHeadsConfig
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row, in_blocks
from fkeras.pretrained.tables.rows import attention_rows, dense_rows, logit_row
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES, sentence_rows

_optional_boolean = either(boolean, optional=True)


class T5Config(TextHeadsConfig):
    """Configuration of T5, T5 1.1 and Flan-T5: the fields are the keys of `config.json`.

    Args:
        d_model: size of the hidden states.
        d_kv: size of a head.
        d_ff: hidden size of the MLP.
        num_layers: number of blocks of the encoder.
        num_decoder_layers: number of blocks of the decoder; None for `num_layers`.
        num_heads: number of attention heads.
        relative_attention_num_buckets: number of buckets of relative positions; each head has one bias
            for each bucket.
        relative_attention_max_distance: distance from which all relative positions are in the last bucket.
        layer_norm_epsilon: epsilon of the RMS normalizations.
        feed_forward_proj: activation of the MLP, such as "relu", or of the gate of a gated MLP, such as
            "gated-gelu", which is the tanh approximation of GELU.
        scale_decoder_outputs: whether the decoder's output is multiplied by `d_model**-0.5` before the
            logits; None for the value of `tie_word_embeddings`.
        parts: ("decoder",) for a model with encoder and decoder, () for the encoder alone. `load` finds the
            part by the class and the tensor names.
        num_labels: no effect.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.T5Config(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
        >>> config.activation, config.scales_outputs
        ('gelu_new', False)
    """

    model_type: str = option(default="t5", convert=choice("t5"), kw_only=True)
    parts: tuple[str, ...] = option(
        default=("decoder",), convert=several(text(), "a tuple of names", least=0), kw_only=True
    )
    vocab_size: int = option(default=32128, convert=positive)
    d_model: int = option(default=512, convert=positive)
    d_kv: int = option(default=64, convert=positive)
    d_ff: int = option(default=2048, convert=positive)
    num_layers: int = option(default=6, convert=count)
    num_decoder_layers: int | None = option(
        default=None, convert=integer(minimum=1, maximum=10_000, optional=True)
    )
    num_heads: int = option(default=8, convert=positive)
    relative_attention_num_buckets: int = option(default=32, convert=integer(minimum=4))
    relative_attention_max_distance: int = option(
        default=128, convert=integer(minimum=1, maximum=1 << 20)
    )
    layer_norm_epsilon: float = option(default=1e-6, convert=factor)
    feed_forward_proj: str = option(default="relu", convert=text())
    tie_word_embeddings: bool = option(default=True, convert=boolean)
    scale_decoder_outputs: bool | None = option(default=None, convert=_optional_boolean)

    neutral: ClassVar[Reasons] = FrozenDict(
        {"the sequence length of pretraining": ("n_positions",)}
    )
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"dense_act_fn": ("feed_forward_proj",), "is_gated_act": ("feed_forward_proj",)}
    )

    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"decoder": ("decoder.final_layer_norm.weight",)}
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        mapping = super().canonical(mapping)
        projection = str(mapping.get("feed_forward_proj", cls.feed_forward_proj))
        gated, _, name = projection.rpartition("-")
        classes = mapping.get("architectures")
        is_encoder = isinstance(classes, list | tuple) and any(
            str(name).endswith("T5EncoderModel") for name in classes
        )
        expected = {
            # transformers writes false for the encoder alone
            **({} if is_encoder else {"is_encoder_decoder": True}),
            # copies of parts of `feed_forward_proj`
            "is_gated_act": gated == "gated",
            "dense_act_fn": "gelu_new" if projection == "gated-gelu" else name,
        }
        for key, value in expected.items():
            if mapping.get(key, value) != value:
                raise ValueError(
                    f"{cls.__name__}: {key}: expected {value} beside feed_forward_proj={projection[:80]!r}, "
                    f"received {str(mapping[key])[:80]!r}. Correct config.json."
                )
        # transformers 5 writes that the embeddings are tied for all models, and does not scale the
        # outputs of those with a head of their own
        if mapping.get("scale_decoder_outputs") is False:
            return {**mapping, "tie_word_embeddings": False}
        return mapping

    def __post_init__(self) -> None:
        super().__post_init__()
        gated, _, name = self.feed_forward_proj.rpartition("-")
        if gated not in ("", "gated") or name not in ACTIVATIONS:
            raise ValueError(
                f"{type(self).__name__}: feed_forward_proj: expected an activation such as 'relu', or "
                f"'gated-gelu', received {self.feed_forward_proj[:80]!r}."
            )
        buckets, distance = (
            self.relative_attention_num_buckets,
            self.relative_attention_max_distance,
        )
        if buckets % 2 or distance <= buckets // 2:
            raise ValueError(
                f"{type(self).__name__}: relative_attention_num_buckets: expected an even number whose half "
                f"is less than relative_attention_max_distance={distance}, received {buckets}."
            )

    @property
    def gated(self) -> bool:
        """Whether the MLP is gated."""
        return self.feed_forward_proj.startswith("gated-")

    @property
    def activation(self) -> str:
        """Activation of the MLP; "gated-gelu" is the tanh approximation of GELU."""
        if self.feed_forward_proj == "gated-gelu":
            return "gelu_new"
        return self.feed_forward_proj.removeprefix("gated-")

    @property
    def decoder_layers(self) -> int:
        """Number of blocks of the decoder."""
        return self.num_decoder_layers or self.num_layers

    @property
    def scales_outputs(self) -> bool:
        """Whether the decoder's output is scaled before the logits."""
        scale = self.scale_decoder_outputs
        return self.tie_word_embeddings if scale is None else scale


class MT5Config(T5Config):
    """Configuration of mT5; other fields are those of `T5Config`.

    Args:
        tie_word_embeddings: whether the token embeddings are also the kernel of the logits. `load` ignores the
            key, as transformers does: the logits have a kernel of their own if the checkpoint has one.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.MT5Config().activation
        'gelu_new'
    """

    model_type: str = option(default="mt5", convert=choice("mt5"), kw_only=True)
    vocab_size: int = option(default=250112, convert=positive)
    d_ff: int = option(default=1024, convert=positive)
    num_layers: int = option(default=8, convert=count)
    num_heads: int = option(default=6, convert=positive)
    feed_forward_proj: str = option(default="gated-gelu", convert=text())

    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"mt5": ("scale_decoder_outputs",)}
    )
    scales_outputs = property(lambda self: False)

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        mapping, key = super().canonical(mapping), "tie_word_embeddings"
        return {**mapping, key: True} if isinstance(mapping.get(key), bool) else mapping

    def write(self) -> dict[str, Any]:
        key = "tie_word_embeddings"
        return {**super().write(), **{k: v for k, v in self.source.items() if k == key}}


def build(config: T5Config) -> Model:
    """Returns the graph: ids (b, s) and decoder ids (b, t) -> logits (b, t, v).

    The graph of the encoder alone takes ids, and returns a dictionary with "hidden" (b, s, d), and "sentence"
    in a folder of sentence-transformers.

    The nested models "encoder" and "decoder" take embeddings: both share one embedding layer. Decoder ids
    start with the padding id.
    """
    ids = Input((None,), dtype="int32", name="ids")
    has_decoder = "decoder" in config.parts
    embedding = layers.ReversibleEmbedding(
        config.vocab_size,
        config.d_model,
        tie_weights=config.tie_word_embeddings or not has_decoder,
        name="embedding",
    )
    encoder_positions = layers.Positions(name="encoder_positions")(ids)
    encoded = _stack(config, decoder=False)([embedding(ids), encoder_positions])
    if not has_decoder:
        outputs = {"hidden": encoded}
        if config.has_sentence:
            outputs["sentence"] = sentence(config, encoded, encoder_positions)
        return Model(ids, outputs, name="t5")
    decoder_ids = Input((None,), dtype="int32", name="decoder_ids")
    positions = layers.Positions(name="positions")(decoder_ids)
    x = _stack(config, decoder=True)([embedding(decoder_ids), positions, encoded])
    if config.scales_outputs:
        x = layers.Rescaling(config.d_model**-0.5, name="output_scale")(x)
    return Model([ids, decoder_ids], embedding(x, reverse=True), name="t5")


def _norm(config: T5Config, name: str) -> layers.RMSNormalization:
    return layers.RMSNormalization(epsilon=config.layer_norm_epsilon, name=name)


def _stack(config: T5Config, decoder: bool) -> Model:
    x = Input((None, config.d_model), name="x")
    positions = Input((None,), dtype="int32", name="positions")
    relative = layers.RelativePositionBias(
        config.num_heads,
        config.relative_attention_num_buckets,
        config.relative_attention_max_distance,
        bidirectional=not decoder,
        name="position_bias",
    )
    if not decoder:
        # explicit key positions: the encoder has no KV cache
        inputs, y, bias = [x, positions], x, relative(positions, positions)
        for block in repeated(lambda i: _block(config, decoder), [()] * config.num_layers):
            y = block([y, bias])
    else:
        encoded = Input((None, config.d_model), name="encoded")
        inputs, y, bias = [x, positions, encoded], x, relative(positions)
        for block in repeated(lambda i: _block(config, decoder), [()] * config.decoder_layers):
            y = block([y, bias, positions, encoded])
    name = "decoder" if decoder else "encoder"
    return Model(inputs, _norm(config, "norm")(y), name=name)


def _block(config: T5Config, decoder: bool) -> Model:
    # "t" ties the axes of the bias to the length of the sequence
    x = Input(("t", config.d_model), name="x")
    bias = Input((config.num_heads, "t", "t"), name="bias")
    attend = functools.partial(
        attention, heads=config.num_heads, size=config.d_kv, bias=False, scale=1.0
    )
    y = _norm(config, "attention_norm")(x)
    if not decoder:
        inputs = [x, bias]
        y = attend(y, score_bias=bias)
    else:
        positions = Input(("t",), dtype="int32", name="positions")
        encoded = Input(("s", config.d_model), name="encoded")
        inputs = [x, bias, positions, encoded]
        y = attend(y, mask=Causal(), positions=positions, score_bias=bias)
    y = layers.Add(name="attention_add")([x, y])
    if decoder:
        z = attend(_norm(config, "cross_norm")(y), source=encoded, prefix="cross_")
        y = layers.Add(name="cross_add")([y, z])
    feed_forward = gated_mlp if config.gated else functools.partial(mlp, bias=False)
    z = feed_forward(_norm(config, "mlp_norm")(y), config.d_ff, config.activation)
    return Model(inputs, layers.Add(name="mlp_add")([y, z]))


def names(config: T5Config) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    rows = (
        Row("shared.weight", "embedding/embeddings"),
        # checkpoints of older versions also have copies of the embeddings
        Row("encoder.embed_tokens.weight", "embedding/embeddings", copy=True),
        *_stack_rows(config, "encoder", config.num_layers),
    )
    if "decoder" not in config.parts:
        return (*rows, *sentence_rows(config.beside))
    return (
        *rows,
        Row("decoder.embed_tokens.weight", "embedding/embeddings", copy=True),
        logit_row("lm_head.weight", config.tie_word_embeddings),
        *_stack_rows(config, "decoder", config.decoder_layers),
    )


def _stack_rows(config: T5Config, part: str, blocks: int) -> tuple[Row, ...]:
    decoder, block = part == "decoder", f"{part}/block_{{i}}/"
    b = f"{part}.block.{{i}}.layer."
    mlp_tensors = f"{b}{2 if decoder else 1}."
    heads = config.num_heads, config.d_kv, ("q", "k", "v", "o")
    no_bias = {"bias": False, "output_bias": False}
    rows = [
        *attention_rows(f"{b}0.SelfAttention.", block, *heads, **no_bias),
        Row(f"{b}0.layer_norm.weight", f"{block}attention_norm/scale"),
        Row(f"{mlp_tensors}layer_norm.weight", f"{block}mlp_norm/scale"),
    ]
    if decoder:
        rows += attention_rows(f"{b}1.EncDecAttention.", f"{block}cross_", *heads, **no_bias)
        rows.append(Row(f"{b}1.layer_norm.weight", f"{block}cross_norm/scale"))
    kernels = {"wi": "mlp_in", "wo": "mlp_out"}
    if config.gated:
        kernels = {"wi_0": "gate", "wi_1": "up", "wo": "down"}
    for theirs, ours in kernels.items():
        rows += dense_rows(f"{mlp_tensors}DenseReluDense.{theirs}", f"{block}{ours}", bias=False)
    relative = f"{part}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        Row(relative, f"{part}/position_bias/embeddings"),
        Row(f"{part}.final_layer_norm.weight", f"{part}/norm/scale"),
        *in_blocks(range(blocks), *rows),
    )


def adapted(config: T5Config, tensors: Collection[str]) -> T5Config:
    """Returns the configuration, with tied embeddings for a checkpoint of transformers 5 without a head.

    A checkpoint whose class is that of the encoder has no decoder.

    Raises:
        ValueError: for a checkpoint without a head whose configuration does not tie the embeddings.
    """
    if config.named_parts == ():
        return dataclasses.replace(config, parts=())
    if "lm_head.weight" in tensors or config.tie_word_embeddings:
        return config
    if config.scale_decoder_outputs is None:
        raise ValueError(
            "this checkpoint has no head: lm_head.weight is missing, and tie_word_embeddings is false. "
            "Set tie_word_embeddings to true in config.json if the embeddings are the head."
        )
    return dataclasses.replace(config, tie_word_embeddings=True)


def _mt5_adapted(config: MT5Config, tensors: Collection[str]) -> MT5Config:
    parts = () if config.named_parts == () else config.parts
    is_tied = "lm_head.weight" not in tensors
    return dataclasses.replace(config, tie_word_embeddings=is_tied, parts=parts)


_TINY: Mapping[str, Any] = FrozenDict(
    {
        "vocab_size": 67,
        "d_model": 20,
        "d_kv": 6,
        "d_ff": 28,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
        "layer_norm_epsilon": 1e-3,
    }
)
TINY = T5Config(**_TINY, model_type="t5")
_COMMON: Mapping[str, Any] = FrozenDict(
    {
        "build": build,
        "names": names,
        "files": SENTENCE_FILES,
        # old checkpoints have this unused tensor: cross-attention has no position bias
        "ignored": ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    }
)

FAMILY = Family(
    classes=FrozenDict({"t5": ("T5ForConditionalGeneration", "T5EncoderModel")}),
    config=T5Config,
    tiny=TINY,
    adapted=adapted,
    **_COMMON,
)
MT5 = Family(
    classes=FrozenDict({"mt5": ("MT5ForConditionalGeneration", "MT5EncoderModel")}),
    config=MT5Config,
    tiny=MT5Config(**_TINY, tie_word_embeddings=False, model_type="mt5"),
    adapted=_mt5_adapted,
    **_COMMON,
)
