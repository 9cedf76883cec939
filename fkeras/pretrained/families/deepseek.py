"""DeepSeek V2 and V3: latent attention, and experts beside shared experts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras import layers, ops
from fkeras.authoring.engine import boolean, choice, integer
from fkeras.engine import FrozenDict, KerasTensor, Model, option
from fkeras.pretrained.blocks.encoder_blocks import causal
from fkeras.pretrained.blocks.projections import from_heads, gated_mlp, to_heads
from fkeras.pretrained.families import llama
from fkeras.pretrained.families.llama import LlamaConfig
from fkeras.pretrained.families.mixtral import check_choice
from fkeras.pretrained.tables.config import factor, optional_positive, positive
from fkeras.pretrained.tables.decoder_config import with_head
from fkeras.pretrained.tables.decoder_rows import outer_rows
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import (
    HeadBias,
    Heads,
    HeadsIn,
    Row,
    Same,
    Split,
    Stack,
    Transpose,
    in_blocks,
)
from fkeras.pretrained.tables.rows import dense_rows
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES

# transformers has no key for the epsilon of the normalizations of latent vectors
_EPSILON = 1e-6
_PARTS = ("gate", "up", "down")


class DeepseekConfig(LlamaConfig):
    """Configuration of DeepSeek V2 and V3; other fields are those of `LlamaConfig`.

    Args:
        q_lora_rank: size of the latent vector of the queries; None for queries of the hidden state.
        kv_lora_rank: size of the latent vector of keys and values.
        qk_nope_head_dim: number of channels of a query or key head without rotary positions.
        qk_rope_head_dim: number of channels with rotary positions, which all key heads share.
        v_head_dim: size of a value head.
        first_k_dense_replace: number of the first blocks, which have one MLP instead of experts.
        n_routed_experts: number of experts.
        n_shared_experts: number of experts that all tokens use, as one MLP.
        num_experts_per_tok: number of experts to which the router sends a token.
        moe_intermediate_size: hidden size of an expert.
        routed_scaling_factor: factor of the output of the experts.
        topk_method: "greedy" to choose from all experts of V2, "group_limited_greedy" to choose from `topk_group`
            groups; "noaux_tc" in V3, which has no other method.
        n_group: number of groups of experts.
        topk_group: number of groups from which a token chooses its experts.
        scoring_func: "softmax" in V2, "sigmoid" in V3.
        norm_topk_prob: whether V3 divides the probabilities of the selected experts by their sum.
        rope_interleave: whether V3 turns adjacent channels together, as V2 does, instead of the two halves.
        moe_layer_freq: only 1; transformers ignores the key.
        num_nextn_predict_layers: number of blocks after the others, which predict several tokens. As in transformers
            they are not computed: their tensors are not read.

    Example:
        >>> import fkeras as fk
        >>> sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 6}
        >>> config = fk.pretrained.DeepseekConfig(100, 32, 48, 2, 4, **sizes, q_lora_rank=None)
        >>> fk.pretrained.build(config).layers["block_0"].layers["key_rotary"].output_shape
        (None, 1, 4)
    """

    model_type: str = option(
        default="deepseek_v2", convert=choice("deepseek_v2", "deepseek_v3"), kw_only=True
    )
    hidden_act: str = option(
        default="silu",
        convert=choice("silu", "gelu", "relu", hint="Experts have no other activation."),
    )
    q_lora_rank: int | None = option(default=1536, convert=optional_positive)
    kv_lora_rank: int = option(default=512, convert=positive)
    qk_nope_head_dim: int = option(default=128, convert=positive)
    qk_rope_head_dim: int = option(default=64, convert=integer(minimum=2, maximum=2**31 - 2))
    v_head_dim: int = option(default=128, convert=positive)
    first_k_dense_replace: int = option(default=0, convert=integer(minimum=0))
    n_routed_experts: int = option(default=64, convert=integer(minimum=1, maximum=1024))
    n_shared_experts: int = option(default=2, convert=positive)
    num_experts_per_tok: int = option(default=6, convert=positive)
    moe_intermediate_size: int = option(default=1407, convert=positive)
    routed_scaling_factor: float = option(default=1.0, convert=factor)
    topk_method: str = option(
        default="greedy",
        convert=choice("greedy", "group_limited_greedy", "noaux_tc"),
    )
    n_group: int | None = option(default=None, convert=optional_positive)
    topk_group: int | None = option(default=None, convert=optional_positive)
    rope_interleave: bool = option(default=True, convert=boolean)
    scoring_func: str = option(default="softmax", convert=choice("softmax", "sigmoid"))
    norm_topk_prob: bool = option(default=False, convert=boolean)
    moe_layer_freq: int = option(default=1, convert=positive)
    num_nextn_predict_layers: int | None = option(
        default=0, convert=integer(minimum=0, maximum=100, optional=True)
    )

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {
            "deepseek_v2": {"vocab_size": 102400},
            "deepseek_v3": {
                "vocab_size": 129280,
                "hidden_size": 7168,
                "intermediate_size": 18432,
                "num_hidden_layers": 61,
                "num_attention_heads": 128,
                "max_position_embeddings": 4096,
                "first_k_dense_replace": 3,
                "n_routed_experts": 256,
                "n_shared_experts": 1,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 2048,
                "routed_scaling_factor": 2.5,
                "topk_method": "noaux_tc",
                "scoring_func": "sigmoid",
                "norm_topk_prob": True,
                "n_group": 8,
                "topk_group": 4,
            },
        }
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "deepseek_v2": (
                *llama.OTHERS,
                "head_dim",
                "layer_types",
                "scoring_func",
                "norm_topk_prob",
                "moe_layer_freq",
                "rope_interleave",
            ),
            "deepseek_v3": (
                *llama.OTHERS,
                "head_dim",
                "layer_types",
                "mlp_bias",
                "scoring_func",
                "topk_method",
                "moe_layer_freq",
            ),
        }
    )
    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "losses in training": ("aux_loss_alpha", "seq_aux", "output_router_logits"),
            "the number of shards of the pretraining": ("ep_size",),
            "the sum of two other keys": ("qk_head_dim",),
            "blocks that predict several tokens, which transformers does not compute": (
                "num_mtp_layers",
            ),
        }
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        # transformers writes the number of channels that rotate under this name too
        is_copy = mapping.get("head_dim") == mapping.get("qk_rope_head_dim", cls.qk_rope_head_dim)
        kept = {key: value for key, value in mapping.items() if key != "head_dim" or not is_copy}
        return super().canonical(kept)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_heads != self.num_attention_heads:
            raise ValueError(
                f"DeepseekConfig: num_key_value_heads: expected num_attention_heads={self.num_attention_heads}, "
                f"since latent vectors give each head its keys, received {self.key_heads}. Correct config.json."
            )
        check_choice(
            self.num_experts_per_tok, self.n_routed_experts, "DeepseekConfig: num_experts_per_tok"
        )
        allowed = ("noaux_tc",) if self.is_third else ("greedy", "group_limited_greedy")
        if self.topk_method not in allowed:
            raise ValueError(
                f"DeepseekConfig: topk_method: expected one of {', '.join(allowed)} in models of type "
                f"{self.model_type!r}, received {self.topk_method!r}. Correct config.json."
            )
        groups, chosen = self.groups
        size = self.n_routed_experts // groups
        if self.n_routed_experts % groups or (self.is_third and groups > 1 and size < 2):
            raise ValueError(
                f"DeepseekConfig: n_group: expected a divisor of n_routed_experts={self.n_routed_experts}, with at "
                f"least two experts in a group of V3, received {groups}. Correct config.json."
            )
        if chosen > groups or self.num_experts_per_tok > chosen * size:
            raise ValueError(
                f"DeepseekConfig: topk_group: expected at most n_group={groups}, with at least "
                f"num_experts_per_tok={self.num_experts_per_tok} experts together, received {chosen} groups of "
                f"{size} experts. Correct config.json."
            )
        if self.qk_rope_head_dim % 2:
            raise ValueError(
                "DeepseekConfig: qk_rope_head_dim: expected an even number, received "
                f"{self.qk_rope_head_dim}. Correct config.json."
            )

    @property
    def scale(self) -> float:
        """Scale of the attention scores."""
        scale = (self.qk_nope_head_dim + self.qk_rope_head_dim) ** -0.5
        scaling = self.rope_scaling or {}
        weight, growth = scaling.get("mscale_all_dim") or 0, scaling.get("factor", 1)
        return scale * (0.1 * weight * math.log(max(growth, 1)) + 1) ** 2 if weight else scale

    @property
    def is_third(self) -> bool:
        """Whether the model is DeepSeek V3."""
        return self.model_type == "deepseek_v3"

    @property
    def groups(self) -> tuple[int, int]:
        """Number of groups of experts, and number of those from which a token chooses."""
        if self.topk_method == "greedy":
            return 1, 1
        groups = self.n_group or 1
        return groups, groups if self.topk_group is None else self.topk_group

    def has_experts(self, block: int) -> bool:
        """Returns whether a block has experts."""
        return block >= self.first_k_dense_replace

    def kind(self, block: int) -> tuple[Any, ...]:
        return (self.has_experts(block),)


def build(config: DeepseekConfig) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    return llama.decoder(config, _feed_forward, _attention)


def _attention(
    config: DeepseekConfig, i: int, x: KerasTensor, positions: KerasTensor
) -> KerasTensor:
    heads, rotating, bias = (
        config.num_attention_heads,
        config.qk_rope_head_dim,
        config.attention_bias,
    )

    def latent(size: int, name: str) -> KerasTensor:
        y = layers.Dense(size, use_bias=bias, name=name)(x)
        return layers.RMSNormalization(epsilon=_EPSILON, name=f"{name}_norm")(y)

    source = x if config.q_lora_rank is None else latent(config.q_lora_rank, "query_latent")
    query = to_heads(source, heads, config.qk_nope_head_dim, "query")
    query_rotary = to_heads(source, heads, rotating, "query_rotary")
    source = latent(config.kv_lora_rank, "latent")
    key = to_heads(source, heads, config.qk_nope_head_dim, "key")
    value = to_heads(source, heads, config.v_head_dim, "value")
    key_rotary = to_heads(x, 1, rotating, "key_rotary", bias=bias, role="kv_heads")
    rotary = layers.RotaryEmbedding(
        config.rope_theta,
        interleaved=config.rope_interleave,
        scaling=config.scaling(),
        name="rotary",
    )
    query_rotary, key_rotary = rotary([query_rotary, key_rotary], positions)
    query = layers.Concatenate(name="query_parts")([query, query_rotary])
    key = layers.Concatenate(name="key_parts")(
        [key, ops.repeat(ops.unmask(key_rotary), heads, axis=2)]
    )
    attend = layers.DotProductAttention(causal(None), scale=config.scale, name="attention")
    return from_heads(attend(query, key, value, positions), config.hidden_size, bias=bias)


def _feed_forward(config: DeepseekConfig, i: int, x: KerasTensor) -> KerasTensor:
    if not config.has_experts(i):
        return llama.plain_mlp(config, i, x)
    groups, top_groups = config.groups
    experts = layers.MixtureOfExperts(
        config.n_routed_experts,
        config.moe_intermediate_size,
        config.num_experts_per_tok,
        config.hidden_act,
        renormalize=config.is_third and config.norm_topk_prob,
        router="sigmoid" if config.is_third else "softmax",
        corrected=config.is_third,
        groups=groups,
        top_groups=top_groups,
        name="experts",
    )(x)
    if config.routed_scaling_factor != 1.0:
        experts = layers.Rescaling(config.routed_scaling_factor, name="experts_scale")(experts)
    width = config.moe_intermediate_size * config.n_shared_experts
    shared = gated_mlp(x, width, config.hidden_act, bias=config.mlp_bias, prefix="shared_")
    return layers.Add(name="experts_add")([experts, shared])


def names(config: DeepseekConfig) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    blocks = range(config.num_hidden_layers)
    b, m, layer = "model.layers.{i}.self_attn.", "model.layers.{i}.mlp.", "block_{i}/"
    bias = config.attention_bias
    rows = [
        Row("model.layers.{i}.input_layernorm.weight", f"{layer}attention_norm/scale"),
        Row("model.layers.{i}.post_attention_layernorm.weight", f"{layer}mlp_norm/scale"),
        Row(f"{b}kv_a_layernorm.weight", f"{layer}latent_norm/scale"),
        *_latent_rows(config),
        _fused_row(config, f"{b}kv_b_proj", ("key", "value"), config.v_head_dim),
        *dense_rows(
            f"{b}o_proj",
            f"{layer}output",
            bias,
            HeadsIn(config.num_attention_heads, config.v_head_dim),
        ),
    ]
    parts, rotating = ("query", "query_rotary"), config.qk_rope_head_dim
    if config.q_lora_rank is None:
        rows.append(_fused_row(config, f"{b}q_proj", parts, rotating))
    else:
        rows += dense_rows(f"{b}q_a_proj", f"{layer}query_latent", bias)
        rows.append(Row(f"{b}q_a_layernorm.weight", f"{layer}query_latent_norm/scale"))
        rows.append(_fused_row(config, f"{b}q_b_proj", parts, rotating))
    experts = [Row(f"{m}gate.weight", f"{layer}experts/router_kernel", Transpose())]
    if config.is_third:
        experts.append(Row(f"{m}gate.e_score_correction_bias", f"{layer}experts/router_bias"))
    dense = []
    for n in _PARTS:
        kernel, stack = f"{layer}experts/{n}_kernel", Stack(Transpose())
        tensor = f"{m}experts.{{e}}.{n}_proj.weight"
        experts.append(Row(tensor, kernel, stack, experts=config.n_routed_experts))
        shared = f"{m}shared_experts.{n}_proj"
        experts += dense_rows(shared, f"{layer}shared_{n}", config.mlp_bias)
        dense += dense_rows(f"{m}{n}_proj", f"{layer}{n}", config.mlp_bias)
    return (
        *outer_rows(config),
        *in_blocks(blocks, *rows),
        *in_blocks([i for i in blocks if config.has_experts(i)], *experts),
        *in_blocks([i for i in blocks if not config.has_experts(i)], *dense),
    )


def _latent_rows(config: DeepseekConfig) -> list[Row]:
    """Returns the rows of the latent vector and of the rotating channels of the keys, in one tensor."""
    size = config.qk_rope_head_dim
    sizes, tensor = (config.kv_lora_rank, size), "model.layers.{i}.self_attn.kv_a_proj_with_mqa"
    rows = []
    for theirs, ours, then in (
        ("weight", "kernel", (Transpose(), Heads(1, size))),
        ("bias", "bias", (Same(), HeadBias(1, size))),
    ):
        paths = (f"block_{{i}}/latent/{ours}", f"block_{{i}}/key_rotary/{ours}")
        rows.append(Row(f"{tensor}.{theirs}", paths, Split(sizes, then=then)))
    return rows[: 1 + config.attention_bias]


def _fused_row(config: DeepseekConfig, tensor: str, parts: tuple[str, str], last: int) -> Row:
    """Returns the row of two projections whose rows go head by head; `last` is the size of the second."""
    heads, sizes = config.num_attention_heads, (config.qk_nope_head_dim, last)
    operation = Split(
        tuple(heads * size for size in sizes),
        then=tuple(Heads(heads, size) for size in sizes),
        groups=heads,
    )
    return Row(f"{tensor}.weight", tuple(f"block_{{i}}/{n}/kernel" for n in parts), operation)


def _unused(config: DeepseekConfig) -> tuple[str, ...]:
    first = config.num_hidden_layers
    blocks = range(first, first + (config.num_nextn_predict_layers or 0))
    return tuple(f"{prefix}layers.{i}.*" for i in blocks for prefix in ("model.", ""))


TINY = DeepseekConfig(
    vocab_size=67,
    hidden_size=24,
    intermediate_size=28,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=64,
    rms_norm_eps=1e-3,
    rope_theta=300.0,
    attention_bias=True,
    q_lora_rank=10,
    kv_lora_rank=12,
    qk_nope_head_dim=6,
    qk_rope_head_dim=4,
    v_head_dim=8,
    first_k_dense_replace=1,
    n_routed_experts=5,
    num_experts_per_tok=2,
    moe_intermediate_size=12,
    routed_scaling_factor=2.5,
)

FAMILY = Family(
    classes=FrozenDict(
        {
            "deepseek_v2": decoder_classes("DeepseekV2", tokens=False, answers=False),
            "deepseek_v3": decoder_classes("DeepseekV3", answers=False),
        }
    ),
    config=DeepseekConfig,
    build=build,
    names=names,
    tiny=TINY,
    prefix="model.",
    ignored=("*.rotary_emb.inv_freq",),
    unused=_unused,
    adapted=with_head,
    files=SENTENCE_FILES,
)
