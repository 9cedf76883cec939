"""Vision transformers: ViT, DeiT and the vision encoder of SigLIP; DINOv2 is in `dinov2.py`.

Images have the channels last, (b, h, w, c). The models return a dictionary: "hidden" (b, t, d), and
"pooled" and "classes" if the checkpoint has the pooler and the classifier.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from fkeras import layers
from fkeras.authoring.engine import (
    Integer,
    OptionalInteger,
    Real,
    Sizes,
    boolean,
    sizes,
)
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.pretrained.blocks.activation import activate, activation_name
from fkeras.pretrained.blocks.encoder_blocks import (
    Tensor,
    add,
    attention,
    norm,
    pre_norm_blocks,
)
from fkeras.pretrained.blocks.encoder_config import EncoderConfig, with_parts
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.media.images import ImageProcessor
from fkeras.pretrained.tables.config import (
    check_heads,
    count,
    epsilon,
    optional_positive,
    positive,
)
from fkeras.pretrained.tables.family import PREPROCESSOR, Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Convolution, HeadsIn, Reshape, Row, Stack, in_blocks
from fkeras.pretrained.tables.rows import (
    attention_rows,
    dense_rows,
    fused_attention_rows,
    norm_rows,
    pre_norm_rows,
)

# pixels; bounds the table of position embeddings
LARGEST_SIDE = 1 << 15


class VisionConfig(EncoderConfig):
    """Fields that vision transformers share.

    Args of the family:
        num_channels: number of channels of the images.
        image_size: height and width of the images in pretraining; the position embeddings are resized
            for images of other sizes.
        patch_size: height and width of a patch.
        qkv_bias: whether the projections to queries, keys and values have biases.
    """

    hidden_size: Integer = option(default=768, convert=positive, kw_only=True)
    num_hidden_layers: Integer = option(default=12, convert=count, kw_only=True)
    num_attention_heads: Integer = option(default=12, convert=positive, kw_only=True)
    num_channels: Integer = option(default=3, convert=positive, kw_only=True)
    image_size: Sizes = option(default=224, convert=sizes(2), kw_only=True)
    patch_size: Sizes = option(default=16, convert=sizes(2), kw_only=True)
    hidden_act: str = option(default="gelu", convert=activation_name, kw_only=True)
    layer_norm_eps: Real = option(default=1e-6, convert=epsilon, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self, "num_attention_heads", "hidden_size")
        for name in ("image_size", "patch_size"):
            value = cast(tuple[int, int], getattr(self, name))
            if max(value) > LARGEST_SIDE:
                raise ValueError(
                    f"{type(self).__name__}: {name}: expected at most {LARGEST_SIDE}, received "
                    f"{str(value)[:80]}. Correct config.json."
                )

    def write(self) -> dict[str, Any]:
        mapping = super().write()
        for name in ("image_size", "patch_size"):
            value = mapping.get(name)
            # transformers' CLIP computes with an integer, not with a list
            if name not in self.source and isinstance(value, list) and len({*value}) == 1:
                mapping[name] = value[0]
        return mapping

    @property
    def grid(self) -> tuple[int, int]:
        """Number of rows and columns of patches."""
        image, patch = (
            cast(tuple[int, int], self.image_size),
            cast(tuple[int, int], self.patch_size),
        )
        return image[0] // patch[0], image[1] // patch[1]

    @property
    def head_shape(self) -> tuple[int, int]:
        """Number of heads, and size of a head."""
        return self.num_attention_heads, self.hidden_size // self.num_attention_heads


class ViTConfig(VisionConfig):
    """Configuration of ViT: the fields are the keys of `config.json`.

    Args:
        pooler_output_size: units of the pooler; None for `hidden_size`.
        pooler_act: activation of the pooler.
        parts: heads that the checkpoint has, of "pooler" and "classifier"; `load` finds them by the tensor
            names.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.ViTConfig(image_size=64).grid
        (4, 4)
    """

    intermediate_size: Integer = option(default=3072, convert=positive)
    layer_norm_eps: Real = option(default=1e-12, convert=epsilon, kw_only=True)
    qkv_bias: bool = option(default=True, convert=boolean)
    pooler_output_size: OptionalInteger = option(default=None, convert=optional_positive)
    pooler_act: str = option(default="tanh", convert=activation_name)

    neutral: ClassVar[Reasons] = FrozenDict({"an option of another head": ("encoder_stride",)})
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"pooler": ("pooler.dense.weight",), "classifier": ("classifier.weight",)}
    )


class DeiTConfig(ViTConfig):
    """Configuration of DeiT, which has a distillation token after the class token; other fields are those of `ViTConfig`.

    Args:
        parts: heads that the checkpoint has, of "pooler", "classifier" and "teacher" (a second classifier, of the
            distillation token); `load` finds them by the tensor names.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.DeiTConfig(image_size=64).grid
        (4, 4)
    """

    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "pooler": ("pooler.dense.weight",),
            "classifier": ("/classifier.weight", "/cls_classifier.weight"),
            "teacher": ("/distillation_classifier.weight",),
        }
    )


class SiglipVisionConfig(VisionConfig):
    """Configuration of SigLIP's vision encoder: the fields are the keys of `config.json`.

    Args:
        parts: ("head",) if the checkpoint has the attention pooling head; `load` finds the head by the
            tensor names.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.SiglipVisionConfig(patch_size=14).grid
        (16, 16)
    """

    intermediate_size: Integer = option(default=3072, convert=positive)
    hidden_act: str = option(default="gelu_pytorch_tanh", convert=activation_name, kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict({"the tensors have the head": ("vision_use_head",)})
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict({"head": ("head.probe",)})


def patches(config: VisionConfig, bias: bool = True) -> tuple[Tensor, Tensor]:
    """Returns the input of the images, and the patch embeddings (b, h, w, d)."""
    images = Input((None, None, config.num_channels), name="images")
    project = layers.Conv2D(
        config.hidden_size, config.patch_size, config.patch_size, use_bias=bias, name="patches"
    )
    return images, project(images)


def _build_vit(config: ViTConfig) -> Model:
    images, x = patches(config)
    tokens = 2 if isinstance(config, DeiTConfig) else 1
    x = layers.PatchSequence(config.grid, tokens, name="sequence")(x)
    x = pre_norm_blocks(
        x,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.intermediate_size,
        activation=config.hidden_act,
        epsilon=config.layer_norm_eps,
        bias=config.qkv_bias,
    )
    x = norm(x, config.layer_norm_eps, "norm")
    outputs = {"hidden": x}
    if "pooler" in config.parts:
        size = config.pooler_output_size or config.hidden_size
        y = layers.Dense(size, name="pooler")(x[:, 0])
        outputs["pooled"] = activate(config.pooler_act, y)
    if "classifier" in config.parts:
        outputs["classes"] = layers.Dense(config.num_labels, name="classifier")(x[:, 0])
    if "teacher" in config.parts:
        y = layers.Dense(config.num_labels, name="teacher")(x[:, 1])
        outputs["classes"] = layers.Average(name="mean_classes")([outputs["classes"], y])
    return Model(images, outputs, name=config.model_type or "vit")


def build_siglip_vision(config: SiglipVisionConfig, embedding: bool = False) -> Model:
    """Returns the graph of SigLIP's vision encoder; `embedding` adds the normalized image embedding."""
    images, x = patches(config)
    x = layers.PatchSequence(config.grid, name="sequence")(x)
    x = pre_norm_blocks(
        x,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.intermediate_size,
        activation=config.hidden_act,
        epsilon=config.layer_norm_eps,
    )
    x = norm(x, config.layer_norm_eps, "norm")
    outputs = {"hidden": x}
    if "head" in config.parts:
        probe = layers.LearnedTokens(1, name="probe")(x)
        y = attention(probe, config.num_attention_heads, source=x, prefix="pool_")
        z = norm(y, config.layer_norm_eps, "pool_norm")
        z = mlp(z, config.intermediate_size, config.hidden_act, prefix="pool_mlp_")
        outputs["pooled"] = add(y, z, "pool_add")[:, 0]
    if embedding:
        outputs["embedding"] = layers.UnitNormalization(name="normalize")(outputs["pooled"])
    return Model(images, outputs, name="vision")


