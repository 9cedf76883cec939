"""Parts that EfficientNet and EfficientNet V2 share: convolution, squeeze-and-excitation, head."""

from __future__ import annotations

from functools import partial
from typing import Any

from fkeras import initializers, layers
from fkeras.applications.building.compose import dense_head
from fkeras.engine import KerasTensor

KERNEL = initializers.VarianceScaling(2.0, "fan_out", "truncated_normal")
_DENSE_KERNEL = initializers.VarianceScaling(1.0 / 3.0, "fan_out", "uniform")


def conv(x: KerasTensor, filters: int, size: int, name: str, **options: Any) -> KerasTensor:
    """Convolves without bias; the padding is "same" by default."""
    options = {"padding": "same", **options}
    layer = layers.Conv2D(
        filters, size, use_bias=False, kernel_initializer=KERNEL, name=name, **options
    )
    return layer(x)


def bn_swish(x: KerasTensor, prefix: str, momentum: float) -> KerasTensor:
    """Applies batch normalization and swish."""
    x = layers.BatchNormalization(axis=3, momentum=momentum, name=f"{prefix}bn")(x)
    return layers.Activation("swish", name=f"{prefix}activation")(x)


def squeeze_excite(x: KerasTensor, filters: int, bottleneck: int, prefix: str) -> KerasTensor:
    """Squeeze-and-excitation: scales each channel by a factor computed from all channel means."""
    factors = layers.GlobalAveragePooling2D(name=f"{prefix}se_squeeze")(x)
    factors = layers.Reshape((1, 1, filters), name=f"{prefix}se_reshape")(factors)
    for width, activation, part in (
        (bottleneck, "swish", "reduce"),
        (filters, "sigmoid", "expand"),
    ):
        factors = layers.Conv2D(
            width,
            1,
            padding="same",
            activation=activation,
            kernel_initializer=KERNEL,
            name=f"{prefix}se_{part}",
        )(factors)
    return layers.Multiply(name=f"{prefix}se_excite")([x, factors])


def add_shortcut(x: KerasTensor, shortcut: KerasTensor, rate: float, prefix: str) -> KerasTensor:
    """Adds a block's input to its output, with stochastic depth: training drops blocks of samples."""
    if rate > 0:
        x = layers.Dropout(rate, noise_shape=(None, 1, 1, 1), name=f"{prefix}drop")(x)
    return layers.Add(name=f"{prefix}add")([x, shortcut])


#: the head of both networks
efficientnet_head = partial(dense_head, name_pooling=True, kernel_initializer=_DENSE_KERNEL)
