"""Mixtures of experts: Mixtral, Qwen 2 MoE and Qwen 3 MoE, which are Llama with other feed-forward networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras import layers
from fkeras.authoring.engine import boolean, choice, integer, several
from fkeras.engine import FrozenDict, KerasTensor, Model, option
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.blocks.projections import gated_mlp
from fkeras.pretrained.families import llama
from fkeras.pretrained.families.llama import LlamaConfig
from fkeras.pretrained.files.gguf import value
from fkeras.pretrained.files.gguf_keys import decoder_keys
from fkeras.pretrained.tables.config import epsilon, positive
from fkeras.pretrained.tables.decoder_rows import answer_rows, gguf_rows, outer_rows
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row, Stack, Transpose, in_blocks
from fkeras.pretrained.tables.rows import dense_rows
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES

# a table of names has one entry for each expert of each block
_experts = integer(minimum=1, maximum=1024)
# files of Qwen 3 have 0, which transformers does not read
_shared = integer(minimum=0, maximum=2**31 - 1)
_blocks = several(integer(minimum=0), "numbers of blocks", least=0)
_GGUF_KEYS = (
    ("num_local_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
)
_GGUF_NAMES = (
    ("block_sparse_moe.experts.w1", "ffn_gate_exps"),
    ("block_sparse_moe.experts.w3", "ffn_up_exps"),
    ("block_sparse_moe.experts.w2", "ffn_down_exps"),
    ("block_sparse_moe.gate.", "ffn_gate_inp."),
    ("mlp.experts.gate_proj", "ffn_gate_exps"),
    ("mlp.experts.up_proj", "ffn_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.gate.", "ffn_gate_inp."),
)
# the kernels of an expert
_PARTS = ("gate", "up", "down")


def check_experts(where: str, mapping: Mapping[str, Any]) -> None:
    """Raises an error for two names of the number of experts with different values."""
    experts = [mapping[n] for n in ("num_experts", "num_local_experts") if n in mapping]
    if len({*map(str, experts)}) == 2:
        raise ValueError(
            f"{where}: num_local_experts: expected the value of num_experts, {str(experts[0])[:80]}, received "
            f"{str(experts[1])[:80]}. Remove one of the two keys from config.json."
        )


def check_choice(chosen: int, experts: int, where: str) -> None:
    """Raises an error for a token that goes to more experts than there are."""
    if chosen > experts:
        raise ValueError(
            f"{where}: expected at most the number of experts, {experts}, received {chosen}. Correct config.json."
        )


class MixtralConfig(LlamaConfig):
    """Configuration of Mixtral, Qwen 2 MoE and Qwen 3 MoE; other fields are those of `LlamaConfig`.

    Args:
        model_type: "mixtral", "qwen2_moe" or "qwen3_moe"; keyword only.
        num_local_experts: number of experts; `num_experts` in the `config.json` of Qwen.
        num_experts_per_tok: number of experts to which the router sends a token.
        norm_topk_prob: whether Qwen divides the router probabilities of the selected experts by their sum;
            Mixtral always does.
        moe_intermediate_size: hidden size of an expert in Qwen; Mixtral uses `intermediate_size`.
        shared_expert_intermediate_size: hidden size of the shared expert in Qwen 2.
        decoder_sparse_step: n, where every n-th block of Qwen has experts; other blocks have one MLP.
        mlp_only_layers: indices of the blocks of Qwen that have one MLP.
        output_router_logits: whether training adds the load balancing loss.
        router_aux_loss_coef: factor of the load balancing loss.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.MixtralConfig(num_local_experts=4, num_experts_per_tok=1)
        >>> config.has_experts(0), config.model_type
        (True, 'mixtral')
    """

    model_type: str = option(
        default="mixtral", convert=choice("mixtral", "qwen2_moe", "qwen3_moe"), kw_only=True
    )
    hidden_act: str = option(
        default="silu",
        convert=choice("silu", "gelu", "relu", hint="Experts have no other activation."),
    )
    num_local_experts: int = option(default=8, convert=_experts)
    num_experts_per_tok: int = option(default=2, convert=positive)
    norm_topk_prob: bool = option(default=False, convert=boolean)
    moe_intermediate_size: int = option(default=1408, convert=positive)
    shared_expert_intermediate_size: int = option(default=5632, convert=_shared)
    decoder_sparse_step: int = option(default=1, convert=positive)
    mlp_only_layers: tuple[int, ...] = option(default=(), convert=_blocks)
    output_router_logits: bool = option(default=False, convert=boolean)
    router_aux_loss_coef: float = option(default=0.001, convert=epsilon)

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            **LlamaConfig.aliases,
            "num_experts": ("num_local_experts",),
            "qkv_bias": ("attention_bias",),
        }
    )
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {
            "mixtral": {
                "intermediate_size": 14336,
                "num_key_value_heads": 8,
                "max_position_embeddings": 131072,
                "rms_norm_eps": 1e-5,
                "rope_theta": 1e6,
            },
            "qwen2_moe": {
                "attention_bias": True,
                "vocab_size": 151936,
                "hidden_size": 2048,
                "intermediate_size": 5632,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "max_position_embeddings": 32768,
                "sliding_window": 4096,
                "num_experts_per_tok": 4,
                "num_local_experts": 60,
            },
            "qwen3_moe": {
                "vocab_size": 151936,
                "hidden_size": 2048,
                "intermediate_size": 6144,
                "num_hidden_layers": 24,
                "num_attention_heads": 32,
                "num_key_value_heads": 4,
                "max_position_embeddings": 32768,
                "sliding_window": 4096,
                "moe_intermediate_size": 768,
                "num_experts_per_tok": 8,
                "num_local_experts": 128,
            },
        }
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "mixtral": llama.OTHERS,
            "qwen2_moe": llama.OTHERS,
            "qwen3_moe": (*llama.OTHERS, "layer_types"),
        }
    )
    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "noise of the router in training": ("router_jitter_noise",),
            "the norms of Qwen 3, which the model type names; transformers does not read the key": (
                "use_qk_norm",
            ),
        }
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        mapping = dict(super().canonical(mapping))
        # transformers ignores the second name in models of type "qwen2_moe"
        if mapping.get("model_type") != "qwen2_moe":
            check_experts(cls.__name__, mapping)
        for theirs, ours in (("num_experts", "num_local_experts"), ("qkv_bias", "attention_bias")):
            if theirs in mapping:
                mapping[ours] = mapping.pop(theirs)
        if mapping.get("mlp_only_layers", ()) is None:
            del mapping["mlp_only_layers"]
        return mapping

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(
            self.num_experts_per_tok, self.num_local_experts, "MixtralConfig: num_experts_per_tok"
        )
        if self.has_shared_expert and not self.shared_expert_intermediate_size:
            raise ValueError(
                "MixtralConfig: shared_expert_intermediate_size: expected at least 1 for the shared expert of Qwen "
                "2, received 0. Correct config.json."
            )

    def write(self) -> dict[str, Any]:
        mapping = super().write()
        if self.source or self.model_type != "qwen2_moe":
            return mapping
        # transformers ignores the other names in models of this type
        names = {"num_local_experts": "num_experts", "attention_bias": "qkv_bias"}
        return {names.get(key, key): value for key, value in mapping.items()}

    @property
    def is_qwen(self) -> bool:
        """Whether the model is a Qwen MoE."""
        return self.model_type != "mixtral"

    @property
    def has_shared_expert(self) -> bool:
        """Whether blocks with experts also have a shared expert."""
        return self.model_type == "qwen2_moe"

    @property
    def head_norms(self) -> bool:
        return self.model_type == "qwen3_moe"

    @property
    def output_bias(self) -> bool:
        return self.attention_bias and not self.has_shared_expert

    def has_experts(self, block: int) -> bool:
        """Returns whether a block has experts."""
        if not self.is_qwen:
            return True
        return block not in self.mlp_only_layers and (block + 1) % self.decoder_sparse_step == 0

    def kind(self, block: int) -> tuple[Any, ...]:
        return (*super().kind(block), self.has_experts(block))

    def window(self, block: int) -> int | None:
        if not self.is_qwen:
            return self.sliding_window
        if not self.use_sliding_window:
            return None
        if self.layer_types is not None:
            is_sliding = self.layer_types[block] == "sliding_attention"
        else:
            is_sliding = self.head_norms or (block % 2 == 0 and block < self.max_window_layers)
        return self.sliding_window if is_sliding else None


def build(config: MixtralConfig) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    return llama.decoder(config, _feed_forward)


def _feed_forward(config: MixtralConfig, i: int, x: KerasTensor) -> KerasTensor:
    if not config.has_experts(i):
        return llama.plain_mlp(config, i, x)
    experts = layers.MixtureOfExperts(
        config.num_local_experts,
        config.moe_intermediate_size if config.is_qwen else config.intermediate_size,
        config.num_experts_per_tok,
        config.hidden_act,
        config.norm_topk_prob or not config.is_qwen,
        config.router_aux_loss_coef if config.output_router_logits else 0.0,
        name="experts",
    )(x)
    if not config.has_shared_expert:
        return experts
    hidden = config.shared_expert_intermediate_size
    shared = gated_mlp(x, hidden, config.hidden_act, prefix="shared_")
    weight = layers.Dense(1, "sigmoid", use_bias=False, name="shared_weight")(x)
    shared = layers.Multiply(name="shared_weighted")([weight, shared])
    return layers.Add(name="experts_add")([experts, shared])


def names(config: MixtralConfig) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    blocks = range(config.num_hidden_layers)
    with_experts = [i for i in blocks if config.has_experts(i)]
    without = [i for i in blocks if not config.has_experts(i)]
    b = "model.layers.{i}." + ("mlp." if config.is_qwen else "block_sparse_moe.")
    tensors = ("gate_proj", "up_proj", "down_proj") if config.is_qwen else ("w1", "w3", "w2")
    layer = "block_{i}/experts"
    rows = [Row(f"{b}gate.weight", f"{layer}/router_kernel", Transpose())]
    rows += [
        Row(
            f"{b}experts.{{e}}.{theirs}.weight",
            f"{layer}/{ours}_kernel",
            Stack(Transpose()),
            experts=config.num_local_experts,
        )
        for theirs, ours in zip(tensors, _PARTS, strict=True)
    ]
    if config.has_shared_expert:
        rows += dense_rows(f"{b}shared_expert_gate", "block_{i}/shared_weight", bias=False)
        rows += _mlp_rows(f"{b}shared_expert.", "block_{i}/shared_")
    rows = (
        *outer_rows(config),
        *in_blocks(blocks, *llama.block_rows(config)),
        *in_blocks(without, *_mlp_rows("model.layers.{i}.mlp.", "block_{i}/")),
        *in_blocks(with_experts, *rows),
    )
    return answer_rows(config, rows)


def _mlp_rows(prefix: str, layer: str) -> list[Row]:
    return [
        row for n in _PARTS for row in dense_rows(f"{prefix}{n}_proj", f"{layer}{n}", bias=False)
    ]


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    Raises:
        ValueError: for missing keys, and values of another type.
    """
    architecture = metadata["general.architecture"]
    mapping = decoder_keys(metadata, tensors)
    keys = {key: value(metadata, f"{architecture}.{key}", int) for _, key in _GGUF_KEYS}
    mapping |= {name: keys[key] for name, key in _GGUF_KEYS if keys[key] is not None}
    mapping["attention_bias"] = "blk.0.attn_q.bias" in tensors
    if architecture == "llama":
        return {"model_type": "mixtral", **mapping}
    blocks = range(min(mapping["num_hidden_layers"], len(tensors)))
    mapping["mlp_only_layers"] = [
        i for i in blocks if f"blk.{i}.ffn_gate_inp.weight" not in tensors
    ]
    # llama.cpp has no key for this: the architecture determines the value
    mapping["norm_topk_prob"] = architecture == "qwen3moe"
    return {"model_type": architecture.replace("moe", "_moe"), **mapping}


