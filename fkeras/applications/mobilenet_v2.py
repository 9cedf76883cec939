"""MobileNet V2: inverted residuals of expansion, depthwise convolution and projection."""

from __future__ import annotations

from functools import partial
from typing import Any, overload

from fkeras import layers
from fkeras.applications.building.architecture import describe
from fkeras.applications.building.arguments import (
    Activation,
    ImageShape,
    Options,
    Path,
    image_height,
)
from fkeras.applications.building.compose import Files, Loaded, Plan, compose, dense_head
from fkeras.applications.building.documents import PREPROCESSED, Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_tf as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.applications.building.widths import round_channels, strided_padding
from fkeras.engine import KerasTensor, Model
from fkeras.engine.config.converters import real

__all__ = ("MobileNetV2", "decode_predictions", "preprocess_input")

_REFERENCE = "Sandler et al., 2018, MobileNetV2, https://arxiv.org/abs/1801.04381"
# filters, strides and expansions of the blocks
_BLOCKS = (
    (16, 1, 1),
    (24, 2, 6),
    (24, 1, 6),
    (32, 2, 6),
    (32, 1, 6),
    (32, 1, 6),
    (64, 2, 6),
    (64, 1, 6),
    (64, 1, 6),
    (64, 1, 6),
    (96, 1, 6),
    (96, 1, 6),
    (96, 1, 6),
    (160, 2, 6),
    (160, 1, 6),
    (160, 1, 6),
    (320, 1, 6),
)


def _batch_norm(x: KerasTensor, name: str) -> KerasTensor:
    return layers.BatchNormalization(axis=-1, epsilon=1e-3, momentum=0.999, name=name)(x)


def _block(x: KerasTensor, filters: int, stride: int, expansion: int, number: int) -> KerasTensor:
    shortcut = x
    channels = x.shape[-1] or 0
    prefix = f"block_{number}_" if number else "expanded_conv_"
    if number:  # the first block has no expansion
        name = f"{prefix}expand"
        convolution = layers.Conv2D(
            expansion * channels, 1, padding="same", use_bias=False, name=name
        )
        x = _batch_norm(convolution(x), f"{name}_BN")
        x = layers.ReLU(6.0, name=f"{name}_relu")(x)
    if stride == 2:
        x = layers.ZeroPadding2D(strided_padding(x, 3), name=f"{prefix}pad")(x)
    x = layers.DepthwiseConv2D(
        3,
        strides=stride,
        padding="valid" if stride == 2 else "same",
        use_bias=False,
        name=f"{prefix}depthwise",
    )(x)
    x = _batch_norm(x, f"{prefix}depthwise_BN")
    x = layers.ReLU(6.0, name=f"{prefix}depthwise_relu")(x)
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=f"{prefix}project")(x)
    x = _batch_norm(x, f"{prefix}project_BN")
    if channels == filters and stride == 1:
        return layers.Add(name=f"{prefix}add")([shortcut, x])
    return x


def _body(x: KerasTensor, named: Names, options: Options, alpha: float) -> KerasTensor:
    width = round_channels(32 * alpha)
    x = layers.Conv2D(width, 3, strides=2, padding="same", use_bias=False, name="Conv1")(x)
    x = layers.ReLU(6.0, name="Conv1_relu")(_batch_norm(x, "bn_Conv1"))
    for number, (filters, stride, expansion) in enumerate(_BLOCKS):
        x = _block(x, round_channels(int(filters * alpha)), stride, expansion, number)
    # alpha below 1 does not reduce the width of the last layer, as in the paper
    width = round_channels(1280 * alpha) if alpha > 1.0 else 1280
    x = layers.Conv2D(width, 1, use_bias=False, name="Conv_1")(x)
    return layers.ReLU(6.0, name="out_relu")(_batch_norm(x, "Conv_1_bn"))


_FILE = "mobilenet_v2/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224{}.h5"
_PLAN = Plan(
    "MobileNetV2",
    _body,
    partial(dense_head, name_average=False),
    Files(_FILE, without_top="_no_top"),
)
_DOCUMENT = Document(
    "MobileNet V2, a small network of 17 inverted residuals",
    _REFERENCE,
    PREPROCESSED,
    extra={"alpha": "width multiplier: factor of the number of filters in each layer."},
)


@overload
def MobileNetV2(
    input_shape: ImageShape | None = None,
    alpha: float = 1.0,
    include_top: bool = True,
    *,
    weights: None,
    input_tensor: KerasTensor | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Activation = "softmax",
    name: str | None = None,
) -> Model: ...


@overload
def MobileNetV2(
    input_shape: ImageShape | None = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: Path = "imagenet",
    input_tensor: KerasTensor | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Activation = "softmax",
    name: str | None = None,
) -> Loaded: ...


def MobileNetV2(  # noqa: N802  (Keras's name)
    input_shape: ImageShape | None = None,
    alpha: float = 1.0,
    include_top: bool = True,
    weights: Path | None = "imagenet",
    input_tensor: KerasTensor | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Activation = "softmax",
    name: str | None = None,
) -> Any:
    alpha = real(above=0).check("MobileNetV2: alpha", alpha)
    options = Options(
        include_top=include_top,
        weights=weights,
        input_tensor=input_tensor,
        input_shape=input_shape,
        pooling=pooling,
        classes=classes,
        classifier_activation=classifier_activation,
        name=name,
    )
    plan = _PLAN._replace(body=partial(_body, alpha=alpha))
    return compose(plan, options, lambda x: f"mobilenetv2_{alpha:0.2f}_{image_height(x)}")


describe(MobileNetV2, _PLAN, _DOCUMENT, __name__)
