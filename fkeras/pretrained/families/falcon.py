"""Falcon: rotary positions or ALiBi, layer normalization, and one tensor with queries and keys in groups of a key head."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras.authoring.engine import boolean, choice, integer
from fkeras.engine import FrozenDict, option
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.families import gpt_neox
from fkeras.pretrained.families.gpt_neox import Blocks, LayerNormConfig, Tensors, rotary, share
from fkeras.pretrained.tables.config import (
    check_heads,
    count,
    factor,
    optional_positive,
    positive,
)
from fkeras.pretrained.tables.decoder_config import rotary_scaling
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.names import Row


def _slopes(heads: int) -> tuple[float, ...]:
    """Returns the slopes of ALiBi: powers of a base, and odd powers of its root for heads beyond a power of 2."""
    known = 2 ** int(math.log2(heads))
    base = 2.0 ** -(8 / known)
    more = [base ** (power / 2) for power in range(1, 2 * (heads - known), 2)]
    return (*(base**power for power in range(1, known + 1)), *more)


class FalconConfig(LayerNormConfig):
    """Configuration of Falcon: the fields are the keys of `config.json`.

    Args:
        ffn_hidden_size: hidden size of the MLP; None for `4 * hidden_size`.
        activation: activation of the MLP.
        layer_norm_epsilon: epsilon of the layer normalizations.
        bias: whether the projections of attention and MLP have biases.
        multi_query: whether all heads share one key head.
        parallel_attn: whether the MLP reads the input of the block, instead of its sum with the output of
            attention.
        new_decoder_architecture: whether the blocks are those of Falcon 40B and 11B: parallel, with
            `num_kv_heads` key heads.
        num_kv_heads: number of key and value heads of the new architecture; None for the number of query
            heads.
        num_ln_in_parallel_attn: number of normalizations in a block of the new architecture; None for 2.
        alibi: whether attention scores grow with the position of the key (ALiBi), instead of rotary positions. Each
            query head then needs its key head.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.FalconConfig(100, 32, 2, 4)
        >>> fk.pretrained.build(config).layers["block_0"].layers["key"].output_shape
        (None, 1, 8)
    """

    model_type: str = option(default="falcon", convert=choice("falcon"), kw_only=True)
    vocab_size: int = option(default=65024, convert=positive)
    hidden_size: int = option(default=4544, convert=positive)
    num_hidden_layers: int = option(default=32, convert=count)
    num_attention_heads: int = option(default=71, convert=positive)
    tie_word_embeddings: bool = option(default=True, convert=boolean)
    ffn_hidden_size: int | None = option(default=None, convert=optional_positive)
    activation: str = option(default="gelu", convert=activation_name)
    layer_norm_epsilon: float = option(default=1e-5, convert=factor)
    bias: bool = option(default=False, convert=boolean)
    multi_query: bool = option(default=True, convert=boolean)
    parallel_attn: bool = option(default=True, convert=boolean)
    new_decoder_architecture: bool = option(default=False, convert=boolean)
    num_kv_heads: int | None = option(default=None, convert=optional_positive)
    num_ln_in_parallel_attn: int | None = option(
        default=None, convert=integer(minimum=1, maximum=2, optional=True)
    )
    alibi: bool = option(default=False, convert=boolean)
    rope_theta: float = option(default=10000.0, convert=factor)
    partial_rotary_factor: float = option(default=1.0, convert=share)
    rope_scaling: FrozenDict[Any] | None = option(default=None, convert=rotary_scaling)

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"rope_parameters": ("rope_theta", "rope_scaling", "partial_rotary_factor")}
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"falcon": ("partial_rotary_factor",)}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_kv_heads is not None:
            check_heads(self, "num_kv_heads", "num_attention_heads")
        if self.alibi and self.key_heads != self.num_attention_heads:
            raise ValueError(
                "FalconConfig: alibi: expected False for query heads that share a key head, received True. fkeras "
                "has ALiBi for models with multi_query=False, such as Falcon RW."
            )
        new = self.new_decoder_architecture
        for name, is_supported in (
            ("parallel_attn", self.parallel_attn or not new),
            ("num_ln_in_parallel_attn", new or self.num_ln_in_parallel_attn != 2),
            ("num_kv_heads", new or self.multi_query or self.key_heads == self.num_attention_heads),
        ):
            if not is_supported:
                raise ValueError(
                    f"FalconConfig: {name}: received {getattr(self, name)}, which transformers does not compute "
                    f"with new_decoder_architecture={new}. Correct config.json."
                )

    @property
    def key_heads(self) -> int:
        """Number of key and value heads."""
        if self.multi_query and not self.new_decoder_architecture:
            return 1
        return self.num_kv_heads or self.num_attention_heads

    @property
    def has_two_norms(self) -> bool:
        """Whether attention and MLP have their own normalizations."""
        if self.new_decoder_architecture:
            return self.num_ln_in_parallel_attn != 1
        return not self.parallel_attn

    def blocks(self) -> Blocks:
        base, scaling, most = self.rope_theta, self.rope_scaling, self.max_position_embeddings
        return Blocks(
            self.ffn_hidden_size or 4 * self.hidden_size,
            self.activation,
            self.layer_norm_epsilon,
            self.key_heads,
            bias=self.bias,
            mlp_bias=self.bias,
            rotary=None if self.alibi else rotary(base, scaling, most),
            slopes=_slopes(self.num_attention_heads) if self.alibi else (),
            parallel=self.parallel_attn,
            shared_norm=not self.has_two_norms,
        )

    def tensors(self) -> Tensors:
        norms = ("input_layernorm", "post_attention_layernorm")
        if self.new_decoder_architecture and self.has_two_norms:
            norms = ("ln_attn", "ln_mlp")
        return Tensors(
            "transformer.h.{i}.",
            ("self_attention.query_key_value", "self_attention.dense"),
            norms if self.has_two_norms else norms[:1],
            ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
            embedding="transformer.word_embeddings",
            norm="transformer.ln_f",
            head="lm_head",
            token_classifier="classifier",
            groups=self.key_heads,
        )


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    Raises:
        ValueError: for missing keys, and values of another type.
    """
    mapping = gpt_neox.gguf_keys(metadata, tensors)
    key_heads = mapping.pop("num_key_value_heads", 1)
    # llama.cpp has no keys for these: every Falcon of a GGUF file is parallel and without biases
    has_two = "blk.0.attn_norm_2.weight" in tensors
    if has_two or key_heads > 1:
        mapping |= {"new_decoder_architecture": True, "num_kv_heads": key_heads}
        mapping["num_ln_in_parallel_attn"] = 1 + has_two
    for theirs, ours in (
        ("layer_norm_eps", "layer_norm_epsilon"),
        ("intermediate_size", "ffn_hidden_size"),
    ):
        if theirs in mapping:
            mapping[ours] = mapping.pop(theirs)
    return {"model_type": "falcon", **mapping}


def gguf_names(config: FalconConfig) -> tuple[Row, ...]:
    """Returns the table of names of GGUF files."""
    tensors = gpt_neox.gguf_tensors(config)
    if config.has_two_norms:
        tensors = tensors._replace(norms=("attn_norm_2", "attn_norm"))
    return gpt_neox.rows_of(config, tensors)


TINY = FalconConfig(
    **gpt_neox.SIZES,
    num_hidden_layers=2,
    tie_word_embeddings=False,
    ffn_hidden_size=20,
    layer_norm_epsilon=1e-3,
    new_decoder_architecture=True,
    num_kv_heads=2,
    rope_theta=300.0,
)

FAMILY = Family(
    classes=FrozenDict({"falcon": decoder_classes("Falcon")}),
    config=FalconConfig,
    tiny=TINY,
    prefix="transformer.",
    ignored=gpt_neox.IGNORED,
    **gpt_neox.COMMON,
    gguf=GGUFTable(("falcon",), gguf_mapping, gguf_names),
)
