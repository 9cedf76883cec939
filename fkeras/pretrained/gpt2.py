"""GPT-2: learned positions, layer normalization before each part, one tensor for query, key and value."""

from __future__ import annotations

from fkeras import layers, ops
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.engine.config.converters import boolean, choice, integer, real
from fkeras.masks import Causal
from fkeras.pretrained.activation import activate, activation_name
from fkeras.pretrained.config import Config, count
from fkeras.pretrained.family import Family
from fkeras.pretrained.names import HeadBias, Reshape, Row, Same, Split, Transpose, in_blocks
from fkeras.pretrained.projections import from_heads, to_heads

_size = integer(minimum=1)


class GPT2Config(Config):
    """Configuration of GPT-2; the fields are the keys of `config.json`.

    Args:
        vocab_size: number of token ids.
        n_positions: number of positions; a text with more tokens gives NaN.
        n_embd: width of the network.
        n_layer: number of blocks.
        n_head: number of heads.
        n_inner: width inside the MLP; None for `4 * n_embd`.
        activation_function: activation of the MLP.
        layer_norm_epsilon: epsilon of the normalizations.
        scale_attn_weights: whether scores are divided by the root of the size of a head.
        scale_attn_by_inverse_layer_idx: whether scores are also divided by the number of the block,
            counted from 1.
        tie_word_embeddings: whether the logits use the embeddings.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.GPT2Config(n_embd=64, n_layer=2, n_head=4)
        >>> fk.pretrained.build(config).name, config.scale(0)
        ('gpt2', 0.25)
    """

    model_type: str = option(default="gpt2", convert=choice("gpt2"), kw_only=True)
    vocab_size: int = option(default=50257, convert=_size)
    n_positions: int = option(default=1024, convert=_size)
    n_embd: int = option(default=768, convert=_size)
    n_layer: int = option(default=12, convert=count)
    n_head: int = option(default=12, convert=_size)
    n_inner: int | None = option(default=None, convert=integer(minimum=1, optional=True))
    activation_function: str = option(default="gelu_new", convert=activation_name)
    layer_norm_epsilon: float = option(default=1e-5, convert=real(above=0))
    scale_attn_weights: bool = option(default=True, convert=boolean)
    scale_attn_by_inverse_layer_idx: bool = option(default=False, convert=boolean)
    tie_word_embeddings: bool = option(default=True, convert=boolean)

    # a head of another class, and the precision of scores; `n_ctx` repeats `n_positions`
    neutral = frozenset(
        [
            "n_ctx",
            "reorder_and_upcast_attn",
            "summary_type",
            "summary_use_proj",
            "summary_activation",
            "summary_proj_to_labels",
            "summary_first_dropout",
        ]
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_embd % self.n_head:
            raise ValueError(
                f"GPT2Config: n_head: expected a divisor of n_embd={self.n_embd}, received "
                f"{self.n_head}."
            )

    @property
    def head_size(self) -> int:
        """Size of a head."""
        return self.n_embd // self.n_head

    def scale(self, block: int) -> float:
        """Factor of the scores of a block."""
        scale = self.head_size**-0.5 if self.scale_attn_weights else 1.0
        return scale / (block + 1) if self.scale_attn_by_inverse_layer_idx else scale


def build(config: GPT2Config) -> Model:
    """Returns the graph: ids (b, t), and segments of packed texts, to logits (b, t, v)."""
    ids = Input((None,), dtype="int32", name="ids")
    segments = Input((None,), dtype="int32", name="segments", optional=True)
    positions = layers.Positions(name="positions")(ids, segments)
    embedding = layers.ReversibleEmbedding(
        config.vocab_size, config.n_embd, tie_weights=config.tie_word_embeddings, name="embedding"
    )
    # padding has the position -1
    learned = layers.Embedding(config.n_positions, config.n_embd, name="position_embedding")
    x = layers.Add(name="embedding_add")([embedding(ids), learned(ops.maximum(positions, 0))])
    for i in range(config.n_layer):
        x = _block(config, i)([x, positions])
    x = layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name="norm")(x)
    return Model([ids, segments], embedding(x, reverse=True), name="gpt2")


