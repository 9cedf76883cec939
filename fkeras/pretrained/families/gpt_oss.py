"""gpt-oss: attention with sinks, windows in every second block, and experts with biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras import layers
from fkeras.authoring.engine import boolean, choice, integer
from fkeras.engine import FrozenDict, KerasTensor, Model, option
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.families import llama
from fkeras.pretrained.families.llama import LlamaConfig
from fkeras.pretrained.families.mixtral import check_choice, check_experts
from fkeras.pretrained.files.gguf import value
from fkeras.pretrained.files.gguf_keys import decoder_keys
from fkeras.pretrained.tables.config import epsilon, factor, positive
from fkeras.pretrained.tables.decoder_config import FULL, SLIDING
from fkeras.pretrained.tables.decoder_rows import gguf_rows, outer_rows
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row, Split, Transpose, in_blocks
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES

_YARN = FrozenDict(
    {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    }
)
_GGUF_KEYS = (
    ("num_local_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("intermediate_size", "expert_feed_forward_length"),
)
_GGUF_NAMES = (
    ("self_attn.sinks", "attn_sinks.weight"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("mlp.router.", "ffn_gate_inp."),
)


class GptOssConfig(LlamaConfig):
    """Configuration of gpt-oss; other fields are those of `LlamaConfig`.

    Args:
        num_local_experts: number of experts.
        num_experts_per_tok: number of experts to which the router sends a token.
        swiglu_limit: bound of the hidden numbers of an expert.
        swiglu_alpha: factor in the sigmoid of the gate.
        layer_types: "sliding_attention" or "full_attention" for each block; None for "sliding_attention" in the
            blocks 0, 2, 4, ...
        output_router_logits: whether training adds the load balancing loss.
        router_aux_loss_coef: factor of the load balancing loss.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.GptOssConfig(100, 32, 48, 2, 4, num_key_value_heads=2, head_dim=8)
        >>> config.window(0), config.window(1), config.rope_scaling["factor"]
        (128, None, 32.0)
    """

    model_type: str = option(default="gpt_oss", convert=choice("gpt_oss"), kw_only=True)
    hidden_act: str = option(
        default="silu", convert=choice("silu", hint="Experts have no other activation.")
    )
    num_local_experts: int = option(default=128, convert=integer(minimum=1, maximum=1024))
    num_experts_per_tok: int = option(default=4, convert=positive)
    swiglu_limit: float = option(default=7.0, convert=factor)
    swiglu_alpha: float = option(default=1.702, convert=factor)
    output_router_logits: bool = option(default=False, convert=boolean)
    router_aux_loss_coef: float = option(default=0.001, convert=epsilon)

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {**LlamaConfig.aliases, "num_experts": ("num_local_experts",)}
    )
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {
            "gpt_oss": {
                "vocab_size": 201088,
                "hidden_size": 2880,
                "intermediate_size": 2880,
                "num_hidden_layers": 36,
                "num_attention_heads": 64,
                "num_key_value_heads": 8,
                "head_dim": 64,
                "max_position_embeddings": 131072,
                "rms_norm_eps": 1e-5,
                "rope_theta": 150000.0,
                "rope_scaling": _YARN,
                "attention_bias": True,
                "sliding_window": 128,
            }
        }
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "gpt_oss": (
                *llama.OTHERS,
                "mlp_bias",
                "use_sliding_window",
                "max_window_layers",
                "no_rope_layers",
                "no_rope_layer_interval",
            )
        }
    )
    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "copies of other keys for other programs": (
                "experts_per_token",
                "initial_context_length",
            )
        }
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        # null stands for the scaling of the class, {"rope_type": "default"} for none
        scaled = mapping.get("rope_scaling") is not None
        kept = {key: value for key, value in mapping.items() if scaled or key != "rope_scaling"}
        mapping = dict(super().canonical(kept))
        check_experts(cls.__name__, mapping)
        if "num_experts" in mapping:
            mapping["num_local_experts"] = mapping.pop("num_experts")
        return mapping

    def write(self) -> dict[str, Any]:
        mapping = super().write()
        if self.rope_scaling is None and mapping.get("rope_scaling", ...) is None:
            mapping["rope_scaling"] = {"rope_type": "default"}
        return mapping

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(
            self.num_experts_per_tok, self.num_local_experts, "GptOssConfig: num_experts_per_tok"
        )

    @property
    def has_sinks(self) -> bool:
        return True

    def window(self, block: int) -> int | None:
        types = self.layer_types
        kind = (SLIDING, FULL)[block % 2] if types is None else types[block]
        return self.sliding_window if kind == SLIDING else None


def build(config: GptOssConfig) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    return llama.decoder(config, _experts)


def _experts(config: GptOssConfig, i: int, x: KerasTensor) -> KerasTensor:
    return layers.MixtureOfExperts(
        config.num_local_experts,
        config.intermediate_size,
        config.num_experts_per_tok,
        config.hidden_act,
        load_balancing=config.router_aux_loss_coef if config.output_router_logits else 0.0,
        use_bias=True,
        limit=config.swiglu_limit,
        gate_scale=config.swiglu_alpha,
        up_offset=1.0,
        name="experts",
    )(x)


def names(config: GptOssConfig) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    m, layer, width = "model.layers.{i}.mlp.", "block_{i}/experts/", config.intermediate_size
    rows = [
        Row("model.layers.{i}.self_attn.sinks", "block_{i}/attention/sinks"),
        Row(f"{m}router.weight", f"{layer}router_kernel", Transpose()),
        Row(f"{m}router.bias", f"{layer}logit_bias"),
        Row(f"{m}experts.down_proj", f"{layer}down_kernel"),
        Row(f"{m}experts.down_proj_bias", f"{layer}down_bias"),
    ]
    # columns of gate and up by turns
    for theirs, ours, axis in (("", "kernel", 2), ("_bias", "bias", 1)):
        paths = (f"{layer}gate_{ours}", f"{layer}up_{ours}")
        operation = Split((width, width), axis, groups=width)
        rows.append(Row(f"{m}experts.gate_up_proj{theirs}", paths, operation))
    blocks = range(config.num_hidden_layers)
    return (*outer_rows(config), *in_blocks(blocks, *llama.block_rows(config), *rows))


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    Raises:
        ValueError: for missing keys, and values of another type.
    """
    mapping = decoder_keys(metadata, tensors)
    keys = {name: value(metadata, f"gpt-oss.{key}", int) for name, key in _GGUF_KEYS}
    mapping |= {name: number for name, number in keys.items() if number is not None}
    scaling = mapping.get("rope_scaling", {"rope_type": "default"})
    # llama.cpp has no key for the ends of the ramp
    more = {"truncate": False} if scaling["rope_type"] == "yarn" else {}
    mapping["rope_scaling"] = {**scaling, **more}
    mapping["attention_bias"] = "blk.0.attn_q.bias" in tensors
    return {"model_type": "gpt_oss", **mapping}


