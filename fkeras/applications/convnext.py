"""ConvNeXt: a convolutional network modeled on the design of vision transformers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, cast, overload

from fkeras import layers
from fkeras.applications.building.architecture import describe
from fkeras.applications.building.arguments import Activation, ImageShape, Options, Path
from fkeras.applications.building.compose import Files, Loaded, Plan, compose, global_pooling
from fkeras.applications.building.documents import Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_nothing as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor, Model, Sequential
from fkeras.engine.config.converters import boolean
from fkeras.layers.applications import LayerScale

__all__ = (
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "decode_predictions",
    "preprocess_input",
)

_REFERENCE = "Liu et al., 2022, A ConvNet for the 2020s, https://arxiv.org/abs/2201.03545"
_IMAGES = "pixels from 0 to 255 and, with `include_preprocessing`, normalizes the pixels itself."
_PREPROCESSING = """whether the model normalizes pixels from 0 to 255, for images with three
        channels; False for a model that expects numbers around 0."""
_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
_VARIANCE = ((0.229 * 255) ** 2, (0.224 * 255) ** 2, (0.225 * 255) ** 2)
_EPSILON = 1e-6


def _layer_norm(name: str | None = None) -> layers.LayerNormalization:
    return layers.LayerNormalization(epsilon=_EPSILON, name=name)


def _block(x: KerasTensor, width: int, name: str) -> KerasTensor:
    """Adds a depthwise 7x7 convolution and two dense layers per pixel to the input."""
    depthwise = f"{name}_depthwise_conv"
    residual = layers.Conv2D(width, 7, padding="same", groups=width, name=depthwise)(x)
    residual = _layer_norm(f"{name}_layernorm")(residual)
    residual = layers.Dense(4 * width, name=f"{name}_pointwise_conv_1")(residual)
    residual = layers.Activation("gelu", name=f"{name}_gelu")(residual)
    residual = layers.Dense(width, name=f"{name}_pointwise_conv_2")(residual)
    residual = LayerScale(_EPSILON, width, name=f"{name}_layer_scale")(residual)
    # Keras's place of stochastic depth: all its networks have the rate 0, an identity
    residual = layers.Activation("linear", name=f"{name}_identity")(residual)
    return x + residual


def _body(
    x: KerasTensor,
    named: Names,
    options: Options,
    depths: Sequence[int],
    widths: Sequence[int],
    preprocess: bool,
) -> KerasTensor:
    prefix = options.name
    if preprocess and x.shape[3] == 3:
        name = f"{prefix}_prestem_normalization"
        x = layers.Normalization(mean=_MEAN, variance=_VARIANCE, name=name)(x)
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage == 0:
            convolution = layers.Conv2D(width, 4, strides=4, name=f"{prefix}_stem_conv")
            normalization = _layer_norm(f"{prefix}_stem_layernorm")
            downsample = Sequential([convolution, normalization], name=f"{prefix}_stem")
        else:
            number = stage - 1
            name = f"{prefix}_downsampling_conv_{number}"
            convolution = layers.Conv2D(width, 2, strides=2, name=name)
            normalization = _layer_norm(f"{prefix}_downsampling_layernorm_{number}")
            name = f"{prefix}_downsampling_block_{number}"
            downsample = Sequential([normalization, convolution], name=name)
        x = downsample(x)
        for index in range(depth):
            x = _block(x, width, f"{prefix}_stage_{stage}_block_{index}")
    return x


def _head(x: KerasTensor, named: Names, options: Options) -> KerasTensor:
    if not options.include_top:
        return named(_layer_norm())(global_pooling(x, named, options))
    prefix = f"{options.name}_head"
    x = layers.GlobalAveragePooling2D(name=f"{prefix}_gap")(x)
    x = _layer_norm(f"{prefix}_layernorm")(x)
    activation = options.classifier_activation
    return layers.Dense(options.classes, activation=activation, name=f"{prefix}_dense")(x)


class ConvNeXt(Protocol):
    """A function that composes a ConvNeXt.

    Without a file of weights it returns the model, otherwise `(model, state)`.
    """

    __name__: str

    @overload
    def __call__(
        self,
        include_top: bool = True,
        include_preprocessing: bool = True,
        *,
        weights: None,
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = ...,
    ) -> Model: ...

    @overload
    def __call__(
        self,
        include_top: bool = True,
        include_preprocessing: bool = True,
        weights: Path = "imagenet",
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = ...,
    ) -> Loaded: ...


def _convnext(variant: str, depths: Sequence[int], widths: Sequence[int]) -> ConvNeXt:
    default_name = f"convnext_{variant.lower()}"
    body = partial(_body, depths=depths, widths=widths)
    plan = Plan(f"ConvNeXt{variant}", body, _head, Files(f"convnext/{default_name}{{}}.h5"))
    extra = {"include_preprocessing": _PREPROCESSING}
    document = Document(f"ConvNeXt-{variant}", _REFERENCE, _IMAGES, extra=extra)

    def build(
        include_top: bool = True,
        include_preprocessing: bool = True,
        weights: Path | None = "imagenet",
        input_tensor: KerasTensor | None = None,
        input_shape: ImageShape | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = default_name,
    ) -> Any:
        argument = f"{plan.function}: include_preprocessing"
        preprocess = boolean.check(argument, include_preprocessing)
        return compose(
            plan._replace(body=partial(body, preprocess=preprocess)),
            Options(
                include_top=include_top,
                weights=weights,
                input_tensor=input_tensor,
                input_shape=input_shape,
                pooling=pooling,
                classes=classes,
                classifier_activation=classifier_activation,
                # needed even for name=None: the name is the prefix of all layer names
                name=default_name if name is None else name,
            ),
        )

    return cast(ConvNeXt, describe(build, plan, document, __name__))


ConvNeXtTiny = _convnext("Tiny", (3, 3, 9, 3), (96, 192, 384, 768))
ConvNeXtSmall = _convnext("Small", (3, 3, 27, 3), (96, 192, 384, 768))
ConvNeXtBase = _convnext("Base", (3, 3, 27, 3), (128, 256, 512, 1024))
ConvNeXtLarge = _convnext("Large", (3, 3, 27, 3), (192, 384, 768, 1536))
ConvNeXtXLarge = _convnext("XLarge", (3, 3, 27, 3), (256, 512, 1024, 2048))
