"""Llama 4: attention in chunks, blocks without rotary positions, and experts with weighted inputs beside a shared one."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fkeras import layers, ops
from fkeras.authoring.engine import boolean, choice, integer, several
from fkeras.engine import FrozenDict, KerasTensor, Model, option
from fkeras.host.containers.stored import Stored
from fkeras.masks import Causal, Chunk
from fkeras.pretrained.blocks.encoder_blocks import attention
from fkeras.pretrained.blocks.projections import gated_mlp
from fkeras.pretrained.families import llama
from fkeras.pretrained.families.llama import LlamaConfig
from fkeras.pretrained.families.mixtral import check_choice
from fkeras.pretrained.files.gguf import value
from fkeras.pretrained.files.gguf_keys import decoder_keys
from fkeras.pretrained.tables.config import block_types, number, optional_positive, positive
from fkeras.pretrained.tables.decoder_config import FULL
from fkeras.pretrained.tables.decoder_rows import gguf_rows, outer_rows
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row, Split, Stack, Transpose, in_blocks
from fkeras.pretrained.tables.rows import dense_rows
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES

_CHUNKED = "chunked_attention"
_TENSORS, _EXPERTS = "model.layers.{i}.feed_forward.experts.", "block_{i}/experts/"
_PARTS = ("gate", "up", "down")
_GGUF_KEYS = (
    ("num_local_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("intermediate_size", "expert_feed_forward_length"),
    ("intermediate_size_mlp", "feed_forward_length"),
    ("interleave_moe_layer_step", "interleave_moe_layer_step"),
)
_GGUF_NAMES = (
    ("feed_forward.router", "ffn_gate_inp"),
    *((f"feed_forward.experts.{n}_proj", f"ffn_{n}_exps") for n in _PARTS),
    *((f"feed_forward.shared_expert.{n}_proj", f"ffn_{n}_shexp") for n in _PARTS),
    *((f"feed_forward.{n}_proj", f"ffn_{n}") for n in _PARTS),
)
_blocks = several(integer(minimum=0), "numbers of blocks", least=0, optional=True)


class Llama4Config(LlamaConfig):
    """Configuration of the text model of Llama 4; other fields are those of `LlamaConfig`.

    Args:
        intermediate_size: hidden size of an expert and of the shared expert.
        intermediate_size_mlp: hidden size of the MLP of a block without experts.
        num_local_experts: number of experts.
        num_experts_per_tok: number of experts to which the router sends a token.
        moe_layers: indices of the blocks with experts; None to derive them from `interleave_moe_layer_step`.
        interleave_moe_layer_step: n, where every n-th block has experts.
        use_qk_norm: whether queries and keys with rotary positions are divided by their root mean square.
        no_rope_layers: 1 for each block with rotary positions and 0 for each block without; None or an empty list to
            derive the list from `no_rope_layer_interval`.
        no_rope_layer_interval: n, where every n-th block has no rotary positions.
        attention_chunk_size: number of positions of a chunk; tokens of chunked attention attend to their own chunk.
            None for full attention.
        layer_types: "full_attention" or "chunked_attention" for each block; None for chunked attention in the
            blocks with rotary positions.
        attn_temperature_tuning: whether queries at later positions are larger in blocks without rotary positions,
            by the factor `1 + attn_scale * log(1 + floor((position + 1) / floor_scale))`.
        floor_scale: number of positions over which this factor is constant.
        attn_scale: weight of the logarithm.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.Llama4Config(100, 32, 48, 4, 4, num_key_value_heads=2, head_dim=8)
        >>> [config.has_rotary(i) for i in range(4)], config.chunk(0), config.chunk(3)
        ([True, True, True, False], 8192, None)
        >>> fk.pretrained.build(config).layers["block_0"].layers["experts"].num_experts
        16
    """

    model_type: str = option(default="llama4_text", convert=choice("llama4_text"), kw_only=True)
    hidden_act: str = option(
        default="silu",
        convert=choice("silu", "gelu", "relu", hint="Experts have no other activation."),
    )
    intermediate_size_mlp: int = option(default=16384, convert=positive)
    num_local_experts: int = option(default=16, convert=integer(minimum=1, maximum=1024))
    num_experts_per_tok: int = option(default=1, convert=positive)
    moe_layers: tuple[int, ...] | None = option(default=None, convert=_blocks)
    interleave_moe_layer_step: int = option(default=1, convert=positive)
    use_qk_norm: bool = option(default=True, convert=boolean)
    attention_chunk_size: int | None = option(default=8192, convert=optional_positive)
    layer_types: tuple[str, ...] | None = option(default=None, convert=block_types(_CHUNKED, FULL))
    attn_temperature_tuning: bool = option(default=True, convert=boolean)
    floor_scale: int = option(default=8192, convert=positive)
    attn_scale: float = option(default=0.1, convert=number)

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {
            "llama4_text": {
                "vocab_size": 202048,
                "hidden_size": 5120,
                "intermediate_size": 8192,
                "num_hidden_layers": 48,
                "num_attention_heads": 40,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "max_position_embeddings": 131072,
                "rms_norm_eps": 1e-5,
                "rope_theta": 500000.0,
            }
        }
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "llama4_text": (
                *llama.OTHERS,
                "original_max_position_embeddings",
                "mlp_bias",
                "sliding_window",
                "use_sliding_window",
                "max_window_layers",
            )
        }
    )
    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "losses and noise of the router in training": (
                "output_router_logits",
                "router_aux_loss_coef",
                "router_jitter_noise",
            )
        }
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        mapping = dict(super().canonical(mapping))
        if mapping.get("no_rope_layers") in ([], ()):
            del mapping["no_rope_layers"]
        # the first files have the number 4
        if isinstance(mapping.get("attn_temperature_tuning"), int):
            mapping["attn_temperature_tuning"] = bool(mapping["attn_temperature_tuning"])
        return mapping

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(
            self.num_experts_per_tok, self.num_local_experts, "Llama4Config: num_experts_per_tok"
        )
        if self.attention_chunk_size is None and _CHUNKED in (self.layer_types or ()):
            raise ValueError(
                f"Llama4Config: attention_chunk_size: expected a number of positions for layer_types with {_CHUNKED!r}, "
                "received None. Correct config.json."
            )
        if self.head_size % 2:
            raise ValueError(
                f"Llama4Config: head_dim: expected an even number, received {self.head_size}. Correct config.json."
            )

    def has_rotary(self, block: int) -> bool:
        if self.no_rope_layers is not None:
            return bool(self.no_rope_layers[block])
        return (block + 1) % self.no_rope_layer_interval != 0

    def has_experts(self, block: int) -> bool:
        """Returns whether a block has experts."""
        if self.moe_layers is not None:
            return block in self.moe_layers
        return (block + 1) % self.interleave_moe_layer_step == 0

    def chunk(self, block: int) -> int | None:
        """Returns the number of positions of a chunk of a block; None for full attention."""
        if self.layer_types is not None:
            is_chunked = self.layer_types[block] == _CHUNKED
        else:
            is_chunked = self.has_rotary(block)
        return self.attention_chunk_size if is_chunked else None

    def kind(self, block: int) -> tuple[Any, ...]:
        return self.has_rotary(block), self.chunk(block), self.has_experts(block)


def build(config: Llama4Config) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    return llama.decoder(config, _feed_forward, _attention)


def _attention(config: Llama4Config, i: int, x: KerasTensor, positions: KerasTensor) -> KerasTensor:
    chunk = config.chunk(i)
    return attention(
        x,
        config.num_attention_heads,
        config.head_size,
        key_heads=config.key_heads,
        mask=Causal() if chunk is None else Causal() & Chunk(chunk),
        positions=positions,
        bias=config.attention_bias,
        rotary=functools.partial(_turned if config.has_rotary(i) else _tempered, config),
    )


def _turned(
    config: Llama4Config, pair: Sequence[KerasTensor], positions: KerasTensor
) -> Sequence[KerasTensor]:
    """Records query and key with rotary positions."""
    rotary = layers.RotaryEmbedding(
        config.rope_theta, interleaved=True, scaling=config.scaling(), name="rotary"
    )
    query, key = rotary(list(pair), positions)
    if not config.use_qk_norm:
        return query, key
    return [ops.rms_normalization(ops.unmask(x), epsilon=config.rms_norm_eps) for x in (query, key)]


def _tempered(
    config: Llama4Config, pair: Sequence[KerasTensor], positions: KerasTensor
) -> Sequence[KerasTensor]:
    """Records query and key without rotary positions: the query grows with the position."""
    query, key = pair
    if not config.attn_temperature_tuning:
        return query, key
    steps = ops.cast(ops.unmask(positions) + 1, dtype="float32") / config.floor_scale
    factors = 1 + config.attn_scale * ops.log1p(ops.floor(steps))
    # float32, which attention rounds to the compute dtype
    query = ops.cast(ops.unmask(query), dtype="float32") * ops.expand_dims(factors, (-2, -1))
    return query, key


def _feed_forward(config: Llama4Config, i: int, x: KerasTensor) -> KerasTensor:
    if not config.has_experts(i):
        return gated_mlp(x, config.intermediate_size_mlp, config.hidden_act)
    experts = layers.MixtureOfExperts(
        config.num_local_experts,
        config.intermediate_size,
        config.num_experts_per_tok,
        config.hidden_act,
        renormalize=False,
        router="sigmoid",
        weighted_inputs=True,
        name="experts",
    )(x)
    shared = gated_mlp(x, config.intermediate_size, config.hidden_act, prefix="shared_")
    return layers.Add(name="experts_add")([experts, shared])


def names(config: Llama4Config) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    width, kernels = config.intermediate_size, tuple(f"{_EXPERTS}{n}_kernel" for n in _PARTS)
    return _names(
        config,
        Row(f"{_TENSORS}gate_up_proj", kernels[:2], Split((width, width), axis=2)),
        Row(f"{_TENSORS}down_proj", kernels[2]),
    )


def unpacked(config: Llama4Config) -> tuple[Row, ...]:
    """Returns the table of names of quantized folders, which have a tensor for each kernel of each expert."""
    count, stack = config.num_local_experts, Stack(Transpose())
    tensors = {n: f"{_TENSORS}{{e}}.{n}_proj.weight" for n in _PARTS}
    kernels = (Row(tensors[n], f"{_EXPERTS}{n}_kernel", stack, experts=count) for n in _PARTS)
    return _names(config, *kernels)


def _names(config: Llama4Config, *kernels: Row) -> tuple[Row, ...]:
    blocks = range(config.num_hidden_layers)
    b, layer = "model.layers.{i}.feed_forward.", "block_{i}/"
    experts = [Row(f"{b}router.weight", f"{_EXPERTS}router_kernel", Transpose()), *kernels]
    dense = []
    for n in _PARTS:
        experts += dense_rows(f"{b}shared_expert.{n}_proj", f"{layer}shared_{n}", bias=False)
        dense += dense_rows(f"{b}{n}_proj", f"{layer}{n}", bias=False)
    return (
        *outer_rows(config),
        *in_blocks(blocks, *llama.block_rows(config)),
        *in_blocks([i for i in blocks if config.has_experts(i)], *experts),
        *in_blocks([i for i in blocks if not config.has_experts(i)], *dense),
    )


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    llama.cpp has no keys for the blocks without rotary positions, every fourth, for the factors of their queries, and
    for the chunks of 8192 positions in the other blocks.

    Raises:
        ValueError: for missing keys, values of another type, and other attention.
    """
    mapping = decoder_keys(metadata, tensors)
    for name, key in _GGUF_KEYS:
        number = value(metadata, f"llama4.{key}", int)
        if number is None:
            raise ValueError(
                f"expected the key 'llama4.{key}', received none. Convert the model again."
            )
        mapping[name] = number
    # llama.cpp reads any other number than 0 as 8192, and computes sigmoids for all kinds of gates
    window = mapping.pop("sliding_window", 8192)
    pattern = value(metadata, "llama4.attention.sliding_window_pattern", int, 4)
    value(metadata, "llama4.expert_gating_func", int)
    if window == 0 or pattern != 4:
        raise ValueError(
            "expected attention to chunks in three of four blocks, received attention.sliding_window="
            f"{window} and attention.sliding_window_pattern={pattern}. Load the folder of the model."
        )
    # llama.cpp knows the model with 128 experts by their number
    mapping["use_qk_norm"] = mapping["num_local_experts"] != 128
    mapping["attention_bias"] = "blk.0.attn_q.bias" in tensors
    return {"model_type": "llama4_text", **mapping}


def gguf_names(config: Llama4Config) -> tuple[Row, ...]:
    """Returns the table of names of GGUF files, which have gate and up of the experts in two tensors."""
    return gguf_rows(config, unpacked(config), _GGUF_NAMES)


TINY = Llama4Config(
    vocab_size=67,
    hidden_size=24,
    intermediate_size=12,
    intermediate_size_mlp=20,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    max_position_embeddings=64,
    rms_norm_eps=1e-3,
    rope_theta=300.0,
    num_local_experts=4,
    moe_layers=(0, 2),
    no_rope_layers=(1, 0, 1),
    attention_chunk_size=5,
    floor_scale=3,
    attn_scale=0.5,
)

FAMILY = Family(
    classes=FrozenDict({"llama4_text": ("Llama4ForCausalLM", "Llama4TextModel")}),
    config=Llama4Config,
    build=build,
    names=names,
    unpacked=unpacked,
    tiny=TINY,
    prefix="model.",
    ignored=("*.rotary_emb.inv_freq",),
    adapted=llama.adapted,
    files=SENTENCE_FILES,
    gguf=GGUFTable(("llama4",), gguf_mapping, gguf_names, ("rope_freqs.weight",)),
)
