"""Inception-ResNet V2: Inception blocks with scaled residual connections."""

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
from fkeras.engine import KerasTensor, Layer
from fkeras.layers.applications import CustomScaleLayer

__all__ = ("InceptionResNetV2", "decode_predictions", "preprocess_input")

_REFERENCE = (
    "Szegedy et al., 2017, Inception-v4 and Inception-ResNet, https://arxiv.org/abs/1602.07261"
)
#: number of filters and kernel size of a convolution
Kernel: TypeAlias = tuple[int, int | tuple[int, int]]

_STEM_BRANCHES = (
    ((96, 1),),
    ((48, 1), (64, 5)),
    ((64, 1), (96, 3), (96, 3)),
)
_BLOCK35 = (((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3)))
_BLOCK17 = (((192, 1),), ((128, 1), (160, (1, 7)), (192, (7, 1))))
_BLOCK8 = (((192, 1),), ((192, 1), (224, (1, 3)), (256, (3, 1))))


def _conv_bn_relu(
    x: KerasTensor,
    named: Names,
    kernel: Kernel,
    stride: int = 1,
    padding: str = "same",
    name: str | None = None,
) -> KerasTensor:
    filters, size = kernel

    def with_name(layer: Layer, suffix: str) -> Layer:
        return named(layer) if name is None else layer.replace(name=f"{name}{suffix}")

    convolution = layers.Conv2D(filters, size, strides=stride, padding=padding, use_bias=False)
    x = with_name(convolution, "")(x)
    x = with_name(layers.BatchNormalization(axis=3, scale=False), "_bn")(x)
    return with_name(layers.Activation("relu"), "_ac")(x)


def _branch(x: KerasTensor, named: Names, kernels: Sequence[Kernel]) -> KerasTensor:
    for kernel in kernels:
        x = _conv_bn_relu(x, named, kernel)
    return x


def _reduction_block(
    x: KerasTensor, named: Names, name: str, branches: Sequence[Sequence[Kernel]]
) -> KerasTensor:
    """Halves the image: concatenates branches that end in a strided convolution, and the pooled input."""
    outputs = []
    for kernels in branches:
        branch = _branch(x, named, kernels[:-1])
        outputs.append(_conv_bn_relu(branch, named, kernels[-1], 2, "valid"))
    outputs.append(named(layers.MaxPooling2D(3, strides=2))(x))
    return layers.Concatenate(axis=3, name=name)(outputs)


def _residual_block(
    x: KerasTensor,
    named: Names,
    name: str,
    branches: Sequence[Sequence[Kernel]],
    scale: float,
    activate: bool = True,
) -> KerasTensor:
    """Adds the scaled projection of concatenated branches to the input."""
    outputs = [_branch(x, named, kernels) for kernels in branches]
    mixed = layers.Concatenate(axis=3, name=f"{name}_mixed")(outputs)
    channels = x.shape[3] or 0
    update = layers.Conv2D(channels, 1, padding="same", name=f"{name}_conv")(mixed)
    x = named(CustomScaleLayer(scale))([x, update])
    return layers.Activation("relu", name=f"{name}_ac")(x) if activate else x


def _body(x: KerasTensor, named: Names, options: Options) -> KerasTensor:
    x = _conv_bn_relu(x, named, (32, 3), 2, "valid")
    x = _conv_bn_relu(x, named, (32, 3), padding="valid")
    x = _conv_bn_relu(x, named, (64, 3))
    x = named(layers.MaxPooling2D(3, strides=2))(x)
    x = _conv_bn_relu(x, named, (80, 1), padding="valid")
    x = _conv_bn_relu(x, named, (192, 3), padding="valid")
    x = named(layers.MaxPooling2D(3, strides=2))(x)
    outputs = [_branch(x, named, kernels) for kernels in _STEM_BRANCHES]
    average = named(layers.AveragePooling2D(3, strides=1, padding="same"))(x)
    outputs.append(_conv_bn_relu(average, named, (64, 1)))
    x = layers.Concatenate(axis=3, name="mixed_5b")(outputs)
    for index in range(1, 11):
        x = _residual_block(x, named, f"block35_{index}", _BLOCK35, 0.17)
    x = _reduction_block(x, named, "mixed_6a", (((384, 3),), ((256, 1), (256, 3), (384, 3))))
    for index in range(1, 21):
        x = _residual_block(x, named, f"block17_{index}", _BLOCK17, 0.1)
    branches = (((256, 1), (384, 3)), ((256, 1), (288, 3)), ((256, 1), (288, 3), (320, 3)))
    x = _reduction_block(x, named, "mixed_7a", branches)
    for index in range(1, 10):
        x = _residual_block(x, named, f"block8_{index}", _BLOCK8, 0.2)
    x = _residual_block(x, named, "block8_10", _BLOCK8, 1.0, activate=False)
    return _conv_bn_relu(x, named, (1536, 1), name="conv_7b")


_PLAN = Plan(
    "InceptionResNetV2",
    _body,
    dense_head,
    Files("inception_resnet_v2/inception_resnet_v2_weights_tf_dim_ordering_tf_kernels{}.h5"),
    Sizes(299, minimum=75),
)
_DOCUMENT = Document(
    "Inception-ResNet V2, 40 residual Inception blocks", _REFERENCE, PREPROCESSED, (75, 75, 3)
)
InceptionResNetV2 = architecture(_PLAN, _DOCUMENT, "inception_resnet_v2", __name__)
