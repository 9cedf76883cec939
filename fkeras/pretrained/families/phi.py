"""Phi 1 to 2: attention and MLP beside each other after one normalization, a bias of the logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras.authoring.engine import boolean, choice
from fkeras.engine import FrozenDict, option
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.families import gpt_neox
from fkeras.pretrained.families.gpt_neox import Blocks, LayerNormConfig, Tensors, rotary, share
from fkeras.pretrained.tables.config import check_heads, factor, optional_positive, positive
from fkeras.pretrained.tables.decoder_config import rotary_scaling
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.heads import decoder_classes


class PhiConfig(LayerNormConfig):
    """Configuration of Phi 1, 1.5 and 2: the fields are the keys of `config.json`.

    Args:
        num_key_value_heads: number of key and value heads; None for the number of query heads.
        qk_layernorm: whether queries and keys are normalized, head by head.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.PhiConfig(100, 32, 2, 4, intermediate_size=48)
        >>> "head_bias" in fk.pretrained.build(config).layers, config.partial_rotary_factor
        (True, 0.5)
    """

    model_type: str = option(default="phi", convert=choice("phi"), kw_only=True)
    vocab_size: int = option(default=51200, convert=positive)
    intermediate_size: int = option(default=8192, convert=positive)
    num_key_value_heads: int | None = option(default=None, convert=optional_positive)
    hidden_act: str = option(default="gelu_new", convert=activation_name)
    layer_norm_eps: float = option(default=1e-5, convert=factor)
    qk_layernorm: bool = option(default=False, convert=boolean)
    rope_theta: float = option(default=10000.0, convert=factor)
    partial_rotary_factor: float = option(default=0.5, convert=share)
    rope_scaling: FrozenDict[Any] | None = option(default=None, convert=rotary_scaling)

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"rope_parameters": ("rope_theta", "rope_scaling", "partial_rotary_factor")}
    )
    head_bias: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_key_value_heads is not None:
            check_heads(self, "num_key_value_heads", "num_attention_heads")

    def blocks(self) -> Blocks:
        base, scaling, most = self.rope_theta, self.rope_scaling, self.max_position_embeddings
        return Blocks(
            self.intermediate_size,
            self.hidden_act,
            self.layer_norm_eps,
            self.num_key_value_heads or self.num_attention_heads,
            rotary=rotary(base, scaling, most, self.partial_rotary_factor),
            parallel=True,
            shared_norm=True,
            head_norms=self.qk_layernorm,
        )

    def tensors(self) -> Tensors:
        return Tensors(
            "model.layers.{i}.",
            tuple(f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "dense")),
            ("input_layernorm",),
            ("mlp.fc1", "mlp.fc2"),
            embedding="model.embed_tokens",
            norm="model.final_layernorm",
            head="lm_head",
            head_norms=("self_attn.q_layernorm", "self_attn.k_layernorm"),
        )


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    Raises:
        ValueError: for missing keys, and values of another type.
    """
    keys = gpt_neox.gguf_keys(metadata, tensors)
    return {"model_type": "phi", "partial_rotary_factor": 1.0, **keys}


TINY = PhiConfig(
    **gpt_neox.SIZES,
    num_hidden_layers=2,
    tie_word_embeddings=True,
    intermediate_size=20,
    num_key_value_heads=2,
    qk_layernorm=True,
    layer_norm_eps=1e-3,
    rope_theta=300.0,
    partial_rotary_factor=0.75,
)

FAMILY = Family(
    classes=FrozenDict({"phi": decoder_classes("Phi", answers=False)}),
    config=PhiConfig,
    tiny=TINY,
    prefix="model.",
    ignored=gpt_neox.IGNORED,
    **gpt_neox.COMMON,
    gguf=GGUFTable(("phi2",), gguf_mapping, gpt_neox.gguf_names),
)
