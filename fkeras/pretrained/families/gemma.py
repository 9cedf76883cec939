"""Gemma 2 and 3: norms before and after attention and MLP, sliding attention, norm scales stored minus 1."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras import layers
from fkeras.authoring.engine import OptionalInteger, boolean, choice, describe_value
from fkeras.engine import FrozenDict, Input, KerasTensor, Model, option
from fkeras.host.containers.stored import Stored
from fkeras.masks import Causal, Mask, Window
from fkeras.pretrained.blocks import rope
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.blocks.encoder_blocks import attention
from fkeras.pretrained.blocks.heads import decoder_inputs, decoder_outputs
from fkeras.pretrained.blocks.projections import gated_mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.files.gguf import value
from fkeras.pretrained.files.gguf_keys import decoder_keys
from fkeras.pretrained.tables.config import count, factor, optional_factor, positive, whole_factor
from fkeras.pretrained.tables.decoder_config import FULL, SLIDING, DecoderConfig, pad_id, with_head
from fkeras.pretrained.tables.decoder_rows import (
    gguf_rows,
    outer_rows,
    self_attention_rows,
    with_offset,
)
from fkeras.pretrained.tables.family import Family, GGUFTable
from fkeras.pretrained.tables.heads import decoder_classes
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Row, in_blocks
from fkeras.pretrained.tables.rows import dense_rows
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES

# tensor names of the norms before and after attention and MLP, by the layer names
_NORMS = FrozenDict(
    {
        "attention_norm": "input_layernorm",
        "attention_post_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    }
)
_GGUF_NAMES = (
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
)
# defaults of optional keys, and the number of blocks of the models with 27 billion parameters
_GGUF_CAPS = FrozenDict(
    {
        "gemma2": {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        "gemma3": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    }
)
_GGUF_SLIDING = (
    ("rope_local_base_freq", "rope.freq_base_swa", float),
    ("sliding_window_pattern", "attention.sliding_window_pattern", int),
)
_GGUF_LARGEST = FrozenDict({"gemma2": 46, "gemma3": 62})


class GemmaConfig(DecoderConfig):
    """Configuration of Gemma 2 and of the text models of Gemma 3.

    The fields are the keys of `config.json`. The defaults are those of Gemma 3, or of Gemma 2 if
    `model_type` is "gemma2".

    Args:
        model_type: "gemma2" or "gemma3_text"; keyword only.
        hidden_activation: activation of the MLP.
        rope_theta: base of the rotary frequencies; in Gemma 3, of the blocks with full attention.
        rope_local_base_freq: base of the rotary frequencies in Gemma 3's blocks with sliding attention.
        rope_scaling: scaling of the rotary frequencies, in Gemma 3 of the blocks with full attention: the
            key "rope_type" and the parameters of that type; None for no scaling.
        query_pre_attn_scalar: attention scores are divided by the square root of this number.
        sliding_window_pattern: n, where every n-th block has full attention; ignored with `layer_types`.
        attn_logit_softcapping: soft cap of the attention scores; None for no cap.
        final_logit_softcapping: soft cap of the logits; None for no cap.
        use_bidirectional_attention: whether tokens of Gemma 3 attend to later tokens too, in embedding
            models; the window then has half of the tokens on each side.
        pad_token_id: id of the padding token: the classifier of texts classifies the last token with another
            id. None for the last token.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.GemmaConfig(num_hidden_layers=3, sliding_window_pattern=2)
        >>> [config.window(i) for i in range(3)]
        [4096, None, 4096]
    """

    model_type: str = option(
        default="gemma3_text", convert=choice("gemma2", "gemma3_text"), kw_only=True
    )
    vocab_size: int = option(default=262208, convert=positive)
    hidden_size: int = option(default=2304, convert=positive)
    intermediate_size: int = option(default=9216, convert=positive)
    num_hidden_layers: int = option(default=26, convert=count)
    num_attention_heads: int = option(default=8, convert=positive)
    num_key_value_heads: int = option(default=4, convert=positive)
    head_dim: int = option(default=256, convert=positive)
    hidden_activation: str = option(default="gelu_pytorch_tanh", convert=activation_name)
    max_position_embeddings: int = option(default=131072, convert=positive)
    rope_theta: float = option(default=1e6, convert=factor)
    rope_local_base_freq: float = option(default=10000.0, convert=factor)
    query_pre_attn_scalar: float = option(default=256, convert=whole_factor)
    sliding_window: int = option(default=4096, convert=positive)
    sliding_window_pattern: int = option(default=6, convert=positive)
    attn_logit_softcapping: float | None = option(default=None, convert=optional_factor)
    final_logit_softcapping: float | None = option(default=None, convert=optional_factor)
    tie_word_embeddings: bool = option(default=True, convert=boolean)
    use_bidirectional_attention: bool = option(default=False, convert=boolean)
    pad_token_id: OptionalInteger = option(default=0, convert=pad_id, kw_only=True)

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"rope_parameters": ("rope_theta", "rope_local_base_freq", "rope_scaling")}
    )
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict(
        {
            "gemma2": {
                "vocab_size": 256000,
                "max_position_embeddings": 8192,
                "rope_theta": 10000.0,
                "sliding_window_pattern": 2,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
            }
        }
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "gemma2": ("sliding_window_pattern", "use_bidirectional_attention"),
            "gemma3_text": ("attn_logit_softcapping",),
        }
    )
    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "transformers reads `hidden_activation` instead": ("hidden_act",),
            "an option of generation": ("cache_implementation",),
        }
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        parameters, local = mapping.get("rope_parameters"), {}
        is_first = mapping.get("model_type") == "gemma2"
        if isinstance(parameters, Mapping) and FULL in parameters and not is_first:
            local = parameters.get(SLIDING) or {}
            if not isinstance(local, Mapping):
                raise ValueError(
                    f"GemmaConfig: rope_parameters: expected a mapping for {SLIDING}, received "
                    f"{describe_value(local)}. Correct config.json."
                )
            mapping = {**mapping, "rope_parameters": parameters[FULL]}
        elif parameters and not is_first:
            raise ValueError(
                f"GemmaConfig: rope_parameters: expected a mapping with the keys {FULL} and {SLIDING}, "
                f"since transformers ignores others, received {str(parameters)[:80]}. Correct config.json."
            )
        scaling = mapping.get("rope_scaling")
        if isinstance(scaling, Mapping) and "rope_type" not in scaling and not is_first:
            raise ValueError(
                "GemmaConfig: rope_scaling: expected the key 'rope_type', since transformers ignores others, "
                f"received {str(dict(scaling))[:80]}. Correct config.json."
            )
        if local.get("rope_type", "default") != "default":
            raise ValueError(
                f"GemmaConfig: rope_parameters: expected the rope_type 'default' for {SLIDING}, received "
                f"{str(local['rope_type'])[:80]!r}. Gemma scales no positions in blocks with sliding attention."
            )
        result = rope.flat(super().canonical(mapping))
        if result.get("use_bidirectional_attention", False) is None:
            del result["use_bidirectional_attention"]
        if "rope_theta" in local:
            result["rope_local_base_freq"] = local["rope_theta"]
        return result

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scaling()

    @property
    def head_norms(self) -> bool:
        return self.model_type != "gemma2"

    def window(self, block: int) -> int | None:
        """Returns the window of a block; None for full attention."""
        if self.layer_types is not None:
            is_sliding = self.layer_types[block] == SLIDING
        else:
            is_sliding = (block + 1) % self.sliding_window_pattern != 0
        return self.sliding_window if is_sliding else None

    def mask(self, block: int) -> Mask | None:
        """Returns the mask of the attention of a block; None for attention to all tokens."""
        window = self.window(block)
        if not self.use_bidirectional_attention:
            return Causal() if window is None else Causal() & Window(window)
        return None if window is None else Window(window // 2 + 1, both_sides=True)

    def scaling(self) -> layers.rotary.Scaling | None:
        """Returns the scaling of the rotary frequencies."""
        return rope.scaling_of(self.rope_scaling, self.max_position_embeddings)

    def rotary(self, block: int) -> layers.RotaryEmbedding:
        """Returns the rotary embedding of a block."""
        if self.head_norms and self.window(block) is not None:
            return layers.RotaryEmbedding(self.rope_local_base_freq, name="rotary")
        return layers.RotaryEmbedding(self.rope_theta, scaling=self.scaling(), name="rotary")


def build(config: GemmaConfig) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    inputs = decoder_inputs(config)
    positions = layers.Positions(name="positions")(*inputs)
    embedding = layers.ReversibleEmbedding(
        config.vocab_size,
        config.hidden_size,
        tie_weights=config.tie_word_embeddings or "causal" not in config.parts,
        logit_soft_cap=config.final_logit_softcapping,
        name="embedding",
    )
    # the factor is rounded to the compute dtype, as in pretraining
    x = layers.Rescaling(config.hidden_size**0.5, name="embedding_scale")(embedding(inputs[0]))
    windows = map(config.window, range(config.num_hidden_layers))
    for block in repeated(lambda i: _block(config, i), windows):
        x = block([x, positions])
    x = _norm(config, "norm")(x)
    outputs = decoder_outputs(config, x, inputs[0], positions, embedding)
    return Model(inputs, outputs, name=config.model_type)


def _norm(config: GemmaConfig, name: str) -> layers.RMSNormalization:
    return layers.RMSNormalization(epsilon=config.rms_norm_eps, scale_offset=1.0, name=name)


def _block(config: GemmaConfig, i: int) -> Model:
    x = Input((None, config.hidden_size), name="x")
    positions = Input((None,), dtype="int32", name="positions")
    y = _attention(config, i, _norm(config, "attention_norm")(x), positions)
    y = layers.Add(name="attention_add")([x, _norm(config, "attention_post_norm")(y)])
    z = _norm(config, "mlp_norm")(y)
    z = gated_mlp(z, config.intermediate_size, config.hidden_activation)
    z = layers.Add(name="mlp_add")([y, _norm(config, "mlp_post_norm")(z)])
    return Model([x, positions], z)


def _attention(config: GemmaConfig, i: int, x: KerasTensor, positions: KerasTensor) -> KerasTensor:
    return attention(
        x,
        config.num_attention_heads,
        config.head_dim,
        key_heads=config.num_key_value_heads,
        mask=config.mask(i),
        positions=positions,
        bias=config.attention_bias,
        rotary=config.rotary(i),
        head_norm=functools.partial(_norm, config) if config.head_norms else None,
        scale=config.query_pre_attn_scalar**-0.5,
        soft_cap=config.attn_logit_softcapping,
    )


def names(config: GemmaConfig) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints."""
    b = "model.layers.{i}."
    rows = [
        Row(f"{b}{theirs}.weight", f"block_{{i}}/{ours}/scale") for ours, theirs in _NORMS.items()
    ]
    for name in ("gate", "up", "down"):
        rows += dense_rows(f"{b}mlp.{name}_proj", f"block_{{i}}/{name}", bias=False)
    blocks = range(config.num_hidden_layers)
    return (*outer_rows(config), *in_blocks(blocks, *self_attention_rows(config), *rows))