def gguf_names(config: GptOssConfig) -> tuple[Row, ...]:
    """Returns the table of names of GGUF files, which have gate and up of the experts in two tensors."""
    rows = [row for row in names(config) if "experts" not in row.tensors]
    blocks, layer = range(config.num_hidden_layers), "block_{i}/experts/"
    for part in ("gate", "up", "down"):
        tensor = f"model.layers.{{i}}.ffn_{part}_exps."
        kernel = Row(f"{tensor}weight", f"{layer}{part}_kernel", Transpose())
        rows += in_blocks(blocks, kernel, Row(f"{tensor}bias", f"{layer}{part}_bias"))
    return gguf_rows(config, rows, _GGUF_NAMES)


TINY = GptOssConfig(
    vocab_size=67,
    hidden_size=24,
    intermediate_size=12,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=10,
    max_position_embeddings=64,
    rms_norm_eps=1e-3,
    rope_theta=300.0,
    sliding_window=6,
    num_local_experts=5,
    num_experts_per_tok=2,
    swiglu_limit=0.5,
)

FAMILY = Family(
    classes=FrozenDict({"gpt_oss": decoder_classes("GptOss", answers=False)}),
    config=GptOssConfig,
    build=build,
    names=names,
    tiny=TINY,
    prefix="model.",
    ignored=("*.rotary_emb.inv_freq",),
    adapted=llama.adapted,
    files=SENTENCE_FILES,
    gguf=GGUFTable(("gpt-oss",), gguf_mapping, gguf_names),
)
