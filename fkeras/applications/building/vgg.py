"""VGG: blocks of 3x3 convolutions, each followed by max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fkeras import layers
from fkeras.applications.building.architecture import Architecture, architecture
from fkeras.applications.building.arguments import Options
from fkeras.applications.building.compose import Files, Plan, global_pooling
from fkeras.applications.building.documents import PREPROCESSED, Document
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor

_REFERENCE = "Simonyan and Zisserman, 2015, Very deep convolutional networks, https://arxiv.org/abs/1409.1556"
_WIDTHS = (64, 128, 256, 512, 512)


def _body(x: KerasTensor, named: Names, options: Options, depths: Sequence[int]) -> KerasTensor:
    for block, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True), 1):
        for index in range(1, depth + 1):
            name = f"block{block}_conv{index}"
            x = layers.Conv2D(width, 3, activation="relu", padding="same", name=name)(x)
        x = layers.MaxPooling2D(2, strides=2, name=f"block{block}_pool")(x)
    return x


def _head(x: KerasTensor, named: Names, options: Options) -> KerasTensor:
    if not options.include_top:
        return global_pooling(x, named, options)
    x = layers.Flatten(name="flatten")(x)
    for name in ("fc1", "fc2"):
        x = layers.Dense(4096, activation="relu", name=name)(x)
    activation = options.classifier_activation
    return layers.Dense(options.classes, activation=activation, name="predictions")(x)


def vgg(depth: int, depths: Sequence[int]) -> Architecture:
    """Returns the public function of a VGG network."""
    name = f"vgg{depth}"
    files = Files(f"{name}/{name}_weights_tf_dim_ordering_tf_kernels{{}}.h5")
    plan = Plan(f"VGG{depth}", partial(_body, depths=depths), _head, files)
    title = f"VGG-{depth}, {depth - 3} convolutions and three dense layers"
    module = f"fkeras.applications.{name}"
    return architecture(plan, Document(title, _REFERENCE, PREPROCESSED), name, module)
