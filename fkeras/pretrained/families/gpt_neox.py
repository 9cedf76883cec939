"""GPT-NeoX (Pythia), and the blocks and tables of names that decoders with layer normalization share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fkeras import layers, ops
from fkeras.authoring.engine import boolean, choice, real
from fkeras.engine import FrozenDict, Input, KerasTensor, Layer, Model, option
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.blocks import rope
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.blocks.encoder_blocks import add, attention, causal, norm
from fkeras.pretrained.blocks.heads import decoder_inputs, decoder_outputs
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.files.gguf import value
from fkeras.pretrained.files.gguf_keys import decoder_keys
from fkeras.pretrained.tables.config import check_heads, count, factor, positive
from fkeras.pretrained.tables.decoder_config import CausalConfig, rotary_scaling, with_head
from fkeras.pretrained.tables.decoder_rows import decoder_head_rows
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import HeadsIn, Row, in_blocks
from fkeras.pretrained.tables.rows import (
    attention_rows,
    dense_rows,
    fused_attention_rows,
    norm_rows,
)
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES

share = real(above=0, maximum=1)


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Describes the blocks of a decoder with layer normalization.

    Args:
        inner: hidden size of the MLP.
        activation: activation of the MLP.
        epsilon: epsilon of the normalizations.
        key_heads: number of key and value heads.
        bias: whether the projections of attention have biases.
        mlp_bias: whether the projections of the MLP have biases.
        rotary: rotary embedding of queries and keys, or None.
        slopes: for each head the factor of the key's position in the attention scores (ALiBi); empty for none.
        window: window of sliding attention, or None.
        parallel: whether the MLP reads the input of the block, instead of its sum with the output of
            attention.
        shared_norm: whether the MLP of a parallel block reads the normalization of attention.
        head_norms: whether queries and keys are normalized, head by head.
        norm_first: whether the inputs of attention and MLP are normalized, instead of the sums.
        affine: whether the normalizations have weights.
    """

    inner: int
    activation: str
    epsilon: float
    key_heads: int
    bias: bool = True
    mlp_bias: bool = True
    rotary: layers.RotaryEmbedding | None = None
    slopes: tuple[float, ...] = ()
    window: int | None = None
    parallel: bool = False
    shared_norm: bool = False
    head_norms: bool = False
    norm_first: bool = True
    affine: bool = True


class Tensors(NamedTuple):
    """Tensor names of a decoder, without "weight" and "bias" at the end.

    Attributes:
        block: prefix of the tensors of a block.
        attention: query, key, value and output, or a tensor with the first three and the output.
        norms: normalizations before attention and MLP, or one for both.
        mlp: the two projections of the MLP.
        embedding: the embedding.
        norm: the last normalization; None without.
        head: the logits.
        token_classifier: the classifier of tokens.
        head_norms: normalizations of queries and keys.
        groups: number of groups of rows in a tensor with query, key and value.
    """

    block: str
    attention: tuple[str, ...]
    norms: tuple[str, ...]
    mlp: tuple[str, str]
    embedding: str
    norm: str | None
    head: str
    token_classifier: str = "score"
    head_norms: tuple[str, ...] = ()
    groups: int = 1