def gguf_mapping(metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """Returns the keys of `config.json` for a GGUF file.

    Raises:
        ValueError: for missing keys, and values of another type.
    """
    mapping = decoder_keys(metadata, tensors)
    name = str(metadata["general.architecture"])
    for key, theirs, kind in _GGUF_SLIDING if name == "gemma3" else ():
        found = value(metadata, f"gemma3.{theirs}", kind)
        mapping |= {} if found is None else {key: found}
    for key, cap in _GGUF_CAPS[name].items():
        mapping[key] = value(metadata, f"{name}.{key}", float, cap)
    # GGUF has no key for the scale: the size of a head, except in the largest models
    is_largest = mapping["num_hidden_layers"] == _GGUF_LARGEST[name]
    width = mapping.get("hidden_size", 0) // mapping["num_attention_heads"]
    mapping["query_pre_attn_scalar"] = width if is_largest else mapping.get("head_dim", 256)
    mapping["attention_bias"] = "blk.0.attn_q.bias" in tensors
    return {"model_type": "gemma2" if name == "gemma2" else "gemma3_text", **mapping}


def gguf_names(config: GemmaConfig) -> tuple[Row, ...]:
    """Returns the table of names of GGUF files, which store norm scales plus 1."""
    return with_offset(gguf_rows(config, names(config), _GGUF_NAMES), 1.0)


TINY = GemmaConfig(
    model_type="gemma3_text",
    vocab_size=67,
    hidden_size=20,
    intermediate_size=28,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    rms_norm_eps=1e-3,
    rope_theta=2000.0,
    rope_local_base_freq=50.0,
    rope_scaling=FrozenDict({"rope_type": "linear", "factor": 4.0}),
    query_pre_attn_scalar=10,
    sliding_window=5,
    sliding_window_pattern=3,
)

FAMILY = Family(
    classes=FrozenDict(
        {
            "gemma2": decoder_classes("Gemma2", answers=False),
            "gemma3_text": (
                "Gemma3ForCausalLM",
                "Gemma3TextModel",
                "Gemma3TextForSequenceClassification",
            ),
        }
    ),
    config=GemmaConfig,
    build=build,
    names=names,
    tiny=TINY,
    prefix="model.",
    ignored=("*.rotary_emb.inv_freq",),
    adapted=with_head,
    files=SENTENCE_FILES,
    gguf=GGUFTable(("gemma2", "gemma3"), gguf_mapping, gguf_names),
)
