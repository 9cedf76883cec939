"""EfficientNet V2: EfficientNet with full instead of depthwise convolutions in the first stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, overload

from fkeras import initializers, layers
from fkeras.applications.building.architecture import describe
from fkeras.applications.building.arguments import Activation, ImageShape, Options, Path, Sizes
from fkeras.applications.building.compose import Files, Loaded, Plan, compose
from fkeras.applications.building.documents import Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_nothing as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.applications.building.squeeze import (
    KERNEL,
    add_shortcut,
    bn_swish,
    conv,
    efficientnet_head,
    squeeze_excite,
)
from fkeras.applications.building.widths import round_channels
from fkeras.engine import KerasTensor, Model
from fkeras.engine.config.converters import boolean

__all__ = (
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2L",
    "EfficientNetV2M",
    "EfficientNetV2S",
    "decode_predictions",
    "preprocess_input",
)

_REFERENCE = "Tan and Le, 2021, EfficientNetV2, https://arxiv.org/abs/2104.00298"
_IMAGES = "pixels from 0 to 255 and, with `include_preprocessing`, scales them itself."
_PREPROCESSING = """whether the model scales pixels from 0 to 255; without it the model
        expects numbers around 0."""
_MOMENTUM = 0.9
# final rate of stochastic depth, which grows linearly from block to block
_DROP_RATE = 0.2
_MEAN = (0.485, 0.456, 0.406)
_VARIANCE = (0.229**2, 0.224**2, 0.225**2)


class _Stage(NamedTuple):
    """Blocks of one width: number of blocks, channels, expansion, first block's stride, kind."""

    repeats: int
    inputs: int
    outputs: int
    expansion: int
    stride: int
    fused: bool = False


_SMALL = (
    _Stage(2, 24, 24, 1, 1, fused=True),
    _Stage(4, 24, 48, 4, 2, fused=True),
    _Stage(4, 48, 64, 4, 2, fused=True),
    _Stage(6, 64, 128, 4, 2),
    _Stage(9, 128, 160, 6, 1),
    _Stage(15, 160, 256, 6, 2),
)
_MEDIUM = (
    _Stage(3, 24, 24, 1, 1, fused=True),
    _Stage(5, 24, 48, 4, 2, fused=True),
    _Stage(5, 48, 80, 4, 2, fused=True),
    _Stage(7, 80, 160, 4, 2),
    _Stage(14, 160, 176, 6, 1),
    _Stage(18, 176, 304, 6, 2),
    _Stage(5, 304, 512, 6, 1),
)
_LARGE = (
    _Stage(4, 32, 32, 1, 1, fused=True),
    _Stage(7, 32, 64, 4, 2, fused=True),
    _Stage(7, 64, 96, 4, 2, fused=True),
    _Stage(10, 96, 192, 4, 2),
    _Stage(19, 192, 224, 6, 1),
    _Stage(25, 224, 384, 6, 2),
    _Stage(7, 384, 640, 6, 1),
)
_BASE = (
    _Stage(1, 32, 16, 1, 1, fused=True),
    _Stage(2, 16, 32, 4, 2, fused=True),
    _Stage(2, 32, 48, 4, 2, fused=True),
    _Stage(3, 48, 96, 4, 2),
    _Stage(5, 96, 112, 6, 1),
    _Stage(8, 112, 192, 6, 2),
)


def _project(x: KerasTensor, outputs: int, size: int, stride: int, name: str) -> KerasTensor:
    x = conv(x, outputs, size, f"{name}project_conv", strides=stride)
    return layers.BatchNormalization(axis=3, momentum=_MOMENTUM, name=f"{name}project_bn")(x)


