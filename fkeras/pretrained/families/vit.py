"""Vision transformers: ViT, DINOv2 (with and without registers) and the vision encoder of SigLIP.

Images have the channels last, (b, h, w, c). The models return a dictionary: "hidden" (b, t, d), and
"pooled" and "classes" if the checkpoint has the pooler and the classifier. "pooled" of DINOv2 is the
hidden state of the class token; a backbone also has a feature map (b, rows, columns, d) for each stage,
such as "stage4". DINOv2 with a mask token has a second, optional input: "masked" (b, rows,
columns), True for each patch that the mask token replaces.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, cast

from fkeras import layers, ops
from fkeras.authoring.engine import (
    Integer,
    OptionalInteger,
    Real,
    Sizes,
    boolean,
    integer,
    several,
    sizes,
    text,
)
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.pretrained.blocks.activation import activate, activation_name
from fkeras.pretrained.blocks.encoder_blocks import (
    Tensor,
    add,
    attention,
    norm,
    pre_norm_blocks,
    pre_norm_states,
)
from fkeras.pretrained.blocks.encoder_config import EncoderConfig, with_parts
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.media.images import ImageProcessor
from fkeras.pretrained.tables.config import (
    check_heads,
    count,
    epsilon,
    number,
    optional_positive,
    positive,
    whole_factor,
)
from fkeras.pretrained.tables.family import PREPROCESSOR, Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Convolution, HeadsIn, Reshape, Row, in_blocks
from fkeras.pretrained.tables.rows import (
    attention_rows,
    dense_rows,
    fused_attention_rows,
    fused_mlp_rows,
    norm_rows,
    pre_norm_rows,
)

_stages = several(text(), "a list of names of stages", least=0, optional=True)
_indices = several(integer(), "a list of integers", least=0, optional=True)
# pixels; bounds the table of position embeddings
_LARGEST_SIDE = 1 << 15


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
            if max(value) > _LARGEST_SIDE:
                raise ValueError(
                    f"{type(self).__name__}: {name}: expected at most {_LARGEST_SIDE}, received "
                    f"{str(value)[:80]}. Correct config.json."
                )

    def write(self) -> dict[str, Any]:
        mapping = super().write()
        for name in ("image_size", "patch_size"):
            value = mapping.get(name)
            # CLIP of transformers computes with one number
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


class Dinov2Config(VisionConfig):
    """Configuration of DINOv2: the fields are the keys of `config.json`.

    Args:
        mlp_ratio: hidden size of the MLP, divided by `hidden_size`.
        layerscale_value: initial value of the layer scales.
        use_swiglu_ffn: whether the MLP is a SwiGLU.
        num_register_tokens: number of register tokens after the class token.
        out_features: stages whose feature maps a backbone returns: "stem" for the embeddings, "stage1" for the
            output of the first block, and so on; None for the last stage.
        out_indices: the same stages as numbers, where 0 is the stem; negative numbers count from the end.
        apply_layernorm: whether the feature maps are normalized.
        reshape_hidden_states: whether a feature map is (b, rows, columns, d), without class token and
            registers, and not (b, t, d).
        parts: parts that the checkpoint has, of "mask_token" and "classifier", which `load` finds by the
            tensor names; "maps" for a backbone, which `load` finds by the class.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.Dinov2Config(mlp_ratio=4, use_swiglu_ffn=True).inner
        2048
    """

    mlp_ratio: Real = option(default=4, convert=whole_factor)
    qkv_bias: bool = option(default=True, convert=boolean)
    layerscale_value: Real = option(default=1.0, convert=number)
    use_swiglu_ffn: bool = option(default=False, convert=boolean)
    num_register_tokens: Integer = option(
        default=0, convert=integer(minimum=0, maximum=_LARGEST_SIDE)
    )

    out_features: tuple[str, ...] | None = option(default=None, convert=_stages, kw_only=True)
    out_indices: tuple[int, ...] | None = option(default=None, convert=_indices, kw_only=True)
    apply_layernorm: bool = option(default=True, convert=boolean, kw_only=True)
    reshape_hidden_states: bool = option(default=True, convert=boolean, kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "names that follow from the number of blocks": ("stage_names",),
            "regularization in training": ("drop_path_rate",),
            "the tensors have the mask token": ("use_mask_token",),
        }
    )
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"dinov2": ("num_register_tokens",)}
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {
            "mask_token": ("embeddings.mask_token",),
            "classifier": ("classifier.weight",),
            "maps": (),
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stages()

    def stages(self) -> tuple[int, ...]:
        """Returns the numbers of the stages whose feature maps a backbone returns.

        Raises:
            ValueError: for stages that the model lacks, in another order, or that the two fields give differently.
        """
        blocks = range(1, cast(int, self.num_hidden_layers) + 1)
        names = ["stem", *(f"stage{n}" for n in blocks)]
        count = len(names)
        given = [
            [names.index(name) if name in names else count for name in self.out_features or ()],
            [n + count if n < 0 else n for n in self.out_indices or ()],
        ]
        given = [numbers for numbers in given if numbers]
        stages = tuple(given[0] if given else [count - 1])
        is_ordered = list(stages) == sorted({*stages} & {*range(count)})
        if not is_ordered or any(numbers != given[0] for numbers in given):
            raise ValueError(
                f"{type(self).__name__}: out_features and out_indices: expected equal stages among "
                f"{names[0]}, {names[1]}, ..., {names[-1]} in this order, received "
                f"{str(self.out_features)[:80]} and {str(self.out_indices)[:80]}. Correct config.json."
            )
        return stages

    @property
    def inner(self) -> int:
        """Hidden size of the MLP."""
        width = int(self.hidden_size * self.mlp_ratio)
        # two thirds, rounded up to a multiple of 8: a gated MLP has three matrices instead of two
        return (int(width * 2 / 3) + 7) // 8 * 8 if self.use_swiglu_ffn else width


class Dinov2RegistersConfig(Dinov2Config):
    """Configuration of DINOv2 with registers; other fields are those of `Dinov2Config`.

    Args:
        num_register_tokens: number of register tokens after the class token.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.Dinov2RegistersConfig().num_register_tokens
        4
    """

    num_register_tokens: Integer = option(
        default=4, convert=integer(minimum=0, maximum=_LARGEST_SIDE)
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
    x = layers.PatchSequence(config.grid, 1, name="sequence")(x)
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
    return Model(images, outputs, name="vit")


def _build_dinov2(config: Dinov2Config) -> Model:
    registers = config.num_register_tokens
    images, x = patches(config)
    inputs: Any = images
    patched = x
    if "mask_token" in config.parts:
        masked = Input((None, None), dtype="bool", name="masked", optional=True)
        x = layers.MaskedPatches(name="mask_token")(x, masked)
        inputs = [images, masked]
    # transformers antialiases resized position embeddings only in the model with registers
    antialias = isinstance(config, Dinov2RegistersConfig)
    x = layers.PatchSequence(config.grid, 1, antialias, name="sequence")(x)
    if registers:
        tokens = layers.LearnedTokens(registers, name="registers")(x)
        x = layers.Concatenate(axis=1, name="register_tokens")([x[:, :1], tokens, x[:, 1:]])
    states = pre_norm_states(
        x,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.inner,
        activation=config.hidden_act,
        epsilon=config.layer_norm_eps,
        bias=config.qkv_bias,
        gated=config.use_swiglu_ffn,
        layer_scale=config.layerscale_value,
    )
    normalize = layers.LayerNormalization(epsilon=config.layer_norm_eps, name="norm")
    x = normalize(states[-1])
    outputs = {"hidden": x, "pooled": x[:, 0]}
    for n in config.stages() if "maps" in config.parts else ():
        y = normalize(states[n]) if config.apply_layernorm else states[n]
        if config.reshape_hidden_states:
            y = ops.take(y, _places(patched, 1 + registers), axis=1)
        outputs[f"stage{n}" if n else "stem"] = y
    if "classifier" in config.parts:
        mean = ops.mean(x[:, 1 + registers :], axis=1)
        y = layers.Concatenate(name="features")([outputs["pooled"], mean])
        outputs["classes"] = layers.Dense(config.num_labels, name="classifier")(y)
    return Model(inputs, outputs, name="dinov2")


def _places(patched: Tensor, prefix: int) -> Tensor:
    """Returns the index (rows, columns) of each patch in the sequence, after `prefix` other tokens."""
    ones = ops.cast(ops.ones_like(patched[0, :, :, 0]), "int32")
    row, column = ops.cumsum(ones, axis=0) - 1, ops.cumsum(ones, axis=1) - 1
    return row * ops.sum(ones, axis=1, keepdims=True) + column + prefix


def _dinov2_adapted(config: Dinov2Config, tensors: Collection[str]) -> Dinov2Config:
    """Returns the configuration with its parts; a backbone has the tensors of a model without head."""
    config = with_parts(config, tensors)
    if config.named_parts != ("maps",):
        return config
    return dataclasses.replace(config, parts=(*config.parts, "maps"))


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


def _embedding_rows(config: VisionConfig, prefix: str) -> tuple[Row, ...]:
    rows, columns = config.grid
    width = config.hidden_size
    table = 1 + rows * columns, width
    return (
        Row(f"{prefix}cls_token", "sequence/tokens", Reshape((1, 1, width), (1, width))),
        Row(f"{prefix}position_embeddings", "sequence/embeddings", Reshape((1, *table), table)),
        *dense_rows(f"{prefix}patch_embeddings.projection", "patches", kernel=Convolution()),
    )


def _attention_rows(
    config: ViTConfig | Dinov2Config, prefix: str, current: bool
) -> tuple[Row, ...]:
    tensors = ("attention.query", "attention.key", "attention.value", "output.dense")
    if current:
        tensors = ("q_proj", "k_proj", "v_proj", "o_proj")
    shape, bias = config.head_shape, config.qkv_bias
    return attention_rows(prefix, "block_{i}/", *shape, tensors, bias=bias)


def _vit_names(config: ViTConfig, current: bool = False) -> tuple[Row, ...]:
    """Returns the table of names of checkpoints; with `current` of the modules of transformers 5."""
    b = "vit.layers.{i}." if current else "vit.encoder.layer.{i}."
    mlp = ("mlp.fc1", "mlp.fc2") if current else ("intermediate.dense", "output.dense")
    rows = [
        *_embedding_rows(config, "vit.embeddings."),
        *in_blocks(
            range(config.num_hidden_layers),
            *norm_rows(f"{b}layernorm_before", "block_{i}/attention_norm"),
            *_attention_rows(config, f"{b}attention.", current),
            *norm_rows(f"{b}layernorm_after", "block_{i}/mlp_norm"),
            *dense_rows(f"{b}{mlp[0]}", "block_{i}/mlp_in"),
            *dense_rows(f"{b}{mlp[1]}", "block_{i}/mlp_out"),
        ),
        *norm_rows("vit.layernorm", "norm"),
    ]
    if "pooler" in config.parts:
        rows += dense_rows("vit.pooler.dense", "pooler")
    if "classifier" in config.parts:
        rows += dense_rows("classifier", "classifier")
    return tuple(rows)


def _dinov2_names(config: Dinov2Config, current: bool = False) -> tuple[Row, ...]:
    """Returns the table of names of checkpoints; with `current` of the modules of transformers 5."""
    registers, width = config.num_register_tokens, config.hidden_size
    p = "dinov2_with_registers." if isinstance(config, Dinov2RegistersConfig) else "dinov2."
    b = f"{p}encoder.layer.{{i}}."
    if config.use_swiglu_ffn and current:
        parts = ("gate", "up", "down")
        mlp_rows = [r for n in parts for r in dense_rows(f"{b}mlp.{n}_proj", f"block_{{i}}/{n}")]
    elif config.use_swiglu_ffn:
        gates = fused_mlp_rows(f"{b}mlp.weights_in.", "block_{i}/", config.inner)
        mlp_rows = (*gates, *dense_rows(f"{b}mlp.weights_out", "block_{i}/down"))
    else:
        names = (("fc1", "mlp_in"), ("fc2", "mlp_out"))
        mlp_rows = [r for t, n in names for r in dense_rows(f"{b}mlp.{t}", f"block_{{i}}/{n}")]
    rows = [*_embedding_rows(config, f"{p}embeddings."), *norm_rows(f"{p}layernorm", "norm")]
    if "mask_token" in config.parts:
        shape = Reshape((1, width), (width,))
        rows.append(Row(f"{p}embeddings.mask_token", "mask_token/token", shape))
    if registers:
        shape = Reshape((1, registers, width), (registers, width))
        rows.append(Row(f"{p}embeddings.register_tokens", "registers/tokens", shape))
    rows += in_blocks(
        range(config.num_hidden_layers),
        *norm_rows(f"{b}norm1", "block_{i}/attention_norm"),
        *_attention_rows(config, f"{b}attention.", current),
        Row(f"{b}layer_scale1.lambda1", "block_{i}/attention_scale/gamma"),
        *norm_rows(f"{b}norm2", "block_{i}/mlp_norm"),
        *mlp_rows,
        Row(f"{b}layer_scale2.lambda1", "block_{i}/mlp_scale/gamma"),
    )
    if "classifier" in config.parts:
        rows += dense_rows("classifier", "classifier")
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


_TINY: Mapping[str, Any] = FrozenDict(
    {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "layer_norm_eps": 3e-3,
        "image_size": 20,
        "patch_size": 5,
    }
)
_COMMON: Mapping[str, Any] = FrozenDict(
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
        **_TINY,
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
    **_COMMON,
)
DINOV2 = Family(
    classes={"dinov2": ("Dinov2Model", "Dinov2ForImageClassification", "Dinov2Backbone")},
    config=Dinov2Config,
    build=_build_dinov2,
    names=_dinov2_names,
    modules=functools.partial(_dinov2_names, current=True),
    tiny=Dinov2Config(
        **_TINY,
        mlp_ratio=2,
        use_swiglu_ffn=True,
        layerscale_value=0.7,
        parts=("mask_token",),
        model_type="dinov2",
    ),
    prefix="dinov2.",
    adapted=_dinov2_adapted,
    **_COMMON,
)
DINOV2_REGISTERS = Family(
    classes={
        "dinov2_with_registers": (
            "Dinov2WithRegistersModel",
            "Dinov2WithRegistersForImageClassification",
            "Dinov2WithRegistersBackbone",
        )
    },
    config=Dinov2RegistersConfig,
    build=_build_dinov2,
    names=_dinov2_names,
    modules=functools.partial(_dinov2_names, current=True),
    tiny=Dinov2RegistersConfig(
        **_TINY,
        mlp_ratio=3,
        hidden_act="gelu_new",
        num_register_tokens=3,
        qkv_bias=False,
        parts=("mask_token",),
        model_type="dinov2_with_registers",
    ),
    prefix="dinov2_with_registers.",
    adapted=_dinov2_adapted,
    **_COMMON,
)
SIGLIP_VISION = Family(
    classes={"siglip_vision_model": ("SiglipVisionModel",)},
    config=SiglipVisionConfig,
    build=build_siglip_vision,
    names=siglip_vision_names,
    modules=functools.partial(siglip_vision_names, p=""),
    tiny=SiglipVisionConfig(
        **_TINY,
        intermediate_size=40,
        hidden_act="gelu",
        parts=("head",),
        model_type="siglip_vision_model",
    ),
    prefix="vision_model.",
    adapted=with_parts,
    **_COMMON,
)
