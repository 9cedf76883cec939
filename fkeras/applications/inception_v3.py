"""Inception V3: parallel branches of convolutions, with large kernels factored into 1xn and nx1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from fkeras import layers
from fkeras.applications.building.architecture import architecture
from fkeras.applications.building.arguments import Options, Sizes
from fkeras.applications.building.compose import Files, Plan, dense_head
from fkeras.applications.building.documents import PREPROCESSED, Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_tf as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor

__all__ = ("InceptionV3", "decode_predictions", "preprocess_input")

_REFERENCE = (
    "Szegedy et al., 2016, Rethinking the Inception architecture, https://arxiv.org/abs/1512.00567"
)
#: number of filters, kernel height and kernel width of a convolution
Kernel: TypeAlias = tuple[int, int, int]


def _conv_bn_relu(
    x: KerasTensor, named: Names, kernel: Kernel, stride: int = 1, padding: str = "same"
) -> KerasTensor:
    filters, height, width = kernel
    convolution = layers.Conv2D(
        filters, (height, width), strides=stride, padding=padding, use_bias=False
    )
    x = named(layers.BatchNormalization(axis=3, scale=False))(named(convolution)(x))
    return named(layers.Activation("relu"))(x)


def _branch(x: KerasTensor, named: Names, kernels: Sequence[Kernel]) -> KerasTensor:
    for kernel in kernels:
        x = _conv_bn_relu(x, named, kernel)
    return x


def _strided_branch(x: KerasTensor, named: Names, kernels: Sequence[Kernel]) -> KerasTensor:
    """Returns a branch whose last convolution halves the image."""
    x = _branch(x, named, kernels[:-1])
    return _conv_bn_relu(x, named, kernels[-1], 2, "valid")


def _inception_block(
    x: KerasTensor, named: Names, name: str, branches: Sequence[Sequence[Kernel]], pool_filters: int
) -> KerasTensor:
    """Concatenates the branches and a convolution of the average-pooled input."""
    outputs = [_branch(x, named, kernels) for kernels in branches]
    average = named(layers.AveragePooling2D(3, strides=1, padding="same"))(x)
    outputs.append(_conv_bn_relu(average, named, (pool_filters, 1, 1)))
    return layers.Concatenate(axis=3, name=name)(outputs)


def _reduction_block(
    x: KerasTensor, named: Names, name: str, branches: Sequence[Sequence[Kernel]]
) -> KerasTensor:
    """Halves the image: concatenates strided branches and the max-pooled input."""
    outputs = [_strided_branch(x, named, kernels) for kernels in branches]
    outputs.append(named(layers.MaxPooling2D(3, strides=2))(x))
    return layers.Concatenate(axis=3, name=name)(outputs)


def _expanded_block(x: KerasTensor, named: Names, index: int) -> KerasTensor:
    """Inception block of the 8x8 features: two branches end in parallel 1x3 and 3x1 convolutions."""
    single = _conv_bn_relu(x, named, (320, 1, 1))
    pair = _conv_bn_relu(x, named, (384, 1, 1))
    ends = [_conv_bn_relu(pair, named, kernel) for kernel in ((384, 1, 3), (384, 3, 1))]
    pair = layers.Concatenate(axis=3, name=f"mixed9_{index}")(ends)
    deep = _branch(x, named, ((448, 1, 1), (384, 3, 3)))
    ends = [_conv_bn_relu(deep, named, kernel) for kernel in ((384, 1, 3), (384, 3, 1))]
    deep = named(layers.Concatenate(axis=3))(ends)
    average = named(layers.AveragePooling2D(3, strides=1, padding="same"))(x)
    average = _conv_bn_relu(average, named, (192, 1, 1))
    return layers.Concatenate(axis=3, name=f"mixed{9 + index}")([single, pair, deep, average])


def _body(x: KerasTensor, named: Names, options: Options) -> KerasTensor:
    x = _conv_bn_relu(x, named, (32, 3, 3), 2, "valid")
    x = _conv_bn_relu(x, named, (32, 3, 3), padding="valid")
    x = _conv_bn_relu(x, named, (64, 3, 3))
    x = named(layers.MaxPooling2D(3, strides=2))(x)
    x = _conv_bn_relu(x, named, (80, 1, 1), padding="valid")
    x = _conv_bn_relu(x, named, (192, 3, 3), padding="valid")
    x = named(layers.MaxPooling2D(3, strides=2))(x)
    double = ((64, 1, 1), (96, 3, 3), (96, 3, 3))
    for index, pool_filters in enumerate((32, 64, 64)):
        branches = (((64, 1, 1),), ((48, 1, 1), (64, 5, 5)), double)
        x = _inception_block(x, named, f"mixed{index}", branches, pool_filters)
    x = _reduction_block(x, named, "mixed3", (((384, 3, 3),), double))
    for index, width in enumerate((128, 160, 160, 192), 4):
        thin = ((width, 1, 1), (width, 1, 7), (192, 7, 1))
        double = ((width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7))
        x = _inception_block(x, named, f"mixed{index}", (((192, 1, 1),), thin, double), 192)
    thin = ((192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3))
    x = _reduction_block(x, named, "mixed8", (((192, 1, 1), (320, 3, 3)), thin))
    for index in range(2):
        x = _expanded_block(x, named, index)
    return x


_PLAN = Plan(
    "InceptionV3",
    _body,
    dense_head,
    Files("inception_v3/inception_v3_weights_tf_dim_ordering_tf_kernels{}.h5"),
    Sizes(299, minimum=75),
)
_DOCUMENT = Document(
    "Inception V3, 94 convolutions in parallel branches", _REFERENCE, PREPROCESSED, (75, 75, 3)
)
InceptionV3 = architecture(_PLAN, _DOCUMENT, "inception_v3", __name__)
