"""Xception: separable convolutions with residual sums."""

from __future__ import annotations

from collections.abc import Sequence

from fkeras import layers
from fkeras.applications.building.architecture import architecture
from fkeras.applications.building.arguments import Options, Sizes
from fkeras.applications.building.compose import Files, Plan, dense_head
from fkeras.applications.building.documents import PREPROCESSED, Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_tf as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor

__all__ = ("Xception", "decode_predictions", "preprocess_input")

_REFERENCE = "Chollet, 2017, Xception, https://arxiv.org/abs/1610.02357"


def _relu(x: KerasTensor, name: str) -> KerasTensor:
    return layers.Activation("relu", name=f"{name}_act")(x)


def _separable_conv_bn(x: KerasTensor, filters: int, name: str) -> KerasTensor:
    x = layers.SeparableConv2D(filters, 3, padding="same", use_bias=False, name=name)(x)
    return layers.BatchNormalization(axis=-1, name=f"{name}_bn")(x)


def _conv_bn_relu(x: KerasTensor, filters: int, stride: int, name: str) -> KerasTensor:
    x = layers.Conv2D(filters, 3, strides=stride, use_bias=False, name=name)(x)
    x = layers.BatchNormalization(axis=-1, name=f"{name}_bn")(x)
    return _relu(x, name)


def _separable_chain(
    x: KerasTensor, widths: Sequence[int], block: int, relu_first: bool = True
) -> KerasTensor:
    """Separable convolutions with a ReLU before each; `relu_first` is for the first of them."""
    for index, width in enumerate(widths, 1):
        name = f"block{block}_sepconv{index}"
        if index > 1 or relu_first:
            x = _relu(x, name)
        x = _separable_conv_bn(x, width, name)
    return x


def _strided_residual(
    x: KerasTensor, named: Names, widths: Sequence[int], block: int, relu_first: bool = True
) -> KerasTensor:
    """Halves the image: adds a pooled chain to a strided projection of the input."""
    projection = layers.Conv2D(widths[-1], 1, strides=2, padding="same", use_bias=False)
    residual = named(layers.BatchNormalization(axis=-1))(named(projection)(x))
    x = _separable_chain(x, widths, block, relu_first)
    x = layers.MaxPooling2D(3, strides=2, padding="same", name=f"block{block}_pool")(x)
    return named(layers.Add())([x, residual])


def _body(x: KerasTensor, named: Names, options: Options) -> KerasTensor:
    x = _conv_bn_relu(x, 32, 2, "block1_conv1")
    x = _conv_bn_relu(x, 64, 1, "block1_conv2")
    # the stem already ends in a ReLU
    x = _strided_residual(x, named, (128, 128), 2, relu_first=False)
    x = _strided_residual(x, named, (256, 256), 3)
    x = _strided_residual(x, named, (728, 728), 4)
    for block in range(5, 13):
        x = named(layers.Add())([_separable_chain(x, (728, 728, 728), block), x])
    x = _strided_residual(x, named, (728, 1024), 13)
    for index, width in ((1, 1536), (2, 2048)):
        name = f"block14_sepconv{index}"
        x = _relu(_separable_conv_bn(x, width, name), name)
    return x


_PLAN = Plan(
    "Xception",
    _body,
    dense_head,
    Files("xception/xception_weights_tf_dim_ordering_tf_kernels{}.h5"),
    Sizes(299, minimum=71),
)
_DOCUMENT = Document(
    "Xception, 36 convolutions, mostly separable", _REFERENCE, PREPROCESSED, (71, 71, 3)
)
Xception = architecture(_PLAN, _DOCUMENT, "xception", __name__)
