"""Convolutional networks of images: ResNet and ConvNeXT.

Images have the channels last, (b, h, w, c). The models return a dictionary: "hidden" (b, h, w, d), "pooled"
(b, d), and "classes" if the checkpoint has the classifier. ResNet's batch normalizations have a state:
`loaded.model.apply(images, state=loaded.state).value`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from fkeras import layers, ops
from fkeras.authoring.engine import Integer, Real, boolean, choice, integer, real, several
from fkeras.authoring.layers import LayerScale
from fkeras.engine import FrozenDict, Input, Model, option
from fkeras.pretrained.blocks.activation import activate, activation_name
from fkeras.pretrained.blocks.encoder_blocks import Tensor, add, norm
from fkeras.pretrained.blocks.encoder_config import EncoderConfig, with_parts
from fkeras.pretrained.blocks.projections import mlp
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.media.images import ImageProcessor
from fkeras.pretrained.tables.config import count, epsilon, positive
from fkeras.pretrained.tables.family import PREPROCESSOR, Family
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.names import Convolution, Row
from fkeras.pretrained.tables.rows import dense_rows, norm_rows

_BATCH_EPSILON = 1e-5
_LAYER_EPSILON = 1e-6
_REDUCTION = 4


class ConvNetConfig(EncoderConfig):
    """Fields that convolutional networks share.

    Args of the family:
        num_channels: number of channels of the images.
        hidden_sizes: number of channels of each stage.
        depths: number of blocks of each stage.
    """

    num_channels: Integer = option(default=3, convert=positive, kw_only=True)
    hidden_sizes: tuple[int, ...] = option(
        default=(256, 512, 1024, 2048), convert=several(positive, "a list of sizes"), kw_only=True
    )
    depths: tuple[int, ...] = option(
        default=(3, 4, 6, 3), convert=several(count, "a list of numbers of blocks"), kw_only=True
    )

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "options of backbones": ("out_features", "out_indices", "stage_names"),
            "regularization and the size of the images in training": (
                "drop_path_rate",
                "image_size",
            ),
        }
    )
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"classifier": ("/classifier.weight", "/classifier.1.weight")}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.hidden_sizes) != len(self.depths):
            raise ValueError(
                f"{type(self).__name__}: depths: expected {len(self.hidden_sizes)} numbers, one for each of "
                f"hidden_sizes, received {len(self.depths)}. Correct config.json."
            )

    def blocks(self) -> Iterator[tuple[int, int, int, int]]:
        """Yields stage, index in the stage, input channels and output channels of each block."""
        before = self.stem_size
        for stage, (width, depth) in enumerate(zip(self.hidden_sizes, self.depths, strict=True)):
            for index in range(depth):
                yield stage, index, before, width
                before = width

    @property
    def stem_size(self) -> int:
        """Number of channels before the first stage."""
        return self.hidden_sizes[0]


class ResNetConfig(ConvNetConfig):
    """Configuration of ResNet: the fields are the keys of `config.json`.

    Args:
        embedding_size: number of channels of the first convolution.
        layer_type: "bottleneck" for blocks of three convolutions, "basic" for blocks of two.
        hidden_act: activation of the first convolution and after each block.
        downsample_in_first_stage: whether the first stage halves the image.
        downsample_in_bottleneck: whether the first convolution of a block halves the image instead of the second.
        parts: ("classifier",) if the checkpoint has the classifier; `load` finds it by the tensor names.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.ResNetConfig(hidden_sizes=(8, 16), depths=(1, 2))
        >>> [config.stride(*block) for block in config.blocks()]
        [1, 2, 1]
    """

    embedding_size: Integer = option(default=64, convert=positive)
    layer_type: str = option(default="bottleneck", convert=choice("bottleneck", "basic"))
    hidden_act: str = option(default="relu", convert=activation_name)
    downsample_in_first_stage: bool = option(default=False, convert=boolean)
    downsample_in_bottleneck: bool = option(default=False, convert=boolean)

    @property
    def stem_size(self) -> int:
        return self.embedding_size

    def stride(self, stage: int, index: int, before: int, width: int) -> int:
        """Returns the stride of a block of `blocks`."""
        halves = index == 0 and (stage > 0 or self.downsample_in_first_stage)
        return 2 if halves else 1

    def convolutions(self, stride: int, width: int) -> tuple[tuple[int, int, int], ...]:
        """Returns channels, kernel size and stride of the convolutions of a block."""
        if self.layer_type == "basic":
            return (width, 3, stride), (width, 3, 1)
        first, second = (stride, 1) if self.downsample_in_bottleneck else (1, stride)
        inner = max(width // _REDUCTION, 1)
        return (inner, 1, first), (inner, 3, second), (width, 1, 1)


class ConvNextConfig(ConvNetConfig):
    """Configuration of ConvNeXT: the fields are the keys of `config.json`.

    Args:
        patch_size: height and width of a patch, which the first convolution embeds.
        num_stages: number of stages: the length of `hidden_sizes`.
        layer_norm_eps: epsilon of the normalization of the pooled features.
        layer_scale_init_value: initial value of the layer scales; 0 for no layer scales.
        parts: ("classifier",) if the checkpoint has the classifier; `load` finds it by the tensor names.

    Example:
        >>> import fkeras as fk
        >>> fk.pretrained.ConvNextConfig().hidden_sizes
        (96, 192, 384, 768)
    """

    hidden_sizes: tuple[int, ...] = option(
        default=(96, 192, 384, 768), convert=several(positive, "a list of sizes"), kw_only=True
    )
    depths: tuple[int, ...] = option(
        default=(3, 3, 9, 3), convert=several(count, "a list of numbers of blocks"), kw_only=True
    )
    patch_size: Integer = option(default=4, convert=integer(minimum=1, maximum=1 << 15))
    num_stages: Integer = option(default=4, convert=count)
    hidden_act: str = option(default="gelu", convert=activation_name)
    layer_norm_eps: Real = option(default=1e-12, convert=epsilon)
    layer_scale_init_value: Real = option(default=1e-6, convert=real(minimum=0))

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict(
        {"num_hidden_layers": ("num_stages",)}
    )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        mapping, key = super().canonical(mapping), "num_hidden_layers"
        return {**mapping, "num_stages": mapping[key]} if key in mapping else mapping

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_stages != len(self.hidden_sizes):
            raise ValueError(
                f"ConvNextConfig: num_stages: expected {len(self.hidden_sizes)}, the number of hidden_sizes, "
                f"received {self.num_stages}. Correct config.json."
            )


def _convolution(
    x: Tensor, filters: int, size: int, stride: int, name: str, activation: str | None = None
) -> Tensor:
    """Records a convolution with `size // 2` zeros on all sides, batch normalization and an activation."""
    if size > 1:
        # padding="same" with stride 2 would pad at the end only
        x = layers.ZeroPadding2D(size // 2, name=f"{name}_padding")(x)
    x = layers.Conv2D(filters, size, stride, use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(epsilon=_BATCH_EPSILON, momentum=0.9, name=f"{name}_norm")(x)
    return x if activation is None else activate(activation, x)


def _build_resnet(config: ResNetConfig) -> Model:
    images = Input((None, None, config.num_channels), name="images")
    x = _convolution(images, config.embedding_size, 7, 2, "stem", config.hidden_act)
    # copies of the border do not change the maxima, whatever the activation
    x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    x = layers.MaxPooling2D(3, 2, name="stem_pool")(x)
    blocks = [*config.blocks()]
    kinds = [(config.stride(*block), *block[2:]) for block in blocks]
    for block in repeated(lambda i: _residual_block(config, *kinds[i]), kinds):
        x = block(x)
    pooled = layers.GlobalAveragePooling2D(name="pool")(x)
    return Model(images, _outputs(config, x, pooled), name="resnet")


def _residual_block(config: ResNetConfig, stride: int, before: int, width: int) -> Model:
    inputs = Input((None, None, before), name="x")
    *inner, last = config.convolutions(stride, width)
    y = inputs
    for number, convolution in enumerate(inner):
        y = _convolution(y, *convolution, f"layer_{number}", "relu")
    y = _convolution(y, *last, f"layer_{len(inner)}")
    x = inputs
    if stride != 1 or before != width:
        x = _convolution(x, width, 1, stride, "shortcut")
    return Model(inputs, activate(config.hidden_act, add(x, y, "add")))


def _build_convnext(config: ConvNextConfig) -> Model:
    images = Input((None, None, config.num_channels), name="images")
    x = layers.Conv2D(config.stem_size, config.patch_size, config.patch_size, name="patches")(
        images
    )
    x = norm(x, _LAYER_EPSILON, "patch_norm")
    blocks = [*config.blocks()]
    kinds = [(stage > 0 and index == 0, *sizes) for stage, index, *sizes in blocks]
    for block in repeated(lambda i: _convnext_block(config, *kinds[i]), kinds):
        x = block(x)
    pooled = layers.GlobalAveragePooling2D(name="pool")(x)
    pooled = norm(pooled, config.layer_norm_eps, "norm")
    return Model(images, _outputs(config, x, pooled), name="convnext")


def _convnext_block(config: ConvNextConfig, halves: bool, before: int, width: int) -> Model:
    x = inputs = Input((None, None, before), name="x")
    if halves:
        x = norm(x, _LAYER_EPSILON, "downsample_norm")
        x = layers.Conv2D(width, 2, 2, name="downsample")(x)
    y = layers.Conv2D(width, 7, padding="same", groups=width, name="depthwise")(x)
    y = mlp(norm(y, _LAYER_EPSILON, "mlp_norm"), 4 * width, config.hidden_act)
    if config.layer_scale_init_value:
        y = LayerScale(config.layer_scale_init_value, width, name="scale")(y)
    return Model(inputs, add(x, y, "add"))


def _outputs(config: ConvNetConfig, x: Tensor, pooled: Tensor) -> dict[str, Tensor]:
    outputs = {"hidden": x, "pooled": pooled}
    if "classifier" in config.parts:
        outputs["classes"] = layers.Dense(config.num_labels, name="classifier")(pooled)
    return outputs


def _convolution_rows(tensor: str, layer: str) -> tuple[Row, ...]:
    n, path = f"{tensor}.normalization.", f"{layer}_norm/"
    return (
        Row(f"{tensor}.convolution.weight", f"{layer}_conv/kernel", Convolution()),
        *norm_rows(f"{tensor}.normalization", f"{layer}_norm"),
        Row(f"{n}running_mean", f"{path}moving_mean"),
        Row(f"{n}running_var", f"{path}moving_variance"),
    )


def _resnet_names(config: ResNetConfig) -> tuple[Row, ...]:
    rows = [*_convolution_rows("resnet.embedder.embedder", "stem")]
    for i, (stage, index, before, width) in enumerate(config.blocks()):
        stride = config.stride(stage, index, before, width)
        b = f"resnet.encoder.stages.{stage}.layers.{index}."
        if stride != 1 or before != width:
            rows += _convolution_rows(f"{b}shortcut", f"block_{i}/shortcut")
        for number in range(len(config.convolutions(stride, width))):
            rows += _convolution_rows(f"{b}layer.{number}", f"block_{i}/layer_{number}")
    if "classifier" in config.parts:
        rows += dense_rows("classifier.1", "classifier")
    return tuple(rows)


def _convnext_names(config: ConvNextConfig) -> tuple[Row, ...]:
    p, kernel = "convnext.", Convolution()
    rows = [
        *dense_rows(f"{p}embeddings.patch_embeddings", "patches", kernel=kernel),
        *norm_rows(f"{p}embeddings.layernorm", "patch_norm"),
        *norm_rows(f"{p}layernorm", "norm"),
    ]
    for i, (stage, index, *_) in enumerate(config.blocks()):
        b = f"{p}encoder.stages.{stage}."
        if stage and not index:
            rows += norm_rows(f"{b}downsampling_layer.0", f"block_{i}/downsample_norm")
            rows += dense_rows(f"{b}downsampling_layer.1", f"block_{i}/downsample", kernel=kernel)
        b += f"layers.{index}."
        rows += dense_rows(f"{b}dwconv", f"block_{i}/depthwise", kernel=kernel)
        rows += norm_rows(f"{b}layernorm", f"block_{i}/mlp_norm")
        rows += dense_rows(f"{b}pwconv1", f"block_{i}/mlp_in")
        rows += dense_rows(f"{b}pwconv2", f"block_{i}/mlp_out")
        if config.layer_scale_init_value:
            rows.append(Row(f"{b}layer_scale_parameter", f"block_{i}/scale/gamma"))
    if "classifier" in config.parts:
        rows += dense_rows("classifier", "classifier")
    return tuple(rows)


_COMMON: Mapping[str, Any] = FrozenDict(
    {
        "adapted": with_parts,
        "files": (PREPROCESSOR,),
        "processor": ImageProcessor.read,
    }
)
_TINY: Mapping[str, Any] = FrozenDict(
    {"hidden_sizes": (12, 16), "depths": (2, 1), "parts": ("classifier",)}
)

RESNET = Family(
    classes={"resnet": ("ResNetModel", "ResNetForImageClassification")},
    config=ResNetConfig,
    build=_build_resnet,
    names=_resnet_names,
    tiny=ResNetConfig(**_TINY, embedding_size=8, hidden_act="gelu", model_type="resnet"),
    prefix="resnet.",
    # numbers of the batches in training
    ignored=("*.num_batches_tracked",),
    **_COMMON,
)
CONVNEXT = Family(
    classes={"convnext": ("ConvNextModel", "ConvNextForImageClassification")},
    config=ConvNextConfig,
    build=_build_convnext,
    names=_convnext_names,
    tiny=ConvNextConfig(
        **_TINY,
        patch_size=2,
        num_stages=2,
        hidden_act="relu",
        layer_norm_eps=3e-3,
        layer_scale_init_value=0.7,
        model_type="convnext",
    ),
    prefix="convnext.",
    **_COMMON,
)
