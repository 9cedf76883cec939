"""StarCoder 2: layer normalization, grouped queries, sliding attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras.authoring.engine import boolean, choice
from fkeras.engine import FrozenDict, option
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.families import gpt_neox
from fkeras.pretrained.families.gpt_neox import Blocks, LayerNormConfig, Tensors, rotary, share
from fkeras.pretrained.tables.config import check_heads, count, factor, optional_positive, positive
from fkeras.pretrained.tables.decoder_config import rotary_scaling
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.inert_keys import Reasons


class Starcoder2Config(LayerNormConfig):
    """Configuration of StarCoder 2: the fields are the keys of `config.json`.

    Args:
        norm_epsilon: epsilon of the layer normalizations.
        use_bias: whether the projections of attention and MLP have biases.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.Starcoder2Config(100, 32, 2, 4, intermediate_size=48)
        >>> fk.pretrained.build(config).layers["block_0"].layers["key"].output_shape
        (None, 2, 8)
    """

    model_type: str = option(default="starcoder2", convert=choice("starcoder2"), kw_only=True)
    vocab_size: int = option(default=49152, convert=positive)
    hidden_size: int = option(default=3072, convert=positive)
    num_hidden_layers: int = option(default=30, convert=count)
    num_attention_heads: int = option(default=24, convert=positive)
    max_position_embeddings: int = option(default=4096, convert=positive)
    tie_word_embeddings: bool = option(default=True, convert=boolean)
    intermediate_size: int = option(default=12288, convert=positive)
    num_key_value_heads: int = option(default=2, convert=positive)
    hidden_act: str = option(default="gelu_pytorch_tanh", convert=activation_name)
    norm_epsilon: float = option(default=1e-5, convert=factor)
    use_bias: bool = option(default=True, convert=boolean)
    sliding_window: int | None = option(default=None, convert=optional_positive)
    rope_theta: float = option(default=10000.0, convert=factor)
    partial_rotary_factor: float = option(default=1.0, convert=share)
    rope_scaling: FrozenDict[Any] | None = option(default=None, convert=rotary_scaling)

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"rope_parameters": ("rope_theta", "rope_scaling", "partial_rotary_factor")}
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"starcoder2": ("partial_rotary_factor",)}
    )
    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "regularization in training": ("residual_dropout", "embedding_dropout"),
            "keys of the pretraining; transformers does not read the keys": (
                "activation_function",
                "attention_softmax_in_fp32",
                "layer_norm_epsilon",
                "mlp_type",
                "norm_type",
                "scale_attention_softmax_in_fp32",
                "scale_attn_weights",
            ),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "num_key_value_heads", "num_attention_heads")

    def blocks(self) -> Blocks:
        return Blocks(
            self.intermediate_size,
            self.hidden_act,
            self.norm_epsilon,
            self.num_key_value_heads,
            bias=self.use_bias,
            mlp_bias=self.use_bias,
            rotary=rotary(self.rope_theta, self.rope_scaling, self.max_position_embeddings),
            window=self.sliding_window,
        )

    def tensors(self) -> Tensors:
        return Tensors(
            "model.layers.{i}.",
            tuple(f"self_attn.{name}_proj" for name in "qkvo"),
            ("input_layernorm", "post_attention_layernorm"),
            ("mlp.c_fc", "mlp.c_proj"),
            embedding="model.embed_tokens",
            norm="model.norm",
            head="lm_head",
        )


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    Raises:
        ValueError: for missing keys, and values of another type.
    """
    mapping = gpt_neox.gguf_keys(metadata, tensors)
    mapping["norm_epsilon"] = mapping.pop("layer_norm_eps", 1e-5)
    return {
        "model_type": "starcoder2",
        "use_bias": "blk.0.attn_q.bias" in tensors,
        **mapping,
    }


TINY = Starcoder2Config(
    **gpt_neox.SIZES,
    num_hidden_layers=2,
    tie_word_embeddings=False,
    intermediate_size=20,
    num_key_value_heads=1,
    hidden_act="relu",
    norm_epsilon=1e-3,
    use_bias=False,
    sliding_window=5,
    rope_theta=300.0,
)

FAMILY = Family(
    classes=FrozenDict({"starcoder2": decoder_classes("Starcoder2", answers=False)}),
    config=Starcoder2Config,
    tiny=TINY,
    prefix="model.",
    ignored=gpt_neox.IGNORED,
    **gpt_neox.COMMON,
    gguf=GGUFTable(("starcoder2",), gguf_mapping, gpt_neox.gguf_names),
)
