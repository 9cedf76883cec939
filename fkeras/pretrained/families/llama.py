"""Llama and close variants: Mistral, SmolLM 2 and 3, Qwen 2 and 3, Phi 3, Gemma 1, OLMo 2, Granite."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, TypeVar

from fkeras import layers
from fkeras.authoring.engine import boolean, choice, integer, real, several
from fkeras.engine import FrozenDict, Input, KerasTensor, Model, option
from fkeras.host.containers.stored import Stored
from fkeras.pretrained.blocks import rope
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.blocks.encoder_blocks import attention, causal
from fkeras.pretrained.blocks.heads import decoder_inputs, decoder_outputs
from fkeras.pretrained.blocks.projections import gated_mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.files.gguf import value
from fkeras.pretrained.files.gguf_keys import decoder_keys, single
from fkeras.pretrained.tables.config import factor, optional_positive, positive
from fkeras.pretrained.tables.decoder_config import SLIDING, DecoderConfig, with_head
from fkeras.pretrained.tables.decoder_rows import (
    answer_rows,
    gguf_rows,
    outer_rows,
    self_attention_rows,
    with_offset,
)
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import HeadsIn, Row, in_blocks
from fkeras.pretrained.tables.rows import dense_rows, fused_attention_rows, fused_mlp_rows
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES

_rotating = several(integer(minimum=0, maximum=1), "a list of 0 and 1", least=0, optional=True)
_TYPES = (
    "llama",
    "mistral",
    "smollm3",
    "qwen2",
    "qwen3",
    "phi3",
    "gemma",
    "olmo2",
    "granite",
)
# factors of Granite, and their keys in GGUF files
_FACTORS = FrozenDict(
    {
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "attention_multiplier": "attention.scale",
        "logits_scaling": "logit_scale",
    }
)
#: fields of Phi 3 and Granite that other architectures do not have
OTHERS = ("partial_rotary_factor", *_FACTORS)
_GGUF_POST_NORMS = (
    ("post_attention_layernorm", "post_attention_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
)


class LlamaConfig(DecoderConfig):
    """Configuration of Llama, Mistral, SmolLM 2 and 3, Qwen 2 and 3, Phi 3, Gemma 1, OLMo 2 and Granite.

    The fields are the keys of `config.json`. The defaults are those of Llama, or of the architecture that
    `model_type` names.

    Args:
        original_max_position_embeddings: context length of the pretraining, in Phi 3.
        partial_rotary_factor: fraction of the channels of a head that rotate.
        attention_bias: whether the projections to queries, keys and values have biases; so has the
            output projection, except in Qwen 2.
        mlp_bias: whether the projections of the MLP have biases.
        use_sliding_window: whether Qwen and SmolLM 3 have sliding attention.
        max_window_layers: first block with sliding attention, in Qwen.
        no_rope_layers: 1 for each block with rotary positions and 0 for each block without, in
            SmolLM 3; None to derive the list from `no_rope_layer_interval`.
        no_rope_layer_interval: n, where every n-th block has no rotary positions, in SmolLM 3.
        embedding_multiplier: factor of the embeddings, in Granite.
        residual_multiplier: factor of the outputs of attention and MLP, in Granite.
        attention_multiplier: scale of the attention scores, in Granite.
        logits_scaling: divisor of the logits, in Granite.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.LlamaConfig(100, 32, 48, 2, 4, num_key_value_heads=2)
        >>> config.head_size, fk.pretrained.build(config).layers["block_0"].layers["query"].output_shape
        (8, (None, 4, 8))
        >>> fk.pretrained.LlamaConfig(model_type="qwen2").attention_bias
        True
    """

    model_type: str = option(default="llama", convert=choice(*_TYPES), kw_only=True)
    hidden_act: str = option(default="silu", convert=activation_name)
    original_max_position_embeddings: int | None = option(default=None, convert=optional_positive)
    partial_rotary_factor: float = option(default=1.0, convert=real(above=0, maximum=1))
    mlp_bias: bool = option(default=False, convert=boolean)
    use_sliding_window: bool = option(default=False, convert=boolean)
    max_window_layers: int = option(default=28, convert=integer(minimum=0))
    no_rope_layers: tuple[int, ...] | None = option(default=None, convert=_rotating)
    no_rope_layer_interval: int = option(default=4, convert=positive)
    embedding_multiplier: float = option(default=1.0, convert=factor, kw_only=True)
    residual_multiplier: float = option(default=1.0, convert=factor, kw_only=True)
    attention_multiplier: float = option(default=1.0, convert=factor, kw_only=True)
    logits_scaling: float = option(default=1.0, convert=factor, kw_only=True)

    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            **dict.fromkeys(_TYPES, OTHERS),
            "phi3": tuple(_FACTORS),
            "granite": ("partial_rotary_factor",),
        }
    )
    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "slices of the pretraining; transformers computes whole products": ("pretraining_tp",),
            "a copy of `max_position_embeddings` in the first files": ("max_sequence_length",),
            "transformers reads `hidden_act` instead": ("hidden_activation",),
            "notes of the training; transformers does not read the keys": (
                "is_llama_config",
                "full_attn_mod",
                "interpolate_factor",
            ),
        }
    )
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"rope_parameters": ("rope_theta", "rope_scaling", "partial_rotary_factor")}
    )
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {
            "mistral": {
                "intermediate_size": 14336,
                "num_key_value_heads": 8,
                "max_position_embeddings": 131072,
                "sliding_window": 4096,
            },
            "qwen2": {
                "vocab_size": 151936,
                "intermediate_size": 22016,
                "num_key_value_heads": 32,
                "max_position_embeddings": 32768,
                "attention_bias": True,
                "sliding_window": 4096,
            },
            "qwen3": {
                "vocab_size": 151936,
                "intermediate_size": 22016,
                "num_key_value_heads": 32,
                "head_dim": 128,
                "max_position_embeddings": 32768,
                "sliding_window": 4096,
            },
            "smollm3": {
                "vocab_size": 128256,
                "hidden_size": 2048,
                "num_hidden_layers": 36,
                "num_attention_heads": 16,
                "num_key_value_heads": 4,
                "max_position_embeddings": 32768,
                "rope_theta": 2000000.0,
                "tie_word_embeddings": True,
                "pad_token_id": 128004,
            },
            "phi3": {
                "vocab_size": 32064,
                "hidden_size": 3072,
                "intermediate_size": 8192,
                "max_position_embeddings": 4096,
                "original_max_position_embeddings": 4096,
                "rms_norm_eps": 1e-5,
                "pad_token_id": 32000,
            },
            "gemma": {
                "vocab_size": 256000,
                "hidden_size": 3072,
                "intermediate_size": 24576,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "head_dim": 256,
                "hidden_act": "gelu_pytorch_tanh",
                "max_position_embeddings": 8192,
                "tie_word_embeddings": True,
                "pad_token_id": 0,
            },
            "olmo2": {"vocab_size": 50304, "rms_norm_eps": 1e-5, "pad_token_id": 1},
        }
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        return rope.flat(super().canonical(mapping))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.no_rope_layers is not None and len(self.no_rope_layers) < self.num_hidden_layers:
            raise ValueError(
                f"{type(self).__name__}: no_rope_layers: expected 0 or 1 for each of "
                f"{self.num_hidden_layers} blocks, received {len(self.no_rope_layers)} numbers. Correct "
                "config.json."
            )
        self.scaling()

    def scaling(self) -> layers.rotary.Scaling | None:
        """Returns the scaling of the rotary frequencies."""
        original = self.original_max_position_embeddings
        return rope.scaling_of(self.rope_scaling, self.max_position_embeddings, original)

    @property
    def output_bias(self) -> bool:
        return self.attention_bias and self.model_type != "qwen2"

    @property
    def head_norms(self) -> bool:
        return self.model_type in ("qwen3", "olmo2")

    @property
    def joint_norms(self) -> bool:
        return self.post_norms

    @property
    def post_norms(self) -> bool:
        """Whether the outputs of attention and MLP are normalized instead of the inputs."""
        return self.model_type == "olmo2"

    @property
    def scale_offset(self) -> float:
        """Number that is added to the norm scales."""
        return 1.0 if self.model_type == "gemma" else 0.0

    @property
    def embedding_scale(self) -> float:
        """Factor of the embeddings."""
        return self.hidden_size**0.5 if self.model_type == "gemma" else self.embedding_multiplier

    @property
    def activation(self) -> str:
        """Activation of the MLP."""
        # the first files of Gemma name the approximation so
        is_renamed = self.model_type == "gemma" and self.hidden_act == "gelu"
        return "gelu_pytorch_tanh" if is_renamed else self.hidden_act

    @property
    def has_sinks(self) -> bool:
        """Whether each head of attention has a sink."""
        return False

    @property
    def fused(self) -> bool:
        """Whether query, key and value are one tensor of the checkpoint, and gate and up another."""
        return self.model_type == "phi3"

    def has_rotary(self, block: int) -> bool:
        """Returns whether a block has rotary positions."""
        if self.model_type != "smollm3":
            return True
        if self.no_rope_layers is not None:
            return bool(self.no_rope_layers[block])
        return (block + 1) % self.no_rope_layer_interval != 0

    def kind(self, block: int) -> tuple[Any, ...]:
        """Returns the properties in which blocks differ; blocks of one kind have equal layers."""
        return self.has_rotary(block), self.window(block)

    def window(self, block: int) -> int | None:
        """Returns the window of a block; None for full attention."""
        if self.model_type in ("mistral", "phi3"):
            return self.sliding_window
        if self.model_type in ("llama", "gemma", "olmo2", "granite"):
            return None
        if self.model_type == "smollm3" and self.layer_types is not None:
            # `use_sliding_window` chooses the types only where the file has none
            return self.sliding_window if self.layer_types[block] == SLIDING else None
        if not self.use_sliding_window:
            return None
        if self.layer_types is not None:
            is_sliding = self.layer_types[block] == SLIDING
        elif self.model_type == "smollm3":
            is_sliding = not self.has_rotary(block)
        else:
            is_sliding = block >= self.max_window_layers
        return self.sliding_window if is_sliding else None


C = TypeVar("C", bound=LlamaConfig)


def build(config: LlamaConfig) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    return decoder(config, plain_mlp)


def decoder(
    config: LlamaConfig,
    feed_forward: Callable[[Any, int, KerasTensor], KerasTensor],
    attend: Callable[[Any, int, KerasTensor, KerasTensor], KerasTensor] | None = None,
) -> Model:
    """Returns the graph of a decoder whose blocks have attention and a feed-forward network.

    Args:
        feed_forward: records the feed-forward network; takes the configuration, the index of the block
            and the normalized hidden states.
        attend: records attention; takes also the positions. None for the attention of Llama.
    """
    inputs = decoder_inputs(config)
    positions = layers.Positions(name="positions")(*inputs)
    embedding = layers.ReversibleEmbedding(
        config.vocab_size,
        config.hidden_size,
        tie_weights=config.tie_word_embeddings or "causal" not in config.parts,
        name="embedding",
    )
    x = _scaled(embedding(inputs[0]), config.embedding_scale, "embedding_scale")
    kinds = map(config.kind, range(config.num_hidden_layers))
    for block in repeated(lambda i: _block(config, i, feed_forward, attend), kinds):
        x = block([x, positions])
    x, scale = _norm(config, "norm")(x), 1 / config.logits_scaling
    last = None if scale == 1.0 else layers.Rescaling(scale, name="logits_scale")
    outputs = decoder_outputs(config, x, inputs[0], positions, embedding, last)
    return Model(inputs, outputs, name=config.model_type)


def _norm(config: LlamaConfig, name: str) -> layers.RMSNormalization:
    # OLMo 2 normalizes all heads together
    axis = (-2, -1) if config.joint_norms and name in ("query_norm", "key_norm") else -1
    return layers.RMSNormalization(
        axis, epsilon=config.rms_norm_eps, scale_offset=config.scale_offset, name=name
    )


def _scaled(x: KerasTensor, scale: float, name: str) -> KerasTensor:
    return x if scale == 1.0 else layers.Rescaling(scale, name=name)(x)


def _block(
    config: LlamaConfig,
    i: int,
    feed_forward: Callable[..., KerasTensor],
    attend: Callable[..., KerasTensor] | None,
) -> Model:
    x = Input((None, config.hidden_size), name="x")
    positions = Input((None,), dtype="int32", name="positions")
    attend = attend or _attention
    y = _residual(config, "attention", x, lambda x: attend(config, i, x, positions))
    y = _residual(config, "mlp", y, lambda x: feed_forward(config, i, x))
    return Model([x, positions], y)


def _residual(
    config: LlamaConfig, part: str, x: KerasTensor, function: Callable[[KerasTensor], KerasTensor]
) -> KerasTensor:
    """Records `x + function(norm(x))`, or `x + norm(function(x))` in OLMo 2."""
    if config.post_norms:
        y = _norm(config, f"{part}_post_norm")(function(x))
    else:
        y = function(_norm(config, f"{part}_norm")(x))
    y = _scaled(y, config.residual_multiplier, f"{part}_scale")
    return layers.Add(name=f"{part}_add")([x, y])


def plain_mlp(config: LlamaConfig, block: int, x: KerasTensor) -> KerasTensor:
    """Returns the output of the gated MLP of a block."""
    return gated_mlp(x, config.intermediate_size, config.activation, bias=config.mlp_bias)


def _attention(config: LlamaConfig, i: int, x: KerasTensor, positions: KerasTensor) -> KerasTensor:
    rotary = layers.RotaryEmbedding(
        max_wavelength=config.rope_theta,
        partial=config.partial_rotary_factor,
        scaling=config.scaling(),
        name="rotary",
    )
    return attention(
        x,
        config.num_attention_heads,
        config.head_size,
        key_heads=config.key_heads,
        mask=causal(config.window(i)),
        positions=positions,
        bias=config.attention_bias,
        output_bias=config.output_bias,
        rotary=rotary if config.has_rotary(i) else None,
        head_norm=functools.partial(_norm, config) if config.head_norms else None,
        scale=config.attention_multiplier if config.model_type == "granite" else None,
        sinks=config.has_sinks,
    )


def names(config: LlamaConfig) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    b, bias = "model.layers.{i}.mlp.", config.mlp_bias
    width, parts = config.intermediate_size, ("down",) if config.fused else ("gate", "up", "down")
    rows = [row for n in parts for row in dense_rows(f"{b}{n}_proj", f"block_{{i}}/{n}", bias)]
    if config.fused:
        rows += fused_mlp_rows(f"{b}gate_up_proj.", "block_{i}/", width, bias)
    rows = in_blocks(range(config.num_hidden_layers), *block_rows(config), *rows)
    return answer_rows(config, (*outer_rows(config), *rows))


def block_rows(config: LlamaConfig) -> tuple[Row, ...]:
    """Returns the rows of a block except those of its feed-forward network."""
    b = "model.layers.{i}."
    tensors, end = ("input_layernorm", "post_attention_layernorm"), "norm"
    if config.post_norms:
        tensors, end = ("post_attention_layernorm", "post_feedforward_layernorm"), "post_norm"
    rows = tuple(
        Row(f"{b}{tensor}.weight", f"block_{{i}}/{part}_{end}/scale")
        for tensor, part in zip(tensors, ("attention", "mlp"), strict=True)
    )
    if not config.fused:
        return (*rows, *self_attention_rows(config))
    n = config.num_attention_heads, config.head_size
    bias = config.attention_bias
    a = f"{b}self_attn."
    return (
        *rows,
        *fused_attention_rows(f"{a}qkv_proj.", "block_{i}/", *n, config.key_heads, bias),
        *dense_rows(f"{a}o_proj", "block_{i}/output", config.output_bias, HeadsIn(*n)),
    )


def adapted(config: C, tensors: Collection[str]) -> C:
    """Returns the configuration with the head of the checkpoint, and with biases where it has biases.

    Raises:
        ValueError: for a causal head without weights whose configuration does not tie the embeddings.
    """
    config = with_head(config, tensors)
    is_untied = "causal" in config.parts and not config.tie_word_embeddings
    if is_untied and "lm_head.weight" not in tensors:
        raise ValueError(
            "this checkpoint has no causal head: lm_head.weight is missing, and tie_word_embeddings is "
            "false. Set tie_word_embeddings to true in config.json if the embeddings are the head, or "
            "architectures to a class without head for the hidden states, such as LlamaModel."
        )
    return dataclasses.replace(
        config,
        attention_bias=any(n.endswith("layers.0.self_attn.q_proj.bias") for n in tensors),
        mlp_bias=any(n.endswith("layers.0.mlp.down_proj.bias") for n in tensors),
    )


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    Raises:
        ValueError: for missing keys, and values of another type.
    """
    mapping = decoder_keys(metadata, tensors)
    model_type = str(metadata["general.architecture"])
    if model_type == "llama" and "sliding_window" in mapping:
        model_type = "mistral"  # llama.cpp uses the same architecture name
    elif model_type.startswith("qwen") and "sliding_window" in mapping:
        mapping |= {"use_sliding_window": True, "max_window_layers": 0}
    if model_type == "phi3":
        original = value(metadata, "phi3.rope.scaling.original_context_length", int)
        mapping["original_max_position_embeddings"] = original or mapping["max_position_embeddings"]
    if model_type == "granite":
        width = mapping.get("hidden_size", 0) // mapping["num_attention_heads"]
        size = mapping.get("head_dim") or width or 1
        for name, key in _FACTORS.items():
            # llama.cpp takes 0 for no factor
            default = size**-0.5 if name == "attention_multiplier" else 1.0
            mapping[name] = single(value(metadata, f"granite.{key}", float) or default)
    mapping["attention_bias"] = "blk.0.attn_q.bias" in tensors
    mapping["mlp_bias"] = "blk.0.ffn_down.bias" in tensors
    return {"model_type": model_type, **mapping}


