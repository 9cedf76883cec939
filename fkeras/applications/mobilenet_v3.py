"""MobileNet V3: inverted residuals with squeeze-and-excitation, from architecture search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast, overload

from fkeras import layers
from fkeras.applications.building.architecture import describe
from fkeras.applications.building.arguments import Activation, ImageShape, Options, Path, Sizes
from fkeras.applications.building.compose import Files, Loaded, Plan, compose, global_pooling
from fkeras.applications.building.documents import Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_nothing as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.applications.building.widths import round_channels, strided_padding
from fkeras.engine import KerasTensor, Model
from fkeras.engine.config.converters import boolean, probability, real

__all__ = ("MobileNetV3Large", "MobileNetV3Small", "decode_predictions", "preprocess_input")

_REFERENCE = "Howard et al., 2019, Searching for MobileNetV3, https://arxiv.org/abs/1905.02244"
_IMAGES = "pixels from 0 to 255 and, with `include_preprocessing`, scales them itself."


class _Block(NamedTuple):
    """Settings of a block; `minimalistic` ignores `wide` (5x5 kernels), `excite` and `swish`."""

    expansion: float
    filters: int
    stride: int = 1
    wide: bool = False
    excite: bool = False
    swish: bool = False


_SMALL = (
    _Block(1, 16, 2, excite=True),
    _Block(72.0 / 16, 24, 2),
    _Block(88.0 / 24, 24),
    _Block(4, 40, 2, wide=True, excite=True, swish=True),
    *(_Block(6, 40, wide=True, excite=True, swish=True),) * 2,
    *(_Block(3, 48, wide=True, excite=True, swish=True),) * 2,
    _Block(6, 96, 2, wide=True, excite=True, swish=True),
    *(_Block(6, 96, wide=True, excite=True, swish=True),) * 2,
)
_LARGE = (
    _Block(1, 16),
    _Block(4, 24, 2),
    _Block(3, 24),
    _Block(3, 40, 2, wide=True, excite=True),
    *(_Block(3, 40, wide=True, excite=True),) * 2,
    _Block(6, 80, 2, swish=True),
    _Block(2.5, 80, swish=True),
    *(_Block(2.3, 80, swish=True),) * 2,
    *(_Block(6, 112, excite=True, swish=True),) * 2,
    _Block(6, 160, 2, wide=True, excite=True, swish=True),
    *(_Block(6, 160, wide=True, excite=True, swish=True),) * 2,
)


class _Settings(NamedTuple):
    """Arguments of the caller that change the layers."""

    alpha: float
    minimalistic: bool
    preprocess: bool
    dropout: float


def _activation(x: KerasTensor, named: Names, swish: bool) -> KerasTensor:
    return named(layers.Activation("hard_swish") if swish else layers.ReLU())(x)


def _conv_bn(x: KerasTensor, filters: int, size: int, stride: int, name: str) -> KerasTensor:
    convolution = layers.Conv2D(
        filters, size, strides=stride, padding="same", use_bias=False, name=name
    )
    return _batch_norm(convolution(x), f"{name}_bn")


def _batch_norm(x: KerasTensor, name: str) -> KerasTensor:
    return layers.BatchNormalization(axis=-1, epsilon=1e-3, momentum=0.999, name=name)(x)


def _squeeze_excite(x: KerasTensor, named: Names, filters: int, prefix: str) -> KerasTensor:
    """Scales each channel by a factor computed from all channel means."""
    prefix = f"{prefix}squeeze_excite_"
    factors = layers.GlobalAveragePooling2D(keepdims=True, name=f"{prefix}avg_pool")(x)
    width = round_channels(filters * 0.25)
    factors = layers.Conv2D(width, 1, padding="same", name=f"{prefix}conv")(factors)
    factors = layers.ReLU(name=f"{prefix}relu")(factors)
    factors = layers.Conv2D(filters, 1, padding="same", name=f"{prefix}conv_1")(factors)
    # a hard sigmoid, written as the operations in Keras's graph so that configs are equal
    factors = named(layers.ReLU(6.0))(factors + 3.0) * (1.0 / 6.0)
    return layers.Multiply(name=f"{prefix}mul")([x, factors])


def _inverted_residual(
    x: KerasTensor, named: Names, block: _Block, settings: _Settings, number: int
) -> KerasTensor:
    shortcut = x
    channels = x.shape[-1] or 0
    filters = round_channels(block.filters * settings.alpha)
    expanded = round_channels(channels * block.expansion)
    swish = block.swish and not settings.minimalistic
    size = 5 if block.wide and not settings.minimalistic else 3
    prefix = f"expanded_conv_{number}_" if number else "expanded_conv_"
    if number:  # the first block has no expansion
        x = _activation(_conv_bn(x, expanded, 1, 1, f"{prefix}expand"), named, swish)
    if block.stride == 2:
        x = layers.ZeroPadding2D(strided_padding(x, size), name=f"{prefix}depthwise_pad")(x)
    x = layers.DepthwiseConv2D(
        size,
        strides=block.stride,
        padding="valid" if block.stride == 2 else "same",
        use_bias=False,
        name=f"{prefix}depthwise",
    )(x)
    x = _activation(_batch_norm(x, f"{prefix}depthwise_bn"), named, swish)
    if block.excite and not settings.minimalistic:
        x = _squeeze_excite(x, named, expanded, prefix)
    x = _conv_bn(x, filters, 1, 1, f"{prefix}project")
    if block.stride == 1 and channels == filters:
        return layers.Add(name=f"{prefix}add")([shortcut, x])
    return x


def _body(
    x: KerasTensor, named: Names, options: Options, blocks: Sequence[_Block], settings: _Settings
) -> KerasTensor:
    if settings.preprocess:
        x = named(layers.Rescaling(scale=1.0 / 127.5, offset=-1.0))(x)
    swish = not settings.minimalistic
    x = _activation(_conv_bn(x, 16, 3, 2, "conv"), named, swish)
    for number, block in enumerate(blocks):
        x = _inverted_residual(x, named, block, settings, number)
    width = round_channels((x.shape[-1] or 0) * 6)
    return _activation(_conv_bn(x, width, 1, 1, "conv_1"), named, swish)


def _head(
    x: KerasTensor, named: Names, options: Options, width: int, settings: _Settings
) -> KerasTensor:
    if not options.include_top:
        return global_pooling(x, named, options, use_names=True)
    if settings.alpha > 1.0:
        width = round_channels(width * settings.alpha)
    x = named(layers.GlobalAveragePooling2D(keepdims=True))(x)
    x = layers.Conv2D(width, 1, padding="same", name="conv_2")(x)
    x = _activation(x, named, not settings.minimalistic)
    if settings.dropout > 0:
        x = named(layers.Dropout(settings.dropout))(x)
    x = layers.Conv2D(options.classes, 1, padding="same", name="logits")(x)
    x = named(layers.Flatten())(x)
    return layers.Activation(options.classifier_activation, name="predictions")(x)


class MobileNetV3(Protocol):
    """A function that composes a MobileNet V3.

    Without a file of weights it returns the model, otherwise `(model, state)`.
    """

    __name__: str

    @overload
    def __call__(
        self,
        input_shape: ImageShape | None = None,
        alpha: float = 1.0,
        minimalistic: bool = False,
        include_top: bool = True,
        *,
        weights: None,
        input_tensor: KerasTensor | None = None,
        classes: int = 1000,
        pooling: str | None = None,
        dropout_rate: float = 0.2,
        classifier_activation: Activation = "softmax",
        include_preprocessing: bool = True,
        name: str | None = ...,
    ) -> Model: ...

    @overload
    def __call__(
        self,
        input_shape: ImageShape | None = None,
        alpha: float = 1.0,
        minimalistic: bool = False,
        include_top: bool = True,
        weights: Path = "imagenet",
        input_tensor: KerasTensor | None = None,
        classes: int = 1000,
        pooling: str | None = None,
        dropout_rate: float = 0.2,
        classifier_activation: Activation = "softmax",
        include_preprocessing: bool = True,
        name: str | None = ...,
    ) -> Loaded: ...


_EXTRA = MappingProxyType(
    {
        "alpha": "width multiplier: factor of the number of filters in each layer.",
        "minimalistic": """whether the model omits squeeze-and-excitation, 5x5 kernels and "hard_swish",
        for hardware on which these are slow.""",
        "dropout_rate": "dropout rate before the classifier.",
        "include_preprocessing": """whether the model scales pixels from 0 to 255; False for a model
        that expects numbers from -1 to 1.""",
    }
)


def _mobilenet_v3(variant: str, blocks: Sequence[_Block], width: int) -> MobileNetV3:
    default_name = f"MobileNetV3{variant}"
    file = f"mobilenet_v3/weights_mobilenet_v3_{variant.lower()}_224_1.0_float{{}}.h5"
    plan = Plan(
        default_name,
        partial(_body, blocks=blocks),
        partial(_head, width=width),
        Files(file, without_top="_no_top_v2"),
        # the classifier is convolutional and accepts images of any size
        Sizes(None, static=False),
    )
    title = f"MobileNet V3, the {variant.lower()} network"
    document = Document(title, _REFERENCE, _IMAGES, extra=_EXTRA)

    def build(
        input_shape: ImageShape | None = None,
        alpha: float = 1.0,
        minimalistic: bool = False,
        include_top: bool = True,
        weights: Path | None = "imagenet",
        input_tensor: KerasTensor | None = None,
        classes: int = 1000,
        pooling: str | None = None,
        dropout_rate: float = 0.2,
        classifier_activation: Activation = "softmax",
        include_preprocessing: bool = True,
        name: str | None = default_name,
    ) -> Any:
        where = plan.function
        settings = _Settings(
            alpha=real(above=0).check(f"{where}: alpha", alpha),
            minimalistic=boolean.check(f"{where}: minimalistic", minimalistic),
            preprocess=boolean.check(f"{where}: include_preprocessing", include_preprocessing),
            dropout=probability.check(f"{where}: dropout_rate", dropout_rate),
        )
        return compose(
            plan._replace(
                body=partial(plan.body, settings=settings),
                head=partial(plan.head, settings=settings),
            ),
            Options(
                include_top=include_top,
                weights=weights,
                input_tensor=input_tensor,
                input_shape=input_shape,
                pooling=pooling,
                classes=classes,
                classifier_activation=classifier_activation,
                name=name,
            ),
        )

    return cast(MobileNetV3, describe(build, plan, document, __name__))


MobileNetV3Small = _mobilenet_v3("Small", _SMALL, 1024)
MobileNetV3Large = _mobilenet_v3("Large", _LARGE, 1280)
