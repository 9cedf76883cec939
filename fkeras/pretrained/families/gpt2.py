"""GPT-2: learned position embeddings, pre-norm blocks, one fused tensor for query, key and value."""

from __future__ import annotations

from typing import ClassVar

from fkeras import layers, ops
from fkeras.authoring.engine import boolean, choice
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.masks import Causal
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.blocks.encoder_blocks import add, attention, norm
from fkeras.pretrained.blocks.heads import decoder_inputs, decoder_outputs
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.tables.config import (
    check_heads,
    count,
    factor,
    optional_positive,
    positive,
)
from fkeras.pretrained.tables.decoder_config import CausalConfig, with_head
from fkeras.pretrained.tables.decoder_rows import decoder_head_rows
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import HeadBias, Reshape, Row, Same, Split, in_blocks
from fkeras.pretrained.tables.rows import dense_rows, norm_rows
from fkeras.pretrained.tables.sentence_files import SENTENCE_FILES


class GPT2Config(CausalConfig):
    """Configuration of GPT-2: the fields are the keys of `config.json`.

    Args:
        n_positions: context length; the outputs of longer sequences are NaN.
        n_embd: size of the hidden states.
        n_layer: number of blocks.
        n_head: number of attention heads.
        n_inner: hidden size of the MLP; None for `4 * n_embd`.
        layer_norm_epsilon: epsilon of the layer normalizations.
        scale_attn_weights: whether attention scores are divided by the square root of the size of a head.
        scale_attn_by_inverse_layer_idx: whether attention scores are also divided by the index of the
            block, counted from 1.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.GPT2Config(n_embd=64, n_layer=2, n_head=4)
        >>> fk.pretrained.build(config).name, config.scale(0)
        ('gpt2', 0.25)
    """

    model_type: str = option(default="gpt2", convert=choice("gpt2"), kw_only=True)
    vocab_size: int = option(default=50257, convert=positive)
    n_positions: int = option(default=1024, convert=positive)
    n_embd: int = option(default=768, convert=positive)
    n_layer: int = option(default=12, convert=count)
    n_head: int = option(default=12, convert=positive)
    n_inner: int | None = option(default=None, convert=optional_positive)
    activation_function: str = option(default="gelu_new", convert=activation_name)
    layer_norm_epsilon: float = option(default=1e-5, convert=factor)
    scale_attn_weights: bool = option(default=True, convert=boolean)
    scale_attn_by_inverse_layer_idx: bool = option(default=False, convert=boolean)
    tie_word_embeddings: bool = option(default=True, convert=boolean)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "a copy of `n_positions`": ("n_ctx",),
            "options of tokenizers": ("n_special", "predict_special_tokens"),
            "the precision of attention scores": ("reorder_and_upcast_attn",),
            "options of another head": (
                "summary_type",
                "summary_use_proj",
                "summary_activation",
                "summary_proj_to_labels",
                "summary_first_dropout",
            ),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "n_head", "n_embd")

    @property
    def head_size(self) -> int:
        """Size of a head."""
        return self.n_embd // self.n_head

    def scale(self, block: int) -> float:
        """Returns the scale of the attention scores of a block."""
        scale = self.head_size**-0.5 if self.scale_attn_weights else 1.0
        return scale / (block + 1) if self.scale_attn_by_inverse_layer_idx else scale


def build(config: GPT2Config) -> Model:
    """Returns the graph: ids (b, t) and optional segments of packed sequences -> logits (b, t, v) or a dictionary."""
    inputs = decoder_inputs(config)
    positions = layers.Positions(name="positions")(*inputs)
    tied = config.tie_word_embeddings or "causal" not in config.parts
    embedding = layers.ReversibleEmbedding(
        config.vocab_size, config.n_embd, tie_weights=tied, name="embedding"
    )
    # the position of padding is -1
    learned = layers.Embedding(config.n_positions, config.n_embd, name="position_embedding")
    x = layers.Add(name="embedding_add")([embedding(inputs[0]), learned(ops.maximum(positions, 0))])
    for block in repeated(lambda i: _block(config, i), map(config.scale, range(config.n_layer))):
        x = block([x, positions])
    x = norm(x, config.layer_norm_epsilon, "norm")
    outputs = decoder_outputs(config, x, inputs[0], positions, embedding)
    return Model(inputs, outputs, name="gpt2")


def _block(config: GPT2Config, i: int) -> Model:
    x = Input((None, config.n_embd), name="x")
    positions = Input((None,), dtype="int32", name="positions")
    epsilon = config.layer_norm_epsilon
    y = attention(
        norm(x, epsilon, "attention_norm"),
        config.n_head,
        mask=Causal(),
        positions=positions,
        scale=config.scale(i),
    )
    y = add(x, y, "attention_add")
    inner = config.n_inner or 4 * config.n_embd
    z = mlp(norm(y, epsilon, "mlp_norm"), inner, config.activation_function)
    return Model([x, positions], add(y, z, "mlp_add"))


def names(config: GPT2Config) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face checkpoints: kernels are (in, out) as in the graph."""
    width, heads, size = config.n_embd, config.n_head, config.head_size
    square, thirds = (width, width), (width,) * 3
    kernels = Split(thirds, axis=1, then=(Reshape(square, (width, heads, size)),) * 3)
    biases = Split(thirds, then=(HeadBias(heads, size),) * 3)
    p, b, block = "transformer.", "transformer.h.{i}.", "block_{i}/"
    parts = tuple(f"{block}{part}" for part in ("query", "key", "value"))
    output = Reshape(square, (heads, size, width))
    return (
        *in_blocks(
            range(config.n_layer),
            *norm_rows(f"{b}ln_1", f"{block}attention_norm"),
            *norm_rows(f"{b}ln_2", f"{block}mlp_norm"),
            *dense_rows(f"{b}mlp.c_fc", f"{block}mlp_in", kernel=Same()),
            *dense_rows(f"{b}mlp.c_proj", f"{block}mlp_out", kernel=Same()),
            Row(f"{b}attn.c_attn.weight", tuple(f"{part}/kernel" for part in parts), kernels),
            Row(f"{b}attn.c_attn.bias", tuple(f"{part}/bias" for part in parts), biases),
            *dense_rows(f"{b}attn.c_proj", f"{block}output", kernel=output),
        ),
        Row(f"{p}wte.weight", "embedding/embeddings"),
        Row(f"{p}wpe.weight", "position_embedding/embeddings"),
        *norm_rows(f"{p}ln_f", "norm"),
        *decoder_head_rows(config, config.tie_word_embeddings, "classifier"),
    )


TINY = GPT2Config(
    model_type="gpt2",
    vocab_size=67,
    n_positions=29,
    n_embd=24,
    n_layer=3,
    n_head=4,
    n_inner=40,
    layer_norm_epsilon=1e-3,
    scale_attn_by_inverse_layer_idx=True,
)

FAMILY = Family(
    classes=FrozenDict(
        {
            "gpt2": (
                "GPT2LMHeadModel",
                "GPT2Model",
                "GPT2ForSequenceClassification",
                "GPT2ForTokenClassification",
                "GPT2ForQuestionAnswering",
            )
        }
    ),
    config=GPT2Config,
    build=build,
    names=names,
    tiny=TINY,
    prefix="transformer.",
    adapted=with_head,
    files=SENTENCE_FILES,
    # checkpoints of older versions store causal masks as tensors
    ignored=("*h.*.attn.bias", "*h.*.attn.masked_bias"),
)
