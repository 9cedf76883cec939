"""Wav2Vec2: convolutions over the samples of a sound, and an encoder whose positions are a convolution.

The model takes sounds (b, t), which `loaded.processor` normalizes, and returns a dictionary: "hidden"
(b, frames, d), and "logits" (b, frames, v) of the characters if the checkpoint has the head for CTC.
`config.text(ids)` joins the most likely characters of the frames to a text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from fkeras import layers, ops
from fkeras.authoring.engine import (
    Integer,
    OptionalInteger,
    Real,
    boolean,
    choice,
    describe_value,
    several,
)
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.pretrained.blocks.activation import activate, activation_name
from fkeras.pretrained.blocks.encoder_blocks import Tensor, add, attention, norm
from fkeras.pretrained.blocks.encoder_config import EncoderConfig, with_parts
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.media.waves import WaveProcessor
from fkeras.pretrained.tables.config import check_heads, count, epsilon, optional_positive, positive
from fkeras.pretrained.tables.decoder_config import pad_id
from fkeras.pretrained.tables.family import PREPROCESSOR, Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Arrays, Convolution, Operation, Row, Shape, in_blocks
from fkeras.pretrained.tables.rows import attention_rows, dense_rows, norm_rows

_VOCABULARY, _SPECIAL = "vocab.json", "tokenizer_config.json"
# the epsilon of the normalizations between the convolutions, for which transformers has no key
_EPSILON = 1e-5
_sizes = several(positive, "a list of sizes")


class Wav2Vec2Config(EncoderConfig):
    """Configuration of Wav2Vec2: the fields are the keys of `config.json`.

    Args:
        vocab_size: number of characters, of which id `pad_token_id` separates equal characters.
        feat_extract_norm: "group" to normalize each channel after the first convolution over all samples,
            "layer" to normalize the channels after each convolution.
        feat_extract_activation: activation of the convolutions.
        conv_dim: number of channels of each convolution over the samples.
        conv_stride: stride of each convolution.
        conv_kernel: kernel size of each convolution.
        conv_bias: whether the convolutions have biases.
        num_conv_pos_embeddings: kernel size of the convolution of the positions.
        num_conv_pos_embedding_groups: number of its groups.
        do_stable_layer_norm: whether the inputs of attention and MLP are normalized, instead of the sums.
        pad_token_id: id of the character between equal characters.
        add_adapter: only False is supported.
        adapter_attn_dim: only None is supported.
        parts: ("ctc",) if the checkpoint has the head for CTC, ("old_names",) if the tensors of the convolution of the
            positions have the names of older versions; `load` finds them by the tensor names.

    Example:
        >>> import fkeras as fk
        >>> vocabulary = {"<pad>": 0, "|": 1, "A": 2, "B": 3}
        >>> config = fk.pretrained.Wav2Vec2Config(beside={"vocab.json": vocabulary})
        >>> config.text([2, 2, 0, 2, 3, 1, 1, 3, 0])
        'AAB B'
    """

    model_type: str = option(default="wav2vec2", convert=choice("wav2vec2"), kw_only=True)
    vocab_size: Integer = option(default=32, convert=positive)
    hidden_size: Integer = option(default=768, convert=positive)
    num_hidden_layers: Integer = option(default=12, convert=count)
    num_attention_heads: Integer = option(default=12, convert=positive)
    intermediate_size: Integer = option(default=3072, convert=positive)
    hidden_act: str = option(default="gelu", convert=activation_name)
    layer_norm_eps: Real = option(default=1e-5, convert=epsilon)
    feat_extract_norm: str = option(default="group", convert=choice("group", "layer"))
    feat_extract_activation: str = option(default="gelu", convert=activation_name)
    conv_dim: tuple[int, ...] = option(default=(512,) * 7, convert=_sizes)
    conv_stride: tuple[int, ...] = option(default=(5, 2, 2, 2, 2, 2, 2), convert=_sizes)
    conv_kernel: tuple[int, ...] = option(default=(10, 3, 3, 3, 3, 2, 2), convert=_sizes)
    conv_bias: bool = option(default=False, convert=boolean)
    num_conv_pos_embeddings: Integer = option(default=128, convert=positive)
    num_conv_pos_embedding_groups: Integer = option(default=16, convert=positive)
    do_stable_layer_norm: bool = option(default=False, convert=boolean)
    pad_token_id: OptionalInteger = option(default=0, convert=pad_id, kw_only=True)
    add_adapter: bool = option(default=False, convert=boolean)
    adapter_attn_dim: OptionalInteger = option(default=None, convert=optional_positive)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "regularization, masks and losses in training": (
                "apply_spec_augment",
                "contrastive_logits_temperature",
                "ctc_loss_reduction",
                "ctc_zero_infinity",
                "diversity_loss_weight",
                "feat_extract_dropout",
                "feat_proj_dropout",
                "feat_quantizer_dropout",
                "final_dropout",
                "mask_channel_length",
                "mask_channel_min_space",
                "mask_channel_other",
                "mask_channel_prob",
                "mask_channel_selection",
                "mask_feature_length",
                "mask_feature_min_masks",
                "mask_feature_prob",
                "mask_time_length",
                "mask_time_min_masks",
                "mask_time_min_space",
                "mask_time_other",
                "mask_time_prob",
                "mask_time_selection",
                "num_negatives",
            ),
            "sizes of the quantizer of the pretraining": (
                "codevector_dim",
                "num_codevector_groups",
                "num_codevectors_per_group",
                "proj_codevector_dim",
            ),
            "options of other heads and of adapters": (
                "adapter_kernel_size",
                "adapter_stride",
                "classifier_proj_size",
                "num_adapter_layers",
                "output_hidden_size",
                "tdnn_dilation",
                "tdnn_dim",
                "tdnn_kernel",
                "use_weighted_layer_sum",
                "xvector_output_dim",
            ),
            "the length of `conv_dim`": ("num_feat_extract_layers",),
        }
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"ctc": ("lm_head.weight",), "old_names": ("pos_conv_embed.conv.weight_g",)}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "num_attention_heads", "hidden_size")
        check_heads(self, "num_conv_pos_embedding_groups", "hidden_size")
        for name in ("conv_stride", "conv_kernel"):
            if len(getattr(self, name)) != len(self.conv_dim):
                raise ValueError(
                    f"Wav2Vec2Config: {name}: expected {len(self.conv_dim)} numbers, one for each of conv_dim, "
                    f"received {len(getattr(self, name))}. Correct config.json."
                )
        for name, expected in (("add_adapter", False), ("adapter_attn_dim", None)):
            if getattr(self, name) != expected:
                raise ValueError(
                    f"Wav2Vec2Config: {name}: expected {expected}, received {getattr(self, name)}. fkeras has no "
                    "adapters of Wav2Vec2 and MMS."
                )

    def text(self, ids: Sequence[int]) -> str:
        """Returns the text of the most likely characters of the frames, such as `logits[0].argmax(-1)`.

        Equal characters of adjacent frames are one character; the character `pad_token_id` between them is left out.
        "|" stands for a space, or the `word_delimiter_token` of `tokenizer_config.json`. Other special tokens, such
        as "<s>", are left out.

        Raises:
            ValueError: for a folder without `vocab.json`, and for ids that the file lacks.
        """
        vocabulary = self.beside.get(_VOCABULARY)
        if not isinstance(vocabulary, Mapping):
            raise ValueError(
                f"Wav2Vec2Config.text: expected the characters of {_VOCABULARY}, received "
                f"{describe_value(vocabulary)}. Download the file with the folder."
            )
        special = self.beside.get(_SPECIAL, {})
        space = special.get("word_delimiter_token") or "|"
        characters = {index: character for character, index in vocabulary.items()}
        texts, before = [], None
        for value in map(int, ids):
            if value not in characters:
                raise ValueError(
                    f"Wav2Vec2Config.text: expected ids of {_VOCABULARY}, received {value}. Pass the ids of one "
                    "sound: logits[0].argmax(-1)."
                )
            character = characters[value]
            is_special = len(character) > 1 and character.startswith(("<", "["))
            if value not in (before, self.pad_token_id) and not is_special:
                texts.append(" " if character == space else character)
            before = value
        return "".join(texts).strip()


def build(config: Wav2Vec2Config) -> Model:
    """Returns the graph: sounds (b, t) -> a dictionary with "hidden" (b, frames, d)."""
    sounds = Input((None,), name="sounds")
    x = ops.expand_dims(sounds, -1)
    sizes = zip(config.conv_dim, config.conv_kernel, config.conv_stride, strict=True)
    for i, (width, size, stride) in enumerate(sizes):
        convolution = layers.Conv1D(
            width, size, stride, use_bias=config.conv_bias, name=f"conv_{i}"
        )
        x = convolution(x)
        if config.feat_extract_norm == "layer":
            x = norm(x, _EPSILON, f"conv_norm_{i}")
        elif i == 0:
            x = layers.GroupNormalization(width, epsilon=_EPSILON, name=f"conv_norm_{i}")(x)
        x = activate(config.feat_extract_activation, x)
    x = norm(x, config.layer_norm_eps, "projection_norm")
    x = layers.Dense(config.hidden_size, name="projection")(x)
    x = add(x, _positions(config, x), "position_add")
    if not config.do_stable_layer_norm:
        x = norm(x, config.layer_norm_eps, "norm")
    for block in repeated(lambda i: _block(config), [()] * config.num_hidden_layers):
        x = block(x)
    if config.do_stable_layer_norm:
        x = norm(x, config.layer_norm_eps, "norm")
    outputs = {"hidden": x}
    if "ctc" in config.parts:
        outputs["logits"] = layers.Dense(config.vocab_size, name="ctc")(x)
    return Model(sounds, outputs, name="wav2vec2")


def _positions(config: Wav2Vec2Config, x: Tensor) -> Tensor:
    size = config.num_conv_pos_embeddings
    # an even kernel sees one frame more before its frame than after
    x = layers.ZeroPadding1D((size // 2, (size - 1) // 2), name="position_padding")(x)
    groups = config.num_conv_pos_embedding_groups
    x = layers.Conv1D(config.hidden_size, size, groups=groups, name="position_conv")(x)
    return activate(config.feat_extract_activation, x)


def _block(config: Wav2Vec2Config) -> Model:
    x = inputs = Input((None, config.hidden_size), name="x")
    first, size = config.do_stable_layer_norm, config.layer_norm_eps
    branches = {
        "attention": lambda x: attention(x, config.num_attention_heads),
        "mlp": lambda x: mlp(x, config.intermediate_size, config.hidden_act),
    }
    for part, branch in branches.items():
        y = branch(norm(x, size, f"{part}_norm") if first else x)
        x = add(x, y, f"{part}_add")
        x = x if first else norm(x, size, f"{part}_norm")
    return Model(inputs, x)


@dataclasses.dataclass(frozen=True)
class _WeightNorm(Operation):
    """Kernel of a convolution, stored as its norm at each place (1, 1, size) and its direction (out, in, size).

    The graph has the product. `write` returns the norm and the kernel itself as direction, so that these two tensors of
    an unchanged checkpoint have other bytes and the same product.
    """

    def read_all(self, tensors: Arrays) -> Arrays:
        scale, direction = tensors
        length = self._norm(direction)
        # exactly 1 for the tensors that `write_all` returns
        is_whole = scale == length.astype(scale.dtype)
        with np.errstate(invalid="ignore"):
            factor = np.where(is_whole, np.float32(1), scale.astype("float32") / length)
        kernel = (direction.astype("float32") * factor).astype(direction.dtype)
        return (Convolution().read(kernel),)

    def write_all(self, weights: Arrays) -> Arrays:
        kernel = Convolution().write(weights[0])
        return self._norm(kernel).astype(kernel.dtype), kernel

    def tensor_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        (size, before, width), *_ = shapes
        return (1, 1, size), (width, before, size)

    @staticmethod
    def _norm(kernel: np.ndarray) -> np.ndarray:
        # one order of the additions, whatever the layout in memory
        kernel = np.ascontiguousarray(kernel, "float32")
        return np.sqrt(np.square(kernel).sum((0, 1), keepdims=True))


def names(config: Wav2Vec2Config) -> tuple[Row, ...]:
    """Returns the table of names of a configuration."""
    p, f, b = "wav2vec2.", "wav2vec2.feature_extractor.conv_layers.", "wav2vec2.encoder.layers.{i}."
    rows = []
    for i in range(len(config.conv_dim)):
        rows += dense_rows(f"{f}{i}.conv", f"conv_{i}", config.conv_bias, Convolution())
        if config.feat_extract_norm == "layer" or i == 0:
            rows += norm_rows(f"{f}{i}.layer_norm", f"conv_norm_{i}")
    rows += norm_rows(f"{p}feature_projection.layer_norm", "projection_norm")
    rows += dense_rows(f"{p}feature_projection.projection", "projection")
    rows += norm_rows(f"{p}encoder.layer_norm", "norm")
    position, spellings = f"{p}encoder.pos_conv_embed.conv.", ("weight_g", "weight_v")
    if "old_names" not in config.parts:
        spellings = tuple(f"parametrizations.weight.original{n}" for n in (0, 1))
    kernel = "position_conv/kernel"
    rows.append(Row(f"{position}{{e}}", kernel, _WeightNorm(), experts=spellings))
    rows.append(Row(f"{position}bias", "position_conv/bias"))
    heads = config.num_attention_heads
    rows += in_blocks(
        range(config.num_hidden_layers),
        *attention_rows(f"{b}attention.", "block_{i}/", heads, config.hidden_size // heads),
        *norm_rows(f"{b}layer_norm", "block_{i}/attention_norm"),
        *dense_rows(f"{b}feed_forward.intermediate_dense", "block_{i}/mlp_in"),
        *dense_rows(f"{b}feed_forward.output_dense", "block_{i}/mlp_out"),
        *norm_rows(f"{b}final_layer_norm", "block_{i}/mlp_norm"),
    )
    if "ctc" in config.parts:
        rows += dense_rows("lm_head", "ctc")
    return tuple(rows)


TINY = Wav2Vec2Config(
    vocab_size=11,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=20,
    hidden_act="relu",
    layer_norm_eps=1e-3,
    feat_extract_norm="layer",
    feat_extract_activation="gelu_new",
    conv_dim=(8, 12),
    conv_stride=(4, 3),
    conv_kernel=(5, 3),
    conv_bias=True,
    num_conv_pos_embeddings=6,
    num_conv_pos_embedding_groups=3,
    do_stable_layer_norm=True,
    parts=("ctc",),
)

WAV2VEC2 = Family(
    classes=FrozenDict({"wav2vec2": ("Wav2Vec2Model", "Wav2Vec2ForCTC")}),
    config=Wav2Vec2Config,
    build=build,
    names=names,
    tiny=TINY,
    prefix="wav2vec2.",
    # the vector of frames that are masked in training
    ignored=("*masked_spec_embed",),
    adapted=with_parts,
    files=(PREPROCESSOR, _VOCABULARY, _SPECIAL),
    processor=WaveProcessor.read,
)
