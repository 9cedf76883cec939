"""Inception V3: parallel convolutions of different sizes, factored into thin kernels."""

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
#: filters, height and width of a convolution
Kernel: TypeAlias = tuple[int, int, int]


def _convolved(
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
        x = _convolved(x, named, kernel)
    return x


def _halved(x: KerasTensor, named: Names, kernels: Sequence[Kernel]) -> KerasTensor:
    """A branch whose last convolution halves the image."""
    x = _branch(x, named, kernels[:-1])
    return _convolved(x, named, kernels[-1], 2, "valid")


def _mixed(
    x: KerasTensor, named: Names, name: str, branches: Sequence[Sequence[Kernel]], pooled: int
) -> KerasTensor:
    """Concatenates the branches and a convolution of the averaged input."""
    outputs = [_branch(x, named, kernels) for kernels in branches]
    average = named(layers.AveragePooling2D(3, strides=1, padding="same"))(x)
    outputs.append(_convolved(average, named, (pooled, 1, 1)))
    return layers.Concatenate(axis=3, name=name)(outputs)


def _reduced(
    x: KerasTensor, named: Names, name: str, branches: Sequence[Sequence[Kernel]]
) -> KerasTensor:
    """Concatenates strided branches and the pooled input."""
    outputs = [_halved(x, named, kernels) for kernels in branches]
    outputs.append(named(layers.MaxPooling2D(3, strides=2))(x))
    return layers.Concatenate(axis=3, name=name)(outputs)


def _wide(x: KerasTensor, named: Names, index: int) -> KerasTensor:
    """The blocks of 8x8 features, whose branches split at their ends."""
    single = _convolved(x, named, (320, 1, 1))
    pair = _convolved(x, named, (384, 1, 1))
    ends = [_convolved(pair, named, kernel) for kernel in ((384, 1, 3), (384, 3, 1))]
    pair = layers.Concatenate(axis=3, name=f"mixed9_{index}")(ends)
    deep = _branch(x, named, ((448, 1, 1), (384, 3, 3)))
    ends = [_convolved(deep, named, kernel) for kernel in ((384, 1, 3), (384, 3, 1))]
    deep = named(layers.Concatenate(axis=3))(ends)
    average = named(layers.AveragePooling2D(3, strides=1, padding="same"))(x)
    average = _convolved(average, named, (192, 1, 1))
    return layers.Concatenate(axis=3, name=f"mixed{9 + index}")([single, pair, deep, average])


def _body(x: KerasTensor, named: Names, options: Options) -> KerasTensor:
    x = _convolved(x, named, (32, 3, 3), 2, "valid")
    x = _convolved(x, named, (32, 3, 3), padding="valid")
    x = _convolved(x, named, (64, 3, 3))
    x = named(layers.MaxPooling2D(3, strides=2))(x)
    x = _convolved(x, named, (80, 1, 1), padding="valid")
    x = _convolved(x, named, (192, 3, 3), padding="valid")
    x = named(layers.MaxPooling2D(3, strides=2))(x)
    double = ((64, 1, 1), (96, 3, 3), (96, 3, 3))
    for index, pooled in enumerate((32, 64, 64)):
        branches = (((64, 1, 1),), ((48, 1, 1), (64, 5, 5)), double)
        x = _mixed(x, named, f"mixed{index}", branches, pooled)
    x = _reduced(x, named, "mixed3", (((384, 3, 3),), double))
    for index, width in enumerate((128, 160, 160, 192), 4):
        thin = ((width, 1, 1), (width, 1, 7), (192, 7, 1))
        double = ((width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7))
        x = _mixed(x, named, f"mixed{index}", (((192, 1, 1),), thin, double), 192)
    thin = ((192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3))
    x = _reduced(x, named, "mixed8", (((192, 1, 1), (320, 3, 3)), thin))
    for index in range(2):
        x = _wide(x, named, index)
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
