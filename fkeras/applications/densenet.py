"""DenseNet: each block receives the concatenated features of all previous blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fkeras import layers
from fkeras.applications.building.architecture import Architecture, architecture
from fkeras.applications.building.arguments import Options
from fkeras.applications.building.compose import Files, Plan, named_head
from fkeras.applications.building.documents import PREPROCESSED, Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_torch as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor

__all__ = ("DenseNet121", "DenseNet169", "DenseNet201", "decode_predictions", "preprocess_input")

_REFERENCE = (
    "Huang et al., 2017, Densely connected convolutional networks, https://arxiv.org/abs/1608.06993"
)
# number of channels that each block appends
_GROWTH = 32


def _bn_relu(x: KerasTensor, prefix: str, bn_suffix: str, relu_suffix: str) -> KerasTensor:
    x = layers.BatchNormalization(axis=3, epsilon=1.001e-5, name=f"{prefix}{bn_suffix}")(x)
    return layers.Activation("relu", name=f"{prefix}{relu_suffix}")(x)


def _conv(x: KerasTensor, filters: int, size: int, name: str) -> KerasTensor:
    return layers.Conv2D(filters, size, padding="same", use_bias=False, name=name)(x)


def _dense_block(x: KerasTensor, name: str) -> KerasTensor:
    """Appends the 32 channels of a bottleneck and a 3x3 convolution to the features."""
    growth = _bn_relu(x, name, "_0_bn", "_0_relu")
    # padding "valid", as in Keras's config: a 1x1 kernel needs no padding
    growth = layers.Conv2D(4 * _GROWTH, 1, use_bias=False, name=f"{name}_1_conv")(growth)
    growth = _bn_relu(growth, name, "_1_bn", "_1_relu")
    growth = _conv(growth, _GROWTH, 3, f"{name}_2_conv")
    return layers.Concatenate(axis=3, name=f"{name}_concat")([x, growth])


def _transition(x: KerasTensor, name: str) -> KerasTensor:
    """Halves the number of channels, and the height and width."""
    x = _bn_relu(x, name, "_bn", "_relu")
    channels = x.spec.shape[3] or 0
    x = layers.Conv2D(channels // 2, 1, use_bias=False, name=f"{name}_conv")(x)
    return layers.AveragePooling2D(2, strides=2, name=f"{name}_pool")(x)


def _body(x: KerasTensor, named: Names, options: Options, depths: Sequence[int]) -> KerasTensor:
    x = named(layers.ZeroPadding2D(((3, 3), (3, 3))))(x)
    x = layers.Conv2D(64, 7, strides=2, use_bias=False, name="conv1_conv")(x)
    x = _bn_relu(x, "conv1", "_bn", "_relu")
    x = named(layers.ZeroPadding2D(((1, 1), (1, 1))))(x)
    x = layers.MaxPooling2D(3, strides=2, name="pool1")(x)
    for stage, depth in enumerate(depths, 2):
        if stage > 2:
            x = _transition(x, f"pool{stage - 1}")
        for index in range(1, depth + 1):
            x = _dense_block(x, f"conv{stage}_block{index}")
    return _bn_relu(x, "", "bn", "relu")


def _densenet(depth: int, depths: Sequence[int]) -> Architecture:
    name = f"densenet{depth}"
    files = Files(f"densenet/{name}_weights_tf_dim_ordering_tf_kernels{{}}.h5")
    plan = Plan(f"DenseNet{depth}", partial(_body, depths=depths), named_head, files)
    title = f"DenseNet-{depth}, a densely connected network of {depth} layers"
    return architecture(plan, Document(title, _REFERENCE, PREPROCESSED), name, __name__)


DenseNet121 = _densenet(121, (6, 12, 24, 16))
DenseNet169 = _densenet(169, (6, 12, 32, 32))
DenseNet201 = _densenet(201, (6, 12, 48, 32))