def _block(
    x: KerasTensor, stage: _Stage, inputs: int, outputs: int, stride: int, name: str
) -> KerasTensor:
    """An inverted residual: expansion, depthwise convolution, squeeze-and-excitation, projection."""
    filters = inputs * stage.expansion
    x = conv(x, filters, 1, f"{name}expand_conv")
    x = bn_swish(x, f"{name}expand_", _MOMENTUM)
    x = layers.DepthwiseConv2D(
        3,
        strides=stride,
        padding="same",
        use_bias=False,
        depthwise_initializer=KERNEL,
        name=f"{name}dwconv2",
    )(x)
    x = bn_swish(x, name, _MOMENTUM)
    x = squeeze_excite(x, filters, max(1, inputs // 4), name)
    return _project(x, outputs, 1, 1, name)


def _fused_block(
    x: KerasTensor, stage: _Stage, inputs: int, outputs: int, stride: int, name: str
) -> KerasTensor:
    """Fused-MBConv: one 3x3 convolution instead of expansion and depthwise convolution."""
    if stage.expansion == 1:
        x = _project(x, outputs, 3, stride, name)
        return layers.Activation("swish", name=f"{name}project_activation")(x)
    x = conv(x, inputs * stage.expansion, 3, f"{name}expand_conv", strides=stride)
    x = bn_swish(x, f"{name}expand_", _MOMENTUM)
    return _project(x, outputs, 1, 1, name)


def _preprocess(x: KerasTensor, named: Names, base: bool) -> KerasTensor:
    # Keras normalizes with ImageNet's statistics only for B0 to B3 and images with three channels
    if base and x.shape[3] == 3:
        x = named(layers.Rescaling(scale=1.0 / 255))(x)
        return named(layers.Normalization(mean=_MEAN, variance=_VARIANCE, axis=3))(x)
    return named(layers.Rescaling(scale=1.0 / 128.0, offset=-1))(x)


def _body(
    x: KerasTensor,
    named: Names,
    options: Options,
    stages: Sequence[_Stage],
    width: float,
    depth: float,
    preprocess: bool,
) -> KerasTensor:
    def scale_width(channels: int) -> int:
        return round_channels(channels * width, min_ratio=0.0)

    if preprocess:
        x = _preprocess(x, named, stages is _BASE)
    x = conv(x, scale_width(stages[0].inputs), 3, "stem_conv", strides=2)
    x = bn_swish(x, "stem_", _MOMENTUM)
    # the number of blocks before the depth is scaled, as in Keras: in B1 to B3 the rate exceeds 0.2
    block_index, block_count = 0, float(sum(stage.repeats for stage in stages))
    for number, stage in enumerate(stages, 1):
        inputs, outputs = scale_width(stage.inputs), scale_width(stage.outputs)
        block = _fused_block if stage.fused else _block
        for index in range(math.ceil(depth * stage.repeats)):
            name = f"block{number}{chr(ord('a') + index)}_"
            stride = 1 if index else stage.stride
            shortcut = x
            x = block(x, stage, inputs, outputs, stride, name)
            if stride == 1 and inputs == outputs:
                x = add_shortcut(x, shortcut, _DROP_RATE * block_index / block_count, name)
            inputs = outputs
            block_index += 1
    x = conv(x, scale_width(1280), 1, "top_conv")
    return bn_swish(x, "top_", _MOMENTUM)


class EfficientNetV2(Protocol):
    """A function that composes an EfficientNet V2.

    Without a file of weights it returns the model, otherwise `(model, state)`.
    """

    __name__: str

    @overload
    def __call__(
        self,
        include_top: bool = True,
        *,
        weights: None,
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        include_preprocessing: bool = True,
        name: str | None = ...,
    ) -> Model: ...

    @overload
    def __call__(
        self,
        include_top: bool = True,
        weights: Path = "imagenet",
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        include_preprocessing: bool = True,
        name: str | None = ...,
    ) -> Loaded: ...


def _efficientnet_v2(
    variant: str,
    stages: Sequence[_Stage],
    size: int,
    width: float = 1.0,
    depth: float = 1.0,
) -> EfficientNetV2:
    default_name = f"efficientnetv2-{variant.lower()}"
    head = partial(efficientnet_head, dropout=0.2, bias_initializer=initializers.Constant(0.0))
    files = Files(f"efficientnet_v2/{default_name}{{}}.h5")
    body = partial(_body, stages=stages, width=width, depth=depth)
    plan = Plan(f"EfficientNetV2{variant}", body, head, files, Sizes(size))
    title = f"EfficientNet V2-{variant}"
    extra = {"include_preprocessing": _PREPROCESSING}
    document = Document(title, _REFERENCE, _IMAGES, extra=extra)

    def build(
        include_top: bool = True,
        weights: Path | None = "imagenet",
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        include_preprocessing: bool = True,
        name: str | None = default_name,
    ) -> Any:
        argument = f"{plan.function}: include_preprocessing"
        preprocess = boolean.check(argument, include_preprocessing)
        return compose(
            plan._replace(body=partial(body, preprocess=preprocess)),
            Options(
                include_top=include_top,
                weights=weights,
                input_tensor=input_tensor,
                input_shape=input_shape,
                pooling=pooling,
                classes=classes,
                classifier_activation=classifier_activation,
                name=name,
            ),
        )

    return cast(EfficientNetV2, describe(build, plan, document, __name__))


EfficientNetV2B0 = _efficientnet_v2("B0", _BASE, 224)
EfficientNetV2B1 = _efficientnet_v2("B1", _BASE, 240, 1.0, 1.1)
EfficientNetV2B2 = _efficientnet_v2("B2", _BASE, 260, 1.1, 1.2)
EfficientNetV2B3 = _efficientnet_v2("B3", _BASE, 300, 1.2, 1.4)
EfficientNetV2S = _efficientnet_v2("S", _SMALL, 384)
EfficientNetV2M = _efficientnet_v2("M", _MEDIUM, 480)
EfficientNetV2L = _efficientnet_v2("L", _LARGE, 480)