def embedding_rows(
    config: VisionConfig, prefix: str, tokens: tuple[str, ...] = ("cls",)
) -> tuple[Row, ...]:
    """Returns the rows of class tokens, positions and patches; `tokens` are starts of the tensor names."""
    rows, columns = config.grid
    width = config.hidden_size
    table = len(tokens) + rows * columns, width
    token = Stack(Reshape((1, 1, width), (width,)))
    return (
        Row(f"{prefix}{{e}}_token", "sequence/tokens", token, experts=tokens),
        Row(f"{prefix}position_embeddings", "sequence/embeddings", Reshape((1, *table), table)),
        *dense_rows(f"{prefix}patch_embeddings.projection", "patches", kernel=Convolution()),
    )


def head_rows(config: VisionConfig, bias: bool, prefix: str, current: bool) -> tuple[Row, ...]:
    """Returns the rows of attention; with `current` of the modules of transformers 5."""
    tensors = ("attention.query", "attention.key", "attention.value", "output.dense")
    if current:
        tensors = ("q_proj", "k_proj", "v_proj", "o_proj")
    shape = config.head_shape
    return attention_rows(prefix, "block_{i}/", *shape, tensors, bias=bias)


def _vit_names(config: ViTConfig, current: bool = False) -> tuple[Row, ...]:
    """Returns the table of names of checkpoints; with `current` of the modules of transformers 5."""
    distilled = isinstance(config, DeiTConfig)
    p, tokens = ("deit.", ("cls", "distillation")) if distilled else ("vit.", ("cls",))
    b = f"{p}layers.{{i}}." if current else f"{p}encoder.layer.{{i}}."
    mlp = ("mlp.fc1", "mlp.fc2") if current else ("intermediate.dense", "output.dense")
    rows = [
        *embedding_rows(config, f"{p}embeddings.", tokens),
        *in_blocks(
            range(config.num_hidden_layers),
            *norm_rows(f"{b}layernorm_before", "block_{i}/attention_norm"),
            *head_rows(config, config.qkv_bias, f"{b}attention.", current),
            *norm_rows(f"{b}layernorm_after", "block_{i}/mlp_norm"),
            *dense_rows(f"{b}{mlp[0]}", "block_{i}/mlp_in"),
            *dense_rows(f"{b}{mlp[1]}", "block_{i}/mlp_out"),
        ),
        *norm_rows(f"{p}layernorm", "norm"),
    ]
    if "pooler" in config.parts:
        rows += dense_rows(f"{p}pooler.dense", "pooler")
    teacher = "teacher" in config.parts
    if "classifier" in config.parts:
        rows += dense_rows("cls_classifier" if teacher else "classifier", "classifier")
    if teacher:
        rows += dense_rows("distillation_classifier", "teacher")
    return tuple(rows)


