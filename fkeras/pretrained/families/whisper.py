"""Whisper: an audio encoder, and a text decoder with cross-attention.

The model takes log-mel features (b, frames, bands), which `loaded.processor` computes from waveforms, and
ids (b, t), and returns logits (b, t, v). `fk.generate(model, state, ids, inputs=features)` computes the
encoder and the keys and values of the cross-attention once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fkeras import layers, ops
from fkeras.authoring.engine import Integer, boolean, describe_value, several
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.masks import Causal
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.blocks.encoder_blocks import add, attention, norm, pre_norm_blocks
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.media.sounds import SoundProcessor
from fkeras.pretrained.tables.config import Config, check_heads, count, positive, token_id
from fkeras.pretrained.tables.family import PREPROCESSOR, Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Convolution, Row, in_blocks
from fkeras.pretrained.tables.rows import (
    attention_rows,
    dense_rows,
    logit_row,
    norm_rows,
    pre_norm_rows,
)

_GENERATION = "generation_config.json"
_EPSILON = 1e-5
_ids = several(token_id, "a list of token ids", least=0, optional=True)


class WhisperConfig(Config):
    """Configuration of Whisper: the fields are the keys of `config.json`.

    Args:
        num_mel_bins: number of mel bands of the features.
        d_model: size of the hidden states.
        encoder_layers: number of blocks of the encoder.
        encoder_attention_heads: number of attention heads of the encoder.
        encoder_ffn_dim: hidden size of the encoder's MLP.
        decoder_layers: number of blocks of the decoder.
        decoder_attention_heads: number of attention heads of the decoder.
        decoder_ffn_dim: hidden size of the decoder's MLP.
        max_source_positions: number of frames of the encoder: half of the frames of the features.
        max_target_positions: maximum number of tokens of a sequence.
        suppress_tokens: ids that are never generated; see `never`.
        begin_suppress_tokens: ids that are not generated first; see `never_first`.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.WhisperConfig(suppress_tokens=(1, 2)).never
        (1, 2)
    """

    vocab_size: Integer = option(default=51865, convert=positive)
    num_mel_bins: Integer = option(default=80, convert=positive)
    d_model: Integer = option(default=384, convert=positive)
    encoder_layers: Integer = option(default=4, convert=count)
    encoder_attention_heads: Integer = option(default=6, convert=positive)
    encoder_ffn_dim: Integer = option(default=1536, convert=positive)
    decoder_layers: Integer = option(default=4, convert=count)
    decoder_attention_heads: Integer = option(default=6, convert=positive)
    decoder_ffn_dim: Integer = option(default=1536, convert=positive)
    activation_function: str = option(default="gelu", convert=activation_name)
    max_source_positions: Integer = option(default=1500, convert=positive)
    max_target_positions: Integer = option(default=448, convert=positive)
    tie_word_embeddings: bool = option(default=True, convert=boolean)
    suppress_tokens: tuple[int, ...] | None = option(default=None, convert=_ids)
    begin_suppress_tokens: tuple[int, ...] | None = option(default=None, convert=_ids)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "augmentation, regularization and initial values": (
                "apply_spec_augment",
                "decoder_layerdrop",
                "encoder_layerdrop",
                "init_std",
                "mask_feature_length",
                "mask_feature_min_masks",
                "mask_feature_prob",
                "mask_time_length",
                "mask_time_min_masks",
                "mask_time_prob",
            ),
            "options of another head": ("classifier_proj_size", "use_weighted_layer_sum"),
            "options of generation": ("forced_decoder_ids", "median_filter_width"),
            "a copy of `encoder_layers`": ("num_hidden_layers",),
            "transformers does not read the key": ("scale_embedding",),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in ("encoder", "decoder"):
            check_heads(self, f"{part}_attention_heads", "d_model")

    @property
    def never(self) -> tuple[int, ...]:
        """Ids that are never generated, for `fk.samplers.SuppressedIds`."""
        return self._generation("suppress_tokens")

    @property
    def never_first(self) -> tuple[int, ...]:
        """Ids that are not generated first, for `fk.samplers.SuppressedIds(ids, first_only=True)`."""
        return self._generation("begin_suppress_tokens")

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids of the end tokens."""
        end = self._setting("eos_token_id")
        return self._ids_of("eos_token_id", [end] if isinstance(end, int) else end)

    def prompt(self, language: str | None = None, task: str = "transcribe") -> tuple[int, ...]:
        """Returns the decoder prompt for text without timestamps.

        Args:
            language: language of the speech, such as "en"; multilingual models need one.
            task: "transcribe", or "translate" into English.

        Raises:
            ValueError: for an unknown language or task, and for missing ids.

        Example:
            >>> beside = {"generation_config.json": {"decoder_start_token_id": 5, "no_timestamps_token_id": 6}}
            >>> WhisperConfig(beside=beside).prompt()
            (5, 6)
        """
        ids = [self._setting("decoder_start_token_id")]
        languages, tasks = self._setting("lang_to_id"), self._setting("task_to_id")
        if languages:
            chosen = (
                (languages, "language", f"<|{language}|>", language),
                (tasks or {}, "task", task, task),
            )
            for table, noun, key, value in chosen:
                if key not in table:
                    known = ", ".join(sorted(name.strip("<|>") for name in table))
                    raise ValueError(
                        f"WhisperConfig.prompt: {noun}: expected one of {known}, received {value!r}. "
                        f"Write config.prompt({noun}=...)."
                    )
                ids.append(table[key])
        elif language is not None or task != "transcribe":
            raise ValueError(
                "WhisperConfig.prompt: expected no language and the task 'transcribe', received "
                f"{language!r} and {task!r}. This model transcribes English only."
            )
        ids.append(self._setting("no_timestamps_token_id"))
        return self._ids_of("decoder_start_token_id and no_timestamps_token_id", ids)

    def _setting(self, key: str) -> Any:
        """Returns a value of `generation_config.json`, or else of `config.json`."""
        value = self._generation_config.get(key)
        return self.source.get(key) if value is None else value

    @property
    def _generation_config(self) -> Mapping[str, Any]:
        content = self.beside.get(_GENERATION, {})
        if not isinstance(content, Mapping):
            raise ValueError(
                f"{_GENERATION}: expected an object of JSON, received {describe_value(content)}. "
                "Correct the file."
            )
        return content

    def _ids_of(self, key: str, value: Any) -> tuple[int, ...]:
        ids = _ids.check(key, value)
        if not ids:
            raise ValueError(f"WhisperConfig: expected {key} in config.json, received none.")
        return tuple(ids)

    def _generation(self, key: str) -> tuple[int, ...]:
        ids = _ids.check(key, self._generation_config.get(key))
        return tuple(getattr(self, key) or () if ids is None else ids)


