"""Residual networks of bottleneck blocks: ResNet, and ResNet V2 with preactivation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fkeras import layers
from fkeras.applications.building.architecture import Architecture, architecture
from fkeras.applications.building.arguments import Options
from fkeras.applications.building.compose import Files, Plan, named_head
from fkeras.applications.building.documents import PREPROCESSED, Document
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor

_REFERENCE = "He et al., 2015, Deep residual learning, https://arxiv.org/abs/1512.03385"
_REFERENCE_V2 = (
    "He et al., 2016, Identity mappings in deep residual networks, https://arxiv.org/abs/1603.05027"
)
_WIDTHS = (64, 128, 256, 512)
_EPSILON = 1.001e-5


def _batch_norm(x: KerasTensor, name: str) -> KerasTensor:
    return layers.BatchNormalization(axis=3, epsilon=_EPSILON, name=name)(x)


def _bn_relu(x: KerasTensor, name: str) -> KerasTensor:
    x = _batch_norm(x, f"{name}_bn")
    return layers.Activation("relu", name=f"{name}_relu")(x)


def _bottleneck(x: KerasTensor, width: int, stride: int, project: bool, name: str) -> KerasTensor:
    """Adds 1x1, 3x3 and 1x1 convolutions to the input, or to a projection of the input."""
    shortcut = x
    if project:
        shortcut = layers.Conv2D(4 * width, 1, strides=stride, name=f"{name}_0_conv")(x)
        shortcut = _batch_norm(shortcut, f"{name}_0_bn")
    x = layers.Conv2D(width, 1, strides=stride, name=f"{name}_1_conv")(x)
    x = _bn_relu(x, f"{name}_1")
    x = layers.Conv2D(width, 3, padding="same", name=f"{name}_2_conv")(x)
    x = _bn_relu(x, f"{name}_2")
    x = layers.Conv2D(4 * width, 1, name=f"{name}_3_conv")(x)
    x = _batch_norm(x, f"{name}_3_bn")
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.Activation("relu", name=f"{name}_out")(x)


def _preactivation_bottleneck(
    x: KerasTensor, named: Names, width: int, stride: int, project: bool, name: str
) -> KerasTensor:
    """The block of ResNet V2: normalization and ReLU before each convolution, none after the sum."""
    active = _bn_relu(x, f"{name}_preact")
    if project:
        shortcut = layers.Conv2D(4 * width, 1, strides=stride, name=f"{name}_0_conv")(active)
    else:
        shortcut = named(layers.MaxPooling2D(1, strides=stride))(x) if stride > 1 else x
    x = layers.Conv2D(width, 1, use_bias=False, name=f"{name}_1_conv")(active)
    x = _bn_relu(x, f"{name}_1")
    x = layers.ZeroPadding2D(((1, 1), (1, 1)), name=f"{name}_2_pad")(x)
    x = layers.Conv2D(width, 3, strides=stride, use_bias=False, name=f"{name}_2_conv")(x)
    x = _bn_relu(x, f"{name}_2")
    x = layers.Conv2D(4 * width, 1, name=f"{name}_3_conv")(x)
    return layers.Add(name=f"{name}_out")([shortcut, x])


def _stem(x: KerasTensor, activate: bool) -> KerasTensor:
    x = layers.ZeroPadding2D(((3, 3), (3, 3)), name="conv1_pad")(x)
    x = layers.Conv2D(64, 7, strides=2, name="conv1_conv")(x)
    if activate:
        x = _bn_relu(x, "conv1")
    x = layers.ZeroPadding2D(((1, 1), (1, 1)), name="pool1_pad")(x)
    return layers.MaxPooling2D(3, strides=2, name="pool1_pool")(x)


def _body(x: KerasTensor, named: Names, options: Options, depths: Sequence[int]) -> KerasTensor:
    x = _stem(x, activate=True)
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True), 2):
        for index in range(depth):
            # the first block of a stage halves the image, except in stage 2: the stem has pooled
            stride = 2 if index == 0 and stage > 2 else 1
            x = _bottleneck(x, width, stride, index == 0, f"conv{stage}_block{index + 1}")
    return x


def _body_v2(x: KerasTensor, named: Names, options: Options, depths: Sequence[int]) -> KerasTensor:
    x = _stem(x, activate=False)
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True), 2):
        for index in range(depth):
            # the last block of a stage halves the image, except in the last stage
            stride = 2 if index == depth - 1 and stage < 5 else 1
            x = _preactivation_bottleneck(
                x, named, width, stride, index == 0, f"conv{stage}_block{index + 1}"
            )
    return _bn_relu(x, "post")


def resnet(depth: int, depths: Sequence[int]) -> Architecture:
    """Returns the public function of a ResNet."""
    name = f"resnet{depth}"
    files = Files(f"resnet/{name}_weights_tf_dim_ordering_tf_kernels{{}}.h5")
    plan = Plan(f"ResNet{depth}", partial(_body, depths=depths), named_head, files)
    title = f"ResNet-{depth}, a residual network of {depth} layers"
    module = "fkeras.applications.resnet"
    return architecture(plan, Document(title, _REFERENCE, PREPROCESSED), name, module)


def resnet_v2(depth: int, depths: Sequence[int]) -> Architecture:
    """Returns the public function of a ResNet V2."""
    name = f"resnet{depth}v2"
    files = Files(f"resnet/{name}_weights_tf_dim_ordering_tf_kernels{{}}.h5")
    plan = Plan(f"ResNet{depth}V2", partial(_body_v2, depths=depths), named_head, files)
    title = f"ResNet-{depth} V2, whose blocks normalize before their convolutions"
    module = "fkeras.applications.resnet_v2"
    return architecture(plan, Document(title, _REFERENCE_V2, PREPROCESSED), name, module)
