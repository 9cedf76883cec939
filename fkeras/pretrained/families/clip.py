"""CLIP and SigLIP: a vision encoder and a text encoder with a common embedding space.

The model takes images (b, h, w, c) and ids (n, t), and returns a dictionary: "image" and "text", the
normalized embeddings, and "logits" (b, n). The encoders are the models `model.layers["vision"]` and
`model.layers["text"]`, which return "hidden", "pooled" and "embedding", in CLIP also "projected", the
embedding before the normalization. Checkpoints of one encoder have the same outputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from fkeras import layers, ops
from fkeras.authoring.engine import Integer, OptionalInteger, Real, Sizes, sizes
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.masks import Causal, Mask
from fkeras.pretrained.blocks.activation import activation_name
from fkeras.pretrained.blocks.encoder_blocks import Tensor, add, norm, pre_norm_blocks, token_where
from fkeras.pretrained.blocks.encoder_config import EncoderConfig, with_parts
from fkeras.pretrained.families.vit import (
    SiglipVisionConfig,
    VisionConfig,
    build_siglip_vision,
    patches,
    siglip_vision_names,
)
from fkeras.pretrained.media.images import ImageProcessor
from fkeras.pretrained.tables.config import (
    Config,
    check_heads,
    count,
    epsilon,
    optional_positive,
    positive,
    token_id,
)
from fkeras.pretrained.tables.family import PREPROCESSOR, Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Convolution, Reshape, Row, in_blocks
from fkeras.pretrained.tables.rows import dense_rows, norm_rows, pre_norm_rows

C = TypeVar("C", bound=Config)


_TOWER: Reasons = FrozenDict(
    {
        "the configuration of both encoders has this key": ("projection_dim",),
        "an encoder has no logits": ("tie_word_embeddings",),
    }
)


class _TextConfig(EncoderConfig):
    """Fields of both text encoders."""

    vocab_size: Integer = option(default=49408, convert=positive)
    hidden_size: Integer = option(default=512, convert=positive)
    intermediate_size: Integer = option(default=2048, convert=positive)
    num_hidden_layers: Integer = option(default=12, convert=count)
    num_attention_heads: Integer = option(default=8, convert=positive)
    max_position_embeddings: Integer = option(default=77, convert=positive)
    hidden_act: str = option(default="quick_gelu", convert=activation_name)
    layer_norm_eps: Real = option(default=1e-5, convert=epsilon)

    neutral: ClassVar[Reasons] = _TOWER

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "num_attention_heads", "hidden_size")


class ClipTextConfig(_TextConfig):
    """Configuration of CLIP's text encoder, alone or the key `text_config` of `config.json`.

    Args:
        projection_dim: size of the projected embedding of an encoder alone with the part "projection".
        parts: ("projection",) for an encoder alone with a projection, as CLIPTextModelWithProjection.
        num_labels: no effect.
        eos_token_id: id of the end token, whose hidden state is pooled. Old checkpoints have 2; the token
            with the largest id is pooled then.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.ClipTextConfig().hidden_act
        'quick_gelu'
    """

    eos_token_id: Integer = option(default=49407, convert=token_id)
    projection_dim: Integer = option(default=512, convert=positive)

    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"projection": ("text_projection.weight",)}
    )


class SiglipTextConfig(_TextConfig):
    """Configuration of SigLIP's text encoder, alone or the key `text_config` of `config.json`.

    Args:
        parts, num_labels: no effect.
        projection_size: size of the text embedding; None for `hidden_size`.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.SiglipTextConfig().max_position_embeddings
        64
    """

    vocab_size: Integer = option(default=32000, convert=positive)
    hidden_size: Integer = option(default=768, convert=positive)
    intermediate_size: Integer = option(default=3072, convert=positive)
    num_attention_heads: Integer = option(default=12, convert=positive)
    max_position_embeddings: Integer = option(default=64, convert=positive)
    hidden_act: str = option(default="gelu_pytorch_tanh", convert=activation_name)
    layer_norm_eps: Real = option(default=1e-6, convert=epsilon)
    projection_size: OptionalInteger = option(default=None, convert=optional_positive)


class ClipVisionConfig(VisionConfig):
    """Configuration of CLIP's vision encoder, alone or the key `vision_config` of `config.json`.

    Args:
        projection_dim: size of the projected embedding of an encoder alone with the part "projection".
        parts: ("projection",) for an encoder alone with a projection, as CLIPVisionModelWithProjection.
        num_labels: no effect.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.ClipVisionConfig().grid
        (7, 7)
    """

    intermediate_size: Integer = option(default=3072, convert=positive)
    hidden_act: str = option(default="quick_gelu", convert=activation_name, kw_only=True)
    layer_norm_eps: Real = option(default=1e-5, convert=epsilon, kw_only=True)
    patch_size: Sizes = option(default=32, convert=sizes(2), kw_only=True)
    projection_dim: Integer = option(default=512, convert=positive, kw_only=True)

    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"projection": ("visual_projection.weight",)}
    )
    neutral: ClassVar[Reasons] = _TOWER


def _nested(cls: type[C]) -> Callable[[Any], C]:
    """Returns the converter of a field that accepts a `cls` or its mapping in `config.json`."""

    def convert(value: Any) -> C:
        if isinstance(value, cls):
            return value
        if value is not None and not isinstance(value, Mapping):
            raise ValueError(
                f"expected a {cls.__name__} or a mapping, received {type(value).__name__}. Correct the "
                "key in config.json."
            )
        return cls.read(value or {})

    return convert


def _sections(text: type[Config], vision: type[Config]) -> Mapping[str, type[Config]]:
    """Returns the classes by key; old checkpoints have two keys for each encoder."""
    classes = {"text_config": text, "vision_config": vision}
    return FrozenDict(classes | {f"{key}_dict": cls for key, cls in classes.items()})


class _TwoEncoders(Config):
    neutral: ClassVar[Reasons] = FrozenDict(
        {"initial value of a weight": ("logit_scale_init_value",)}
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        fields = dict(mapping)
        for key in ("text_config", "vision_config"):
            # old checkpoints have both keys; transformers prefers this key
            repeated = fields.pop(f"{key}_dict", None)
            fields[key] = repeated or fields.get(key)
        return fields

    def write(self) -> dict[str, Any]:
        mapping = super().write()
        for key, value in mapping.items():
            if isinstance(value, Config):
                mapping[key] = value.write()
        return mapping


class ClipConfig(_TwoEncoders):
    """Configuration of CLIP: the fields are the keys of `config.json`.

    Args:
        text_config: configuration of the text encoder.
        vision_config: configuration of the vision encoder.
        projection_dim: size of the image and text embeddings.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.ClipConfig().text_config.hidden_size
        512
    """

    sections: ClassVar[Mapping[str, type[Config]]] = _sections(ClipTextConfig, ClipVisionConfig)

    text_config: ClipTextConfig = option(default=None, convert=_nested(ClipTextConfig))
    vision_config: ClipVisionConfig = option(default=None, convert=_nested(ClipVisionConfig))
    projection_dim: Integer = option(default=512, convert=positive)


class SiglipConfig(_TwoEncoders):
    """Configuration of SigLIP: the fields are the keys of `config.json`.

    Args:
        text_config: configuration of the text encoder.
        vision_config: configuration of the vision encoder.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.SiglipConfig().vision_config.grid
        (14, 14)
    """

    sections: ClassVar[Mapping[str, type[Config]]] = _sections(SiglipTextConfig, SiglipVisionConfig)

    text_config: SiglipTextConfig = option(default=None, convert=_nested(SiglipTextConfig))
    vision_config: SiglipVisionConfig = option(default=None, convert=_nested(SiglipVisionConfig))


def _text(config: _TextConfig, ids: Tensor, positions: Tensor, mask: Mask | None) -> Tensor:
    """Returns the hidden states of a text encoder."""
    width = config.hidden_size
    embedding = layers.Embedding(config.vocab_size, width, name="embedding")
    table = layers.Embedding(config.max_position_embeddings, width, name="position_embedding")
    x = add(embedding(ids), table(ops.maximum(positions, 0)), "embedding_add")
    x = _blocks(config, x, mask)
    return norm(x, config.layer_norm_eps, "norm")


def _blocks(config: _TextConfig | ClipVisionConfig, x: Tensor, mask: Mask | None = None) -> Tensor:
    return pre_norm_blocks(
        x,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.intermediate_size,
        activation=config.hidden_act,
        epsilon=config.layer_norm_eps,
        mask=mask,
    )


def _projected(outputs: dict[str, Tensor], size: int | None) -> dict[str, Tensor]:
    """Returns the outputs with a projection of "pooled" to `size`; unchanged for None."""
    if size is None:
        return outputs
    y = layers.Dense(size, use_bias=False, name="projection")(outputs["pooled"])
    return {**outputs, "projected": y, "embedding": layers.UnitNormalization(name="normalize")(y)}


def _own_size(config: ClipTextConfig | ClipVisionConfig) -> int | None:
    """Returns the size of the projection of an encoder alone."""
    return config.projection_dim if "projection" in config.parts else None


def _clip_text(config: ClipTextConfig, size: int | None) -> Model:
    ids = Input((None,), dtype="int32", name="ids")
    positions = layers.Positions(name="positions")(ids)
    x = _text(config, ids, positions, Causal())
    end = config.eos_token_id
    plain = ops.unmask(ids)
    # argmax returns the first end token: the same id may also be the padding
    is_end = plain if end == 2 else ops.cast(ops.equal(plain, end), "int32")
    pooled = token_where(x, ops.where(ops.unmask(positions) >= 0, is_end, -1))
    return Model(ids, _projected({"hidden": x, "pooled": pooled}, size), name="text")


def _clip_vision(config: ClipVisionConfig, size: int | None) -> Model:
    images, x = patches(config, bias=False)
    x = layers.PatchSequence(config.grid, 1, name="sequence")(x)
    x = _blocks(config, norm(x, config.layer_norm_eps, "pre_norm"))
    pooled = norm(x[:, 0], config.layer_norm_eps, "norm")
    return Model(images, _projected({"hidden": x, "pooled": pooled}, size), name="vision")


def _siglip_text(config: SiglipTextConfig) -> Model:
    # SigLIP was trained on texts padded to this length, without a mask
    ids = Input((config.max_position_embeddings,), dtype="int32", name="ids")
    plain = ops.unmask(ids)
    x = _text(config, plain, layers.Positions(name="positions")(plain), None)
    size = config.projection_size or config.hidden_size
    pooled = layers.Dense(size, name="head")(x[:, -1])
    embedding = layers.UnitNormalization(name="normalize")(pooled)
    return Model(ids, {"hidden": x, "pooled": pooled, "embedding": embedding}, name="text")


def _joined(
    config: ClipConfig | SiglipConfig, vision: Model, text: Model, length: int | None, bias: bool
) -> Model:
    """Returns the model of both encoders; `length` is the number of tokens of a text, or None."""
    images = Input((None, None, config.vision_config.num_channels), name="images")
    ids = Input((length,), dtype="int32", name="ids")
    image, words = vision(images)["embedding"], text(ids)["embedding"]
    similarities = ops.matmul(image, ops.transpose(words))
    logits = layers.LogitScale(bias, name="logit_scale")(similarities)
    outputs = {"image": image, "text": words, "logits": logits}
    return Model([images, ids], outputs, name="siglip" if bias else "clip")


def _build_clip(config: ClipConfig) -> Model:
    vision = _clip_vision(config.vision_config, config.projection_dim)
    text = _clip_text(config.text_config, config.projection_dim)
    return _joined(config, vision, text, None, bias=False)


def _build_siglip(config: SiglipConfig) -> Model:
    vision = build_siglip_vision(_with_head(config.vision_config), embedding=True)
    length = config.text_config.max_position_embeddings
    return _joined(config, vision, _siglip_text(config.text_config), length, bias=True)


def _with_head(config: SiglipVisionConfig) -> SiglipVisionConfig:
    return dataclasses.replace(config, parts=("head",))


def _text_rows(config: _TextConfig, graph: str) -> tuple[Row, ...]:
    """Returns the rows of a text encoder; `graph` is the prefix of the weight paths."""
    p = "text_model."
    n = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    return (
        Row(f"{p}embeddings.token_embedding.weight", f"{graph}embedding/embeddings"),
        Row(f"{p}embeddings.position_embedding.weight", f"{graph}position_embedding/embeddings"),
        *in_blocks(
            range(config.num_hidden_layers),
            *pre_norm_rows(f"{p}encoder.layers.{{i}}.", f"{graph}block_{{i}}/", *n),
        ),
        *norm_rows(f"{p}final_layer_norm", f"{graph}norm"),
    )


def _clip_vision_rows(config: ClipVisionConfig, graph: str) -> tuple[Row, ...]:
    p, width = "vision_model.", config.hidden_size
    shape = Reshape((width,), (1, width))
    return (
        Row(f"{p}embeddings.class_embedding", f"{graph}sequence/tokens", shape),
        *dense_rows(f"{p}embeddings.patch_embedding", f"{graph}patches", False, Convolution()),
        Row(f"{p}embeddings.position_embedding.weight", f"{graph}sequence/embeddings"),
        *norm_rows(f"{p}pre_layrnorm", f"{graph}pre_norm"),
        *in_blocks(
            range(config.num_hidden_layers),
            *pre_norm_rows(f"{p}encoder.layers.{{i}}.", f"{graph}block_{{i}}/", *config.head_shape),
        ),
        *norm_rows(f"{p}post_layernorm", f"{graph}norm"),
    )


def _clip_names(config: ClipConfig) -> tuple[Row, ...]:
    return (
        *_text_rows(config.text_config, "text/"),
        *dense_rows("text_projection", "text/projection", bias=False),
        *_clip_vision_rows(config.vision_config, "vision/"),
        *dense_rows("visual_projection", "vision/projection", bias=False),
        Row("logit_scale", "logit_scale/log_scale"),
    )


def _with_projection(
    rows: tuple[Row, ...], config: ClipTextConfig | ClipVisionConfig, tensor: str
) -> tuple[Row, ...]:
    projection = dense_rows(tensor, "projection", bias=False)
    return (*rows, *projection) if "projection" in config.parts else rows


def _clip_text_names(config: ClipTextConfig) -> tuple[Row, ...]:
    return _with_projection(_text_rows(config, ""), config, "text_projection")


def _clip_vision_names(config: ClipVisionConfig) -> tuple[Row, ...]:
    return _with_projection(_clip_vision_rows(config, ""), config, "visual_projection")


def _siglip_text_names(config: SiglipTextConfig, graph: str = "") -> tuple[Row, ...]:
    return (*_text_rows(config, graph), *dense_rows("text_model.head", f"{graph}head"))


def _siglip_names(config: SiglipConfig) -> tuple[Row, ...]:
    vision = _with_head(config.vision_config)
    return (
        *_siglip_text_names(config.text_config, "text/"),
        *siglip_vision_names(vision, graph="vision/"),
        Row("logit_scale", "logit_scale/log_scale", Reshape((1,), ())),
        Row("logit_bias", "logit_scale/bias", Reshape((1,), ())),
    )


_SMALL: Mapping[str, Any] = FrozenDict(
    {
        "num_hidden_layers": 2,
        "layer_norm_eps": 3e-3,
    }
)
_TEXT: Mapping[str, Any] = FrozenDict(
    {
        **_SMALL,
        "vocab_size": 67,
        "hidden_size": 16,
        "intermediate_size": 28,
        "num_attention_heads": 4,
        "max_position_embeddings": 15,
    }
)
_VISION: Mapping[str, Any] = FrozenDict(
    {
        **_SMALL,
        "hidden_size": 24,
        "intermediate_size": 44,
        "num_attention_heads": 3,
        "image_size": 20,
        "patch_size": 5,
    }
)
_COMMON: Mapping[str, Any] = FrozenDict(
    {
        "ignored": ("*.position_ids",),
        "files": (PREPROCESSOR,),
        "processor": ImageProcessor.read,
    }
)

_TEXT_TOWER: Mapping[str, Any] = FrozenDict(
    {"prefix": "text_model.", "ignored": ("*.position_ids",), "adapted": with_parts}
)

CLIP = Family(
    classes={"clip": ("CLIPModel",)},
    config=ClipConfig,
    build=_build_clip,
    names=_clip_names,
    tiny=ClipConfig(
        text_config=ClipTextConfig(**_TEXT, eos_token_id=66),
        vision_config=ClipVisionConfig(**_VISION),
        projection_dim=14,
        model_type="clip",
    ),
    **_COMMON,
)
SIGLIP = Family(
    classes={"siglip": ("SiglipModel",)},
    config=SiglipConfig,
    build=_build_siglip,
    names=_siglip_names,
    tiny=SiglipConfig(
        text_config=SiglipTextConfig(**_TEXT, hidden_act="gelu", projection_size=24),
        vision_config=SiglipVisionConfig(**_VISION, hidden_act="gelu"),
        model_type="siglip",
    ),
    **_COMMON,
)
CLIP_TEXT = Family(
    classes={"clip_text_model": ("CLIPTextModel", "CLIPTextModelWithProjection")},
    config=ClipTextConfig,
    build=lambda config: _clip_text(config, _own_size(config)),
    names=_clip_text_names,
    tiny=ClipTextConfig(
        **_TEXT,
        eos_token_id=66,
        projection_dim=14,
        parts=("projection",),
        model_type="clip_text_model",
    ),
    **_TEXT_TOWER,
)
CLIP_VISION = Family(
    classes={"clip_vision_model": ("CLIPVisionModel", "CLIPVisionModelWithProjection")},
    config=ClipVisionConfig,
    build=lambda config: _clip_vision(config, _own_size(config)),
    names=_clip_vision_names,
    tiny=ClipVisionConfig(
        **_VISION, projection_dim=14, parts=("projection",), model_type="clip_vision_model"
    ),
    prefix="vision_model.",
    adapted=with_parts,
    **_COMMON,
)
SIGLIP_TEXT = Family(
    classes={"siglip_text_model": ("SiglipTextModel",)},
    config=SiglipTextConfig,
    build=_siglip_text,
    names=_siglip_text_names,
    tiny=SiglipTextConfig(
        **_TEXT, hidden_act="gelu", projection_size=20, model_type="siglip_text_model"
    ),
    **_TEXT_TOWER,
)