def siglip_vision_names(
    config: SiglipVisionConfig, p: str = "vision_model.", graph: str = ""
) -> tuple[Row, ...]:
    """Returns the table of names of SigLIP's vision encoder.

    Args:
        p: prefix of the tensor names.
        graph: prefix of the weight paths.
    """
    n, width = config.head_shape, config.hidden_size
    rows = [
        *dense_rows(f"{p}embeddings.patch_embedding", f"{graph}patches", kernel=Convolution()),
        Row(f"{p}embeddings.position_embedding.weight", f"{graph}sequence/embeddings"),
        *in_blocks(
            range(config.num_hidden_layers),
            *pre_norm_rows(f"{p}encoder.layers.{{i}}.", f"{graph}block_{{i}}/", *n),
        ),
        *norm_rows(f"{p}post_layernorm", f"{graph}norm"),
    ]
    if "head" in config.parts:
        shape = Reshape((1, 1, width), (1, width))
        h = f"{p}head."
        rows += [
            Row(f"{h}probe", f"{graph}probe/tokens", shape),
            *fused_attention_rows(f"{h}attention.in_proj_", f"{graph}pool_", *n),
            *dense_rows(f"{h}attention.out_proj", f"{graph}pool_output", kernel=HeadsIn(*n)),
            *norm_rows(f"{h}layernorm", f"{graph}pool_norm"),
            *dense_rows(f"{h}mlp.fc1", f"{graph}pool_mlp_in"),
            *dense_rows(f"{h}mlp.fc2", f"{graph}pool_mlp_out"),
        ]
    return tuple(rows)


TINY: Mapping[str, Any] = FrozenDict(
    {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "layer_norm_eps": 3e-3,
        "image_size": 20,
        "patch_size": 5,
    }
)
COMMON: Mapping[str, Any] = FrozenDict(
    {
        "files": (PREPROCESSOR,),
        "processor": ImageProcessor.read,
    }
)

VIT = Family(
    classes={"vit": ("ViTModel", "ViTForImageClassification")},
    config=ViTConfig,
    build=_build_vit,
    names=_vit_names,
    modules=functools.partial(_vit_names, current=True),
    tiny=ViTConfig(
        **TINY,
        intermediate_size=40,
        hidden_act="gelu_new",
        qkv_bias=False,
        pooler_output_size=18,
        pooler_act="relu",
        parts=("pooler",),
        model_type="vit",
    ),
    prefix="vit.",
    adapted=with_parts,
    **COMMON,
)
DEIT = Family(
    classes={
        "deit": (
            "DeiTModel",
            "DeiTForImageClassification",
            "DeiTForImageClassificationWithTeacher",
        )
    },
    config=DeiTConfig,
    build=_build_vit,
    names=_vit_names,
    modules=functools.partial(_vit_names, current=True),
    tiny=DeiTConfig(
        **TINY,
        intermediate_size=40,
        hidden_act="gelu_new",
        parts=("classifier", "teacher"),
        model_type="deit",
    ),
    prefix="deit.",
    adapted=with_parts,
    **COMMON,
)
SIGLIP_VISION = Family(
    classes={"siglip_vision_model": ("SiglipVisionModel",)},
    config=SiglipVisionConfig,
    build=build_siglip_vision,
    names=siglip_vision_names,
    modules=functools.partial(siglip_vision_names, p=""),
    tiny=SiglipVisionConfig(
        **TINY,
        intermediate_size=40,
        hidden_act="gelu",
        parts=("head",),
        model_type="siglip_vision_model",
    ),
    prefix="vision_model.",
    adapted=with_parts,
    **COMMON,
)