def gguf_names(config: LlamaConfig) -> tuple[Row, ...]:
    """Returns the table of names of GGUF files."""
    rows = gguf_rows(config, names(config), _GGUF_POST_NORMS if config.post_norms else ())
    return with_offset(rows, config.scale_offset)


TINY = LlamaConfig(
    vocab_size=67,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=10,
    max_position_embeddings=64,
    rms_norm_eps=1e-4,
    rope_theta=500.0,
    rope_scaling=FrozenDict(
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    ),
    attention_bias=True,
    mlp_bias=True,
)

FAMILY = Family(
    classes=FrozenDict(
        {
            "llama": decoder_classes("Llama"),
            "mistral": decoder_classes("Mistral"),
            "smollm3": decoder_classes("SmolLM3"),
            "qwen2": decoder_classes("Qwen2"),
            "qwen3": decoder_classes("Qwen3"),
            "phi3": decoder_classes("Phi3", answers=False),
            "gemma": decoder_classes("Gemma", answers=False),
            "olmo2": decoder_classes("Olmo2", tokens=False, answers=False),
            "granite": decoder_classes("Granite", texts=False, tokens=False, answers=False),
        }
    ),
    config=LlamaConfig,
    build=build,
    names=names,
    tiny=TINY,
    prefix="model.",
    ignored=("*.rotary_emb.inv_freq",),
    adapted=adapted,
    files=SENTENCE_FILES,
    gguf=GGUFTable(
        architectures=tuple(kind for kind in _TYPES if kind != "mistral"),
        mapping=gguf_mapping,
        names=gguf_names,
        ignored=("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"),
    ),
)
