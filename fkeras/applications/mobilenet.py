"""MobileNet: alternating depthwise and pointwise convolutions."""

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
from fkeras.applications.building.compose import Files, Loaded, Plan, compose, global_pooling
from fkeras.applications.building.documents import PREPROCESSED, Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_tf as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor, Model
from fkeras.engine.config.converters import integer, probability, real

__all__ = ("MobileNet", "decode_predictions", "preprocess_input")

_REFERENCE = "Howard et al., 2017, MobileNets, https://arxiv.org/abs/1704.04861"
# filters and strides of the blocks
_BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *((512, 1),) * 5,
    (1024, 2),
    (1024, 1),
)


def _bn_relu6(x: KerasTensor, name: str) -> KerasTensor:
    x = layers.BatchNormalization(axis=-1, name=f"{name}_bn")(x)
    return layers.ReLU(6.0, name=f"{name}_relu")(x)


def _block(x: KerasTensor, filters: int, stride: int, multiplier: int, number: int) -> KerasTensor:
    if stride > 1:
        x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"conv_pad_{number}")(x)
    x = layers.DepthwiseConv2D(
        3,
        strides=stride,
        padding="valid" if stride > 1 else "same",
        depth_multiplier=multiplier,
        use_bias=False,
        name=f"conv_dw_{number}",
    )(x)
    x = _bn_relu6(x, f"conv_dw_{number}")
    name = f"conv_pw_{number}"
    x = layers.Conv2D(filters, 1, padding="same", use_bias=False, name=name)(x)
    return _bn_relu6(x, name)


def _body(
    x: KerasTensor, named: Names, options: Options, alpha: float, multiplier: int
) -> KerasTensor:
    width = int(32 * alpha)
    x = layers.Conv2D(width, 3, strides=2, padding="same", use_bias=False, name="conv1")(x)
    x = _bn_relu6(x, "conv1")
    for number, (filters, stride) in enumerate(_BLOCKS, 1):
        x = _block(x, int(filters * alpha), stride, multiplier, number)
    return x


def _head(x: KerasTensor, named: Names, options: Options, dropout: float) -> KerasTensor:
    if not options.include_top:
        return global_pooling(x, named, options)
    x = named(layers.GlobalAveragePooling2D(keepdims=True))(x)
    x = layers.Dropout(dropout, name="dropout")(x)
    x = layers.Conv2D(options.classes, 1, padding="same", name="conv_preds")(x)
    x = layers.Reshape((options.classes,), name="reshape_2")(x)
    return layers.Activation(options.classifier_activation, name="predictions")(x)


_PLAN = Plan(
    "MobileNet", _body, _head, Files("mobilenet/mobilenet_1_0_224_tf{}.h5", without_top="_no_top")
)
_DOCUMENT = Document(
    "MobileNet, a small network of 28 layers",
    _REFERENCE,
    PREPROCESSED,
    extra={
        "alpha": "width multiplier: factor of the number of filters in each layer.",
        "depth_multiplier": "number of outputs of the depthwise convolutions for each input channel.",
        "dropout": "dropout rate before the classifier.",
    },
)


@overload
def MobileNet(
    input_shape: ImageShape | None = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 0.001,
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
def MobileNet(
    input_shape: ImageShape | None = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 0.001,
    include_top: bool = True,
    weights: Path = "imagenet",
    input_tensor: KerasTensor | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Activation = "softmax",
    name: str | None = None,
) -> Loaded: ...


def MobileNet(  # noqa: N802  (Keras's name)
    input_shape: ImageShape | None = None,
    alpha: float = 1.0,
    depth_multiplier: int = 1,
    dropout: float = 0.001,
    include_top: bool = True,
    weights: Path | None = "imagenet",
    input_tensor: KerasTensor | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Activation = "softmax",
    name: str | None = None,
) -> Any:
    # the first layer has int(32 * alpha) filters, and needs at least one
    alpha = real(minimum=1 / 32).check("MobileNet: alpha", alpha)
    multiplier = integer(minimum=1).check("MobileNet: depth_multiplier", depth_multiplier)
    dropout = probability.check("MobileNet: dropout", dropout)
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
    plan = _PLAN._replace(
        body=partial(_body, alpha=alpha, multiplier=multiplier),
        head=partial(_head, dropout=dropout),
    )
    return compose(plan, options, lambda x: f"mobilenet_{alpha:0.2f}_{image_height(x)}")


describe(MobileNet, _PLAN, _DOCUMENT, __name__)