def build(config: WhisperConfig) -> Model:
    """Returns the graph of a configuration."""
    features = Input((2 * config.max_source_positions, config.num_mel_bins), name="features")
    ids = Input((None,), dtype="int32", name="ids")
    logits = _decoder(config)([ids, _encoder(config)(features)])
    return Model([features, ids], logits, name="whisper")


def _encoder(config: WhisperConfig) -> Model:
    width = config.d_model
    x = inputs = Input((2 * config.max_source_positions, config.num_mel_bins), name="features")
    for i, stride in ((1, 1), (2, 2)):
        # one zero at both ends: padding="same" with stride 2 would pad at the end only
        x = layers.ZeroPadding1D(1, name=f"padding_{i}")(x)
        x = ops.gelu(layers.Conv1D(width, 3, stride, name=f"conv_{i}")(x), approximate=False)
    positions = layers.PositionEmbedding(config.max_source_positions, name="positions")(x)
    x = pre_norm_blocks(
        add(x, positions, "position_add"),
        config.encoder_layers,
        config.encoder_attention_heads,
        config.encoder_ffn_dim,
        activation=config.activation_function,
        epsilon=_EPSILON,
        key_bias=False,
    )
    return Model(inputs, norm(x, _EPSILON, "norm"), name="encoder")