class LayerNormConfig(CausalConfig):
    """Fields of decoders with layer normalization.

    Args of the family:
        rope_theta: base of the rotary frequencies.
        rope_scaling: scaling of the rotary frequencies: the key "rope_type" and the parameters of that
            type; None for no scaling.
        partial_rotary_factor: fraction of the channels of a head that rotate.
        num_key_value_heads: number of key and value heads.
        sliding_window: window of sliding attention, in tokens; None for full attention.

    Raises of the family:
        ValueError: for values out of range, and numbers of heads that do not divide the width.
    """

    vocab_size: int = option(default=50432, convert=positive)
    hidden_size: int = option(default=2048, convert=positive)
    num_hidden_layers: int = option(default=24, convert=count)
    num_attention_heads: int = option(default=32, convert=positive)
    max_position_embeddings: int = option(default=2048, convert=positive)
    tie_word_embeddings: bool = option(default=False, convert=boolean)

    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {**CausalConfig.endings, "causal": ("lm_head.weight", "embed_out.weight")}
    )
    #: whether the logits have a bias
    head_bias: ClassVar[bool] = False

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        return rope.flat(super().canonical(mapping))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "num_attention_heads", "hidden_size")
        rotary = self.blocks().rotary
        turning = 2 if rotary is None else int(self.head_size * rotary.partial)
        if turning % 2 or not turning:
            raise ValueError(
                f"{type(self).__name__}: expected an even number of channels that rotate, received {turning} "
                f"of {self.head_size}. Correct hidden_size, num_attention_heads or the fraction that rotates "
                "(rotary_pct, partial_rotary_factor) in config.json."
            )

    @property
    def head_size(self) -> int:
        """Size of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def is_tied(self) -> bool:
        """Whether the embedding has no kernel of the logits."""
        return self.tie_word_embeddings or "causal" not in self.parts

    def blocks(self) -> Blocks:
        """Returns the description of the blocks."""
        raise NotImplementedError

    def tensors(self) -> Tensors:
        """Returns the tensor names of Hugging Face checkpoints."""
        raise NotImplementedError


def rotary(
    theta: float, scaling: Any, max_positions: int, partial: float = 1.0
) -> layers.RotaryEmbedding:
    """Returns the rotary embedding of a configuration."""
    scaled = rope.scaling_of(scaling, max_positions)
    return layers.RotaryEmbedding(theta, partial=partial, scaling=scaled, name="rotary")


class GPTNeoXConfig(LayerNormConfig):
    """Configuration of GPT-NeoX, such as Pythia: the fields are the keys of `config.json`.

    Args:
        rotary_pct: fraction of the channels of a head that rotate.
        rotary_emb_base: base of the rotary frequencies.
        use_parallel_residual: whether the MLP reads the input of the block, instead of its sum with the
            output of attention.
        attention_bias: whether the projections of attention have biases.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.GPTNeoXConfig(100, 32, 2, 4, intermediate_size=48)
        >>> fk.pretrained.build(config).layers["block_0"].layers["query"].output_shape
        (None, 4, 8)
    """

    model_type: str = option(default="gpt_neox", convert=choice("gpt_neox"), kw_only=True)
    hidden_size: int = option(default=6144, convert=positive)
    num_hidden_layers: int = option(default=44, convert=count)
    num_attention_heads: int = option(default=64, convert=positive)
    intermediate_size: int = option(default=24576, convert=positive)
    hidden_act: str = option(default="gelu", convert=activation_name)
    layer_norm_eps: float = option(default=1e-5, convert=factor)
    use_parallel_residual: bool = option(default=True, convert=boolean)
    attention_bias: bool = option(default=True, convert=boolean)
    rotary_pct: float = option(default=0.25, convert=share)
    rotary_emb_base: float = option(default=10000.0, convert=factor)
    rope_scaling: FrozenDict[Any] | None = option(default=None, convert=rotary_scaling)

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"rope_parameters": ("rotary_emb_base", "rope_scaling", "rotary_pct")}
    )
    neutral: ClassVar[Reasons] = FrozenDict({"the class is a decoder": ("is_decoder",)})

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        names = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
        # the names in `rope_parameters` take precedence
        fields = super().canonical(mapping)
        return {**fields, **{names[k]: item for k, item in fields.items() if k in names}}

    def blocks(self) -> Blocks:
        base, scaling, most = self.rotary_emb_base, self.rope_scaling, self.max_position_embeddings
        return Blocks(
            self.intermediate_size,
            self.hidden_act,
            self.layer_norm_eps,
            self.num_attention_heads,
            bias=self.attention_bias,
            rotary=rotary(base, scaling, most, self.rotary_pct),
            parallel=self.use_parallel_residual,
        )

    def tensors(self) -> Tensors:
        return Tensors(
            "gpt_neox.layers.{i}.",
            ("attention.query_key_value", "attention.dense"),
            ("input_layernorm", "post_attention_layernorm"),
            ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
            embedding="gpt_neox.embed_in",
            norm="gpt_neox.final_layer_norm",
            head="embed_out",
            token_classifier="classifier",
            groups=self.num_attention_heads,
        )


def build(config: LayerNormConfig) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    inputs = decoder_inputs(config)
    positions = layers.Positions(name="positions")(*inputs)
    embedding = layers.ReversibleEmbedding(
        config.vocab_size,
        config.hidden_size,
        tie_weights=config.is_tied,
        name="embedding",
    )
    x = all_blocks(config, embedding(inputs[0]), positions)
    x = norm(x, config.blocks().epsilon, "norm")
    last = layers.Bias(name="head_bias") if config.head_bias else None
    outputs = decoder_outputs(config, x, inputs[0], positions, embedding, last)
    return Model(inputs, outputs, name=config.model_type)


def all_blocks(config: LayerNormConfig, x: KerasTensor, positions: KerasTensor) -> KerasTensor:
    """Records the blocks of a decoder, named "block_0", "block_1" and so on."""
    for block in repeated(lambda i: _block(config), [()] * config.num_hidden_layers):
        x = block([x, positions])
    return x


def _block(config: LayerNormConfig) -> Model:
    b = config.blocks()
    x = Input((None, config.hidden_size), name="x")
    positions = Input((None,), dtype="int32", name="positions")

    def head_norm(name: str) -> Layer:
        return layers.LayerNormalization(epsilon=b.epsilon, name=name)

    def normed(x: KerasTensor, name: str) -> KerasTensor:
        return norm(x, b.epsilon, name, center=b.affine, scale=b.affine)

    def feed_forward(x: KerasTensor) -> KerasTensor:
        return mlp(x, b.inner, b.activation, bias=b.mlp_bias)

    first = normed(x, "attention_norm") if b.norm_first else x
    y = attention(
        first,
        config.num_attention_heads,
        key_heads=b.key_heads,
        mask=causal(b.window),
        positions=positions,
        bias=b.bias,
        rotary=functools.partial(_with_slopes, b.slopes) if b.slopes else b.rotary,
        scale=config.head_size**-0.5,
        head_norm=head_norm if b.head_norms else None,
    )
    if b.parallel:
        z = feed_forward(first if b.shared_norm else normed(x, "mlp_norm"))
        z = add(x, add(y, z, "parallel_add"), "mlp_add")
    elif b.norm_first:
        y = add(x, y, "attention_add")
        z = add(y, feed_forward(normed(y, "mlp_norm")), "mlp_add")
    else:
        y = normed(add(x, y, "attention_add"), "attention_norm")
        z = normed(add(y, feed_forward(y), "mlp_add"), "mlp_norm")
    return Model([x, positions], z)


def _with_slopes(
    slopes: tuple[float, ...], pair: list[KerasTensor], positions: KerasTensor
) -> tuple[KerasTensor, KerasTensor]:
    """Records queries and keys with one more channel, whose product is the slope times the key's position.

    The attention scores are those of ALiBi without a bias: adding a multiple of the query's position to all scores
    of the query does not change their softmax. A cache of keys has the positions too.
    """
    query, key = pair
    factors = np.asarray(slopes, "bfloat16").astype("float32")[None, None, :, None]
    positions = ops.cast(ops.maximum(ops.unmask(positions), 0), dtype="float32")
    # transformers rounds slopes and products to bfloat16 in models of every dtype
    bias = ops.cast(ops.expand_dims(positions, (-2, -1)) * factors, dtype="bfloat16")
    bias = ops.cast(bias, dtype="float32")
    query = layers.Concatenate(name="query_slopes")([query, ops.ones_like(bias)])
    return query, layers.Concatenate(name="key_slopes")([key, bias])


def names(config: LayerNormConfig) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    return rows_of(config, config.tensors())


def _module_names(config: GPTNeoXConfig) -> tuple[Row, ...]:
    return rows_of(config, config.tensors()._replace(head="lm_head"))


def rows_of(config: LayerNormConfig, tensors: Tensors) -> tuple[Row, ...]:
    """Returns the table with these tensor names."""
    blocks, prefix, layer = config.blocks(), tensors.block, "block_{i}/"
    heads = config.num_attention_heads, config.head_size
    options = {"key_heads": blocks.key_heads, "bias": blocks.bias}
    *inner, output = tensors.attention
    if len(inner) == 1:
        fused = f"{prefix}{inner[0]}."
        rows = [
            *fused_attention_rows(fused, layer, *heads, **options, groups=tensors.groups),
            *dense_rows(f"{prefix}{output}", f"{layer}output", blocks.bias, HeadsIn(*heads)),
        ]
    else:
        options["output_bias"] = blocks.bias
        rows = [*attention_rows(prefix, layer, *heads, tensors.attention, **options)]
    head_norms = tensors.head_norms if blocks.head_norms else ()
    norms = [
        *zip(tensors.norms, ("attention_norm", "mlp_norm"), strict=False),
        *zip(head_norms, ("query_norm", "key_norm"), strict=False),
    ]
    for tensor, name in norms if blocks.affine else ():
        rows += norm_rows(prefix + tensor, layer + name)
    for tensor, name in zip(tensors.mlp, ("mlp_in", "mlp_out"), strict=True):
        rows += dense_rows(prefix + tensor, layer + name, blocks.mlp_bias)
    outer = [Row(f"{tensors.embedding}.weight", "embedding/embeddings")]
    outer += norm_rows(tensors.norm, "norm") if tensors.norm and blocks.affine else ()
    outer += decoder_head_rows(
        config, config.tie_word_embeddings, tensors.token_classifier, tensors.head
    )
    if config.head_bias and "causal" in config.parts:
        outer.append(Row(f"{tensors.head}.bias", "head_bias/bias"))
    return (*outer, *in_blocks(range(config.num_hidden_layers), *rows))


def gguf_keys(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of a GGUF file, without sizes of heads that follow from other sizes."""
    mapping = decoder_keys(metadata, tensors, layer_norms=True)
    if mapping.get("head_dim") == mapping.get("hidden_size", 0) // mapping["num_attention_heads"]:
        del mapping["head_dim"]
    return mapping


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    Raises:
        ValueError: for missing keys, and values of another type.
    """
    mapping = gguf_keys(metadata, tensors)
    if mapping.get("num_key_value_heads") == mapping["num_attention_heads"]:
        del mapping["num_key_value_heads"]
    mapping["rotary_emb_base"] = mapping.pop("rope_theta", 10000.0)
    parallel = value(metadata, "gptneox.use_parallel_residual", bool, True)
    mapping["rotary_pct"] = mapping.pop("partial_rotary_factor", 1.0)
    mapping["use_parallel_residual"] = parallel
    mapping["attention_bias"] = "blk.0.attn_output.bias" in tensors
    return {"model_type": "gpt_neox", **mapping}


def gguf_tensors(config: LayerNormConfig) -> Tensors:
    """Returns the tensor names of GGUF files, for as many tensors as the checkpoint has."""
    theirs = config.tensors()
    fused = ("attn_qkv", "attn_output")
    return Tensors(
        "blk.{i}.",
        fused if len(theirs.attention) == 2 else ("attn_q", "attn_k", "attn_v", "attn_output"),
        ("attn_norm", "ffn_norm")[: len(theirs.norms)],
        ("ffn_up", "ffn_down"),
        embedding="token_embd",
        norm="output_norm",
        head="output",
        head_norms=("attn_q_norm", "attn_k_norm"),
    )


def gguf_names(config: LayerNormConfig) -> tuple[Row, ...]:
    """Returns the table of names of GGUF files."""
    return rows_of(config, gguf_tensors(config))


# checkpoints of older versions store masks and frequencies as tensors
IGNORED = ("*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq")

#: the parts of the description that decoders with layer normalization share
COMMON: Mapping[str, Any] = FrozenDict(
    {"build": build, "names": names, "adapted": with_head, "files": SENTENCE_FILES}
)
#: sizes of the tiny configurations of decoders with layer normalization
SIZES: Mapping[str, Any] = FrozenDict(
    {
        "vocab_size": 67,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
    }
)
TINY = GPTNeoXConfig(
    **SIZES,
    num_hidden_layers=3,
    intermediate_size=20,
    layer_norm_eps=1e-3,
    rotary_pct=0.5,
    rotary_emb_base=300.0,
    use_parallel_residual=False,
)

FAMILY = Family(
    classes=FrozenDict({"gpt_neox": decoder_classes("GPTNeoX")}),
    config=GPTNeoXConfig,
    modules=_module_names,
    tiny=TINY,
    prefix="gpt_neox.",
    ignored=IGNORED,
    **COMMON,
    gguf=GGUFTable(("gptneox",), gguf_mapping, gguf_names),
)
