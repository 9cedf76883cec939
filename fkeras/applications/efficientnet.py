"""EfficientNet: a network of inverted residuals, scaled in width, depth and image size."""

from __future__ import annotations

import hashlib
import math
from functools import partial
from typing import NamedTuple

from fkeras import layers
from fkeras.applications.building.architecture import Architecture, architecture
from fkeras.applications.building.arguments import Options, Sizes
from fkeras.applications.building.compose import Files, Plan
from fkeras.applications.building.documents import RAW, Document
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
from fkeras.applications.building.widths import round_channels, strided_padding
from fkeras.engine import KerasTensor

__all__ = (
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "decode_predictions",
    "preprocess_input",
)

_REFERENCE = "Tan and Le, 2019, EfficientNet, https://arxiv.org/abs/1905.11946"
_FILES = "https://storage.googleapis.com/keras-applications/"
_MOMENTUM = 0.99
# final rate of stochastic depth, which grows linearly from block to block
_DROP_RATE = 0.2


class _Stage(NamedTuple):
    """Blocks of one width: kernel size, number of blocks, channels, expansion, first block's stride."""

    size: int
    repeats: int
    inputs: int
    outputs: int
    expansion: int
    stride: int


_STAGES = (
    _Stage(3, 1, 32, 16, 1, 1),
    _Stage(3, 2, 16, 24, 6, 2),
    _Stage(5, 2, 24, 40, 6, 2),
    _Stage(3, 3, 40, 80, 6, 2),
    _Stage(5, 3, 80, 112, 6, 1),
    _Stage(5, 4, 112, 192, 6, 2),
    _Stage(3, 1, 192, 320, 6, 1),
)

# MD5 digests of Keras's files of ImageNet weights. Networks of these files have an additional layer,
# which divides the normalized pixels by the square roots of the standard deviations.
_IMAGENET_FILES = frozenset(
    {
        "902e53a9f72be733fc0bcb005b3ebbac",
        "50bc09e76180e00e4465e1a485ddc09d",
        "1d254153d4ab51201f1646940f018540",
        "74c4e6b3e1f6a1eea24c589628592432",
        "b15cce36ff4dcbd00b6dd88e7857a6ad",
        "111f8e2ac8aa800a7a99e3239f7bfb39",
        "ffd1fdc53d0ce67064dc6a9c7960ede0",
        "af6d107764bb5b1abb91932881670226",
        "18c95ad55216b8f92d7e70b3a046e2fc",
        "ebc24e6d6c33eaebbd558eafbeedf1ba",
        "ace28f2a6363774853a83a0b21b9421a",
        "38879255a25d3c92d5e44e04ae6cec6f",
        "165f6e37dce68623721b423839de8be5",
        "9ecce42647a20130c1f39a5d4cb75743",
        "8c03f828fec3ef71311cd463b6759d99",
        "cbcfe4450ddf6f3ad90b1b398090fe4a",
    }
)
_DEVIATIONS = (0.229, 0.224, 0.225)


def _is_imagenet_file(path: str) -> bool:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False))
    return digest.hexdigest() in _IMAGENET_FILES


def _block(
    x: KerasTensor, stage: _Stage, inputs: int, outputs: int, stride: int, rate: float, name: str
) -> KerasTensor:
    """An inverted residual: expansion, depthwise convolution, squeeze-and-excitation, projection."""
    shortcut = x
    filters = inputs * stage.expansion
    if stage.expansion != 1:
        x = conv(x, filters, 1, f"{name}expand_conv")
        x = bn_swish(x, f"{name}expand_", _MOMENTUM)
    if stride == 2:
        padding = strided_padding(x, stage.size)
        x = layers.ZeroPadding2D(padding, name=f"{name}dwconv_pad")(x)
    x = layers.DepthwiseConv2D(
        stage.size,
        strides=stride,
        padding="valid" if stride == 2 else "same",
        use_bias=False,
        depthwise_initializer=KERNEL,
        name=f"{name}dwconv",
    )(x)
    x = bn_swish(x, name, _MOMENTUM)
    x = squeeze_excite(x, filters, max(1, inputs // 4), name)
    x = conv(x, outputs, 1, f"{name}project_conv")
    x = layers.BatchNormalization(axis=3, name=f"{name}project_bn")(x)
    if stride == 1 and inputs == outputs:
        x = add_shortcut(x, shortcut, rate, name)
    return x


def _body(
    x: KerasTensor, named: Names, options: Options, width: float, depth: float
) -> KerasTensor:
    x = named(layers.Rescaling(1.0 / 255.0))(x)
    x = named(layers.Normalization(axis=3))(x)
    if options.weights is not None and _is_imagenet_file(str(options.weights)):
        x = named(layers.Rescaling([1.0 / math.sqrt(value) for value in _DEVIATIONS]))(x)
    x = layers.ZeroPadding2D(strided_padding(x, 3), name="stem_conv_pad")(x)
    x = conv(x, round_channels(32 * width), 3, "stem_conv", strides=2, padding="valid")
    x = bn_swish(x, "stem_", _MOMENTUM)
    repeats = [math.ceil(depth * stage.repeats) for stage in _STAGES]
    block_index, block_count = 0, float(sum(repeats))
    for number, (stage, repeat) in enumerate(zip(_STAGES, repeats, strict=True), 1):
        inputs, outputs = (
            round_channels(stage.inputs * width),
            round_channels(stage.outputs * width),
        )
        for index in range(repeat):
            name = f"block{number}{chr(ord('a') + index)}_"
            stride = 1 if index else stage.stride
            # stochastic depth, linear from 0 to `_DROP_RATE`
            rate = _DROP_RATE * block_index / block_count
            x = _block(x, stage, outputs if index else inputs, outputs, stride, rate, name)
            block_index += 1
    x = conv(x, round_channels(1280 * width), 1, "top_conv")
    return bn_swish(x, "top_", _MOMENTUM)


def _efficientnet(
    number: int, width: float, depth: float, size: int, dropout: float
) -> Architecture:
    name = f"efficientnetb{number}"
    plan = Plan(
        f"EfficientNetB{number}",
        partial(_body, width=width, depth=depth),
        partial(efficientnet_head, dropout=dropout),
        Files(f"{name}{{}}.h5", folder=_FILES),
        Sizes(size),
    )
    title = f"EfficientNet-B{number}, with width factor {width} and depth factor {depth}"
    return architecture(plan, Document(title, _REFERENCE, RAW), name, __name__)


EfficientNetB0 = _efficientnet(0, 1.0, 1.0, 224, 0.2)
EfficientNetB1 = _efficientnet(1, 1.0, 1.1, 240, 0.2)
EfficientNetB2 = _efficientnet(2, 1.1, 1.2, 260, 0.3)
EfficientNetB3 = _efficientnet(3, 1.2, 1.4, 300, 0.3)
EfficientNetB4 = _efficientnet(4, 1.4, 1.8, 380, 0.4)
EfficientNetB5 = _efficientnet(5, 1.6, 2.2, 456, 0.4)
EfficientNetB6 = _efficientnet(6, 1.8, 2.6, 528, 0.5)
EfficientNetB7 = _efficientnet(7, 2.0, 3.1, 600, 0.5)