def _decoder(config: WhisperConfig) -> Model:
    width = config.d_model
    ids = Input((None,), dtype="int32", name="ids")
    encoded = Input((config.max_source_positions, width), name="encoded")
    embedding = layers.ReversibleEmbedding(
        config.vocab_size, width, tie_weights=config.tie_word_embeddings, name="embedding"
    )
    positions = layers.Positions(name="positions")(ids)
    table = layers.Embedding(config.max_target_positions, width, name="position_embedding")
    x = add(embedding(ids), table(ops.maximum(positions, 0)), "embedding_add")
    for block in repeated(lambda i: _decoder_block(config), [()] * config.decoder_layers):
        x = block([x, positions, encoded])
    x = norm(x, _EPSILON, "norm")
    return Model([ids, encoded], embedding(x, reverse=True), name="decoder")


def _decoder_block(config: WhisperConfig) -> Model:
    width, heads = config.d_model, config.decoder_attention_heads
    x = inputs = Input((None, width), name="x")
    positions = Input((None,), dtype="int32", name="positions")
    encoded = Input((config.max_source_positions, width), name="encoded")
    y = norm(x, _EPSILON, "attention_norm")
    y = attention(y, heads, mask=Causal(), positions=positions, key_bias=False)
    x = add(x, y, "attention_add")
    y = norm(x, _EPSILON, "cross_norm")
    y = attention(y, heads, source=encoded, key_bias=False, prefix="cross_")
    x = add(x, y, "cross_add")
    y = mlp(norm(x, _EPSILON, "mlp_norm"), config.decoder_ffn_dim, config.activation_function)
    return Model([inputs, positions, encoded], add(x, y, "mlp_add"))


def _block_rows(prefix: str, layer: str, heads: tuple[int, int]) -> tuple[Row, ...]:
    norms = ("self_attn_layer_norm", "final_layer_norm")
    return pre_norm_rows(prefix, layer, *heads, norms, mlp="", key_bias=False)


def names(config: WhisperConfig) -> tuple[Row, ...]:
    """Returns the table of names of a configuration."""
    width = config.d_model
    encoder_heads, decoder_heads = (
        (n, width // n) for n in (config.encoder_attention_heads, config.decoder_attention_heads)
    )
    e, d = "model.encoder.", "model.decoder."
    block, layer = f"{d}layers.{{i}}.", "decoder/block_{i}/"
    return (
        *dense_rows(f"{e}conv1", "encoder/conv_1", kernel=Convolution()),
        *dense_rows(f"{e}conv2", "encoder/conv_2", kernel=Convolution()),
        Row(f"{e}embed_positions.weight", "encoder/positions/position_embeddings"),
        *in_blocks(
            range(config.encoder_layers),
            *_block_rows(f"{e}layers.{{i}}.", "encoder/block_{i}/", encoder_heads),
        ),
        *norm_rows(f"{e}layer_norm", "encoder/norm"),
        Row(f"{d}embed_tokens.weight", "decoder/embedding/embeddings"),
        Row(f"{d}embed_positions.weight", "decoder/position_embedding/embeddings"),
        *in_blocks(
            range(config.decoder_layers),
            *_block_rows(block, layer, decoder_heads),
            *norm_rows(f"{block}encoder_attn_layer_norm", f"{layer}cross_norm"),
            *attention_rows(
                f"{block}encoder_attn.", f"{layer}cross_", *decoder_heads, key_bias=False
            ),
        ),
        *norm_rows(f"{d}layer_norm", "decoder/norm"),
        logit_row("proj_out.weight", config.tie_word_embeddings, "decoder/embedding"),
    )


WHISPER = Family(
    classes={"whisper": ("WhisperForConditionalGeneration", "WhisperModel")},
    config=WhisperConfig,
    build=build,
    names=names,
    tiny=WhisperConfig(
        vocab_size=67,
        num_mel_bins=12,
        d_model=16,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=28,
        decoder_layers=3,
        decoder_attention_heads=4,
        decoder_ffn_dim=36,
        activation_function="gelu_new",
        max_source_positions=50,
        max_target_positions=26,
        suppress_tokens=(47, 20, 41),
        begin_suppress_tokens=(4, 53, 54),
        model_type="whisper",
    ),
    prefix="model.",
    files=(PREPROCESSOR, _GENERATION),
    processor=SoundProcessor.read,
)