def gguf_names(config: MixtralConfig) -> tuple[Row, ...]:
    """Returns the table of names of GGUF files."""
    return gguf_rows(config, names(config), _GGUF_NAMES)


TINY = MixtralConfig(
    model_type="qwen2_moe",
    vocab_size=67,
    hidden_size=24,
    intermediate_size=28,
    moe_intermediate_size=12,
    shared_expert_intermediate_size=18,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    rms_norm_eps=1e-3,
    rope_theta=300.0,
    attention_bias=True,
    num_local_experts=6,
    mlp_only_layers=(1,),
    use_sliding_window=True,
    sliding_window=6,
    max_window_layers=1,
)

FAMILY = Family(
    classes=FrozenDict(
        {
            "mixtral": decoder_classes("Mixtral"),
            "qwen2_moe": decoder_classes("Qwen2Moe"),
            "qwen3_moe": decoder_classes("Qwen3Moe"),
        }
    ),
    config=MixtralConfig,
    build=build,
    names=names,
    tiny=TINY,
    prefix="model.",
    ignored=("*.rotary_emb.inv_freq",),
    adapted=llama.adapted,
    files=SENTENCE_FILES,
    # GGUF files of Mixtral have the architecture "llama"; `family_of_gguf` finds Mixtral by the experts
    gguf=GGUFTable(("mixtral", "qwen2moe", "qwen3moe"), gguf_mapping, gguf_names),
)