def _block(config: GPT2Config, i: int) -> Model:
    def norm(name: str) -> layers.LayerNormalization:
        return layers.LayerNormalization(epsilon=config.layer_norm_epsilon, name=name)

    x = Input((None, config.n_embd), name="x")
    positions = Input((None,), dtype="int32", name="positions")
    y = norm("attention_norm")(x)
    query, key, value = (
        to_heads(y, config.n_head, config.head_size, name, bias=True)
        for name in ("query", "key", "value")
    )
    attention = layers.DotProductAttention(Causal(), scale=config.scale(i), name="attention")
    y = attention(query, key, value, positions)
    y = from_heads(y, config.n_embd, bias=True)
    y = layers.Add(name="attention_add")([x, y])
    z = layers.Dense(config.n_inner or 4 * config.n_embd, name="mlp_in")(norm("mlp_norm")(y))
    z = layers.Dense(config.n_embd, name="mlp_out")(activate(config.activation_function, z))
    return Model([x, positions], layers.Add(name="mlp_add")([y, z]), name=f"block_{i}")


def names(config: GPT2Config) -> tuple[Row, ...]:
    """Returns the table of names of Hugging Face's checkpoints: kernels are (in, out) as in the graph."""
    width, heads, size = config.n_embd, config.n_head, config.head_size
    to_heads, from_heads = (width, heads, size), (heads, size, width)
    thirds = (width,) * 3
    parts = ("query", "key", "value")
    kernels = Split(thirds, axis=1, then=(Reshape((width, width), to_heads),) * 3)
    biases = Split(thirds, then=(HeadBias(heads, size),) * 3)
    tensors = {"ln_1": "attention_norm", "ln_2": "mlp_norm"}
    rows = [
        Row(f"h.{{i}}.{tensor}.{theirs}", f"block_{{i}}/{layer}/{ours}")
        for tensor, layer in tensors.items()
        for theirs, ours in (("weight", "gamma"), ("bias", "beta"))
    ]
    rows += [
        Row(f"h.{{i}}.mlp.{tensor}.{theirs}", f"block_{{i}}/{layer}/{ours}")
        for tensor, layer in (("c_fc", "mlp_in"), ("c_proj", "mlp_out"))
        for theirs, ours in (("weight", "kernel"), ("bias", "bias"))
    ]
    rows += [
        Row("h.{i}.attn.c_attn.weight", tuple(f"block_{{i}}/{p}/kernel" for p in parts), kernels),
        Row("h.{i}.attn.c_attn.bias", tuple(f"block_{{i}}/{p}/bias" for p in parts), biases),
        Row(
            "h.{i}.attn.c_proj.weight",
            "block_{i}/output/kernel",
            Reshape((width, width), from_heads),
        ),
        Row("h.{i}.attn.c_proj.bias", "block_{i}/output/bias"),
    ]
    rows = [
        *in_blocks(range(config.n_layer), *rows),
        Row("wte.weight", "embedding/embeddings"),
        Row("wpe.weight", "position_embedding/embeddings"),
        Row("ln_f.weight", "norm/gamma"),
        Row("ln_f.bias", "norm/beta"),
    ]
    tied = config.tie_word_embeddings
    head = Row(
        "lm_head.weight",
        "embedding/embeddings" if tied else "embedding/reverse_embeddings",
        Same() if tied else Transpose(),
        copy=tied,
    )
    return (*(_prefixed(row) for row in rows), head)


def _prefixed(row: Row) -> Row:
    return Row(f"transformer.{row.tensors}", row.weights, row.operation, row.blocks)


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
    classes=FrozenDict({"gpt2": ("GPT2LMHeadModel",)}),
    config=GPT2Config,
    build=build,
    names=names,
    tiny=TINY,
    prefix="transformer.",
    # causal masks as tensors, in files of older versions
    ignored=("*h.*.attn.bias", "*h.*.attn.masked_bias"),
)
