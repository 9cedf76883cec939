"""NASNet-A: cells from architecture search; the inputs of a cell are the two previous outputs."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol, cast, overload

from fkeras import layers
from fkeras.applications.building.architecture import describe
from fkeras.applications.building.arguments import Activation, ImageShape, Options, Path, Sizes
from fkeras.applications.building.compose import Files, Loaded, Plan, compose, dense_head
from fkeras.applications.building.documents import PREPROCESSED, Document
from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_tf as preprocess_input
from fkeras.applications.building.names import Names
from fkeras.applications.building.widths import strided_padding
from fkeras.engine import KerasTensor, Model

__all__ = ("NASNetLarge", "NASNetMobile", "decode_predictions", "preprocess_input")

_REFERENCE = (
    "Zoph et al., 2018, Learning transferable architectures, https://arxiv.org/abs/1707.07012"
)


class _Settings(NamedTuple):
    """Sizes of a NASNet.

    `filters` are those of the first group of normal cells, and `stem` those of the first convolution.
    Each of the three groups has `repeats` normal cells. `skip_reduction` selects the second input of
    the cell after a reduction cell: True for the reduction's own second input, False for its first.
    """

    filters: int
    stem: int
    repeats: int
    skip_reduction: bool


def _batch_norm(x: KerasTensor, name: str) -> KerasTensor:
    return layers.BatchNormalization(axis=-1, momentum=0.9997, epsilon=1e-3, name=name)(x)


def _pointwise_conv(x: KerasTensor, filters: int, name: str) -> KerasTensor:
    return layers.Conv2D(
        filters, 1, padding="same", use_bias=False, kernel_initializer="he_normal", name=name
    )(x)


def _separable_convs(
    x: KerasTensor, named: Names, filters: int, size: int, cell: str, stride: int = 1
) -> KerasTensor:
    """Two separable convolutions with normalization; the stride belongs to the first."""
    x = named(layers.Activation("relu"))(x)
    if stride == 2:
        padding = strided_padding(x, size)
        x = layers.ZeroPadding2D(padding, name=f"separable_conv_1_pad_{cell}")(x)
    for number in (1, 2):
        if number == 2:
            x = named(layers.Activation("relu"))(x)
        strided = stride == 2 and number == 1
        x = layers.SeparableConv2D(
            filters,
            size,
            strides=stride if strided else 1,
            padding="valid" if strided else "same",
            use_bias=False,
            name=f"separable_conv_{number}_{cell}",
        )(x)
        x = _batch_norm(x, f"separable_conv_{number}_bn_{cell}")
    return x


def _adjust_previous(
    previous: KerasTensor | None, x: KerasTensor, named: Names, filters: int, cell: str
) -> KerasTensor:
    """Adjusts the output of the cell before the previous one to the image size and filters of `x`."""
    if previous is None:
        return x
    if previous.shape[-2] != x.shape[-2]:
        y = layers.Activation("relu", name=f"adjust_relu_1_{cell}")(previous)
        first_grid = layers.AveragePooling2D(1, strides=2, name=f"adjust_avg_pool_1_{cell}")(y)
        first_grid = _pointwise_conv(first_grid, filters // 2, f"adjust_conv_1_{cell}")
        # a second grid of pixels, shifted by one row and one column
        second_grid = named(layers.ZeroPadding2D(((0, 1), (0, 1))))(y)
        second_grid = named(layers.Cropping2D(((1, 0), (1, 0))))(second_grid)
        second_grid = layers.AveragePooling2D(1, strides=2, name=f"adjust_avg_pool_2_{cell}")(
            second_grid
        )
        second_grid = _pointwise_conv(second_grid, filters // 2, f"adjust_conv_2_{cell}")
        joined = named(layers.Concatenate(axis=-1))([first_grid, second_grid])
        return _batch_norm(joined, f"adjust_bn_{cell}")
    if previous.shape[-1] != filters:
        y = named(layers.Activation("relu"))(previous)
        y = _pointwise_conv(y, filters, f"adjust_conv_projection_{cell}")
        return _batch_norm(y, f"adjust_bn_{cell}")
    return previous


def _relu_conv_bn(x: KerasTensor, named: Names, filters: int, kind: str, cell: str) -> KerasTensor:
    x = named(layers.Activation("relu"))(x)
    x = _pointwise_conv(x, filters, f"{kind}_conv_1_{cell}")
    return _batch_norm(x, f"{kind}_bn_1_{cell}")


def _normal_cell(
    x: KerasTensor, previous: KerasTensor, named: Names, filters: int, cell: str
) -> KerasTensor:
    p = _adjust_previous(previous, x, named, filters, cell)
    h = _relu_conv_bn(x, named, filters, "normal", cell)

    def separable(source: KerasTensor, size: int, side: str) -> KerasTensor:
        return _separable_convs(source, named, filters, size, f"normal_{side}_{cell}")

    def averaged(source: KerasTensor, side: str) -> KerasTensor:
        name = f"normal_{side}_{cell}"
        return layers.AveragePooling2D(3, strides=1, padding="same", name=name)(source)

    def added(left: KerasTensor, right: KerasTensor, number: int) -> KerasTensor:
        return layers.Add(name=f"normal_add_{number}_{cell}")([left, right])

    sums = [
        added(separable(h, 5, "left1"), separable(p, 3, "right1"), 1),
        added(separable(p, 5, "left2"), separable(p, 3, "right2"), 2),
        added(averaged(h, "left3"), p, 3),
        added(averaged(p, "left4"), averaged(p, "right4"), 4),
        added(separable(h, 3, "left5"), h, 5),
    ]
    return layers.Concatenate(axis=-1, name=f"normal_concat_{cell}")([p, *sums])


def _reduction_cell(
    x: KerasTensor, previous: KerasTensor | None, named: Names, filters: int, cell: str
) -> KerasTensor:
    p = _adjust_previous(previous, x, named, filters, cell)
    h = _relu_conv_bn(x, named, filters, "reduction", cell)
    h3 = layers.ZeroPadding2D(strided_padding(h, 3), name=f"reduction_pad_1_{cell}")(h)

    def separable(source: KerasTensor, size: int, side: str) -> KerasTensor:
        return _separable_convs(source, named, filters, size, f"reduction_{side}_{cell}", stride=2)

    def added(left: KerasTensor, right: KerasTensor, name: str) -> KerasTensor:
        return layers.Add(name=f"reduction_{name}_{cell}")([left, right])

    x1 = added(separable(h, 5, "left1"), separable(p, 7, "right1"), "add_1")
    largest = layers.MaxPooling2D(3, strides=2, name=f"reduction_left2_{cell}")(h3)
    x2 = added(largest, separable(p, 7, "right2"), "add_2")
    mean = layers.AveragePooling2D(3, strides=2, name=f"reduction_left3_{cell}")(h3)
    x3 = added(mean, separable(p, 5, "right3"), "add3")
    name = f"reduction_left4_{cell}"
    x4 = layers.AveragePooling2D(3, strides=1, padding="same", name=name)(x1)
    x4 = named(layers.Add())([x2, x4])
    # in Keras, the names of these layers contain the name of the pooling above
    last = _separable_convs(x1, named, filters, 3, name)
    largest = layers.MaxPooling2D(3, strides=2, name=f"reduction_right5_{cell}")(h3)
    x5 = added(last, largest, "add4")
    return layers.Concatenate(axis=-1, name=f"reduction_concat_{cell}")([x2, x3, x4, x5])


def _body(x: KerasTensor, named: Names, options: Options, settings: _Settings) -> KerasTensor:
    x = layers.Conv2D(
        settings.stem,
        3,
        strides=2,
        use_bias=False,
        kernel_initializer="he_normal",
        name="stem_conv1",
    )(x)
    x = _batch_norm(x, "stem_bn1")
    filters, repeats = settings.filters, settings.repeats
    stem, x = x, _reduction_cell(x, None, named, filters // 4, "stem_1")
    previous, x = x, _reduction_cell(x, stem, named, filters // 2, "stem_2")
    for group in range(3):
        if group:
            cell = f"reduce_{group * repeats}"
            reduced = _reduction_cell(x, previous, named, filters * 2**group, cell)
            previous = previous if settings.skip_reduction else x
            x = reduced
        for index in range(repeats):
            cell = str(group * repeats + index + min(group, 1))
            previous, x = x, _normal_cell(x, previous, named, filters * 2**group, cell)
    return named(layers.Activation("relu"))(x)


class NASNet(Protocol):
    """A function that composes a NASNet.

    Without a file of weights it returns the model, otherwise `(model, state)`.
    """

    __name__: str

    @overload
    def __call__(
        self,
        input_shape: ImageShape | None = None,
        include_top: bool = True,
        *,
        weights: None,
        input_tensor: KerasTensor | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = ...,
    ) -> Model: ...

    @overload
    def __call__(
        self,
        input_shape: ImageShape | None = None,
        include_top: bool = True,
        weights: Path = "imagenet",
        input_tensor: KerasTensor | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = ...,
    ) -> Loaded: ...


def _nasnet(variant: str, settings: _Settings, sizes: Sizes) -> NASNet:
    default_name = f"nasnet_{variant.lower()}"
    plan = Plan(
        f"NASNet{variant}",
        partial(_body, settings=settings),
        partial(dense_head, name_average=False),
        Files(f"nasnet/NASNet-{variant.lower()}{{}}.h5", without_top="-no-top"),
        sizes,
    )
    cells = 3 * settings.repeats
    title = f"NASNet-A, the {variant.lower()} network of {cells} normal cells"
    document = Document(title, _REFERENCE, PREPROCESSED)

    def build(
        input_shape: ImageShape | None = None,
        include_top: bool = True,
        weights: Path | None = "imagenet",
        input_tensor: KerasTensor | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Activation = "softmax",
        name: str | None = default_name,
    ) -> Any:
        return compose(
            plan,
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

    return cast(NASNet, describe(build, plan, document, __name__))


# `fixed`: Keras also composes networks for images of unknown size, but their cells then add features
# of different sizes
NASNetMobile = _nasnet("Mobile", _Settings(44, 32, 4, False), Sizes(224, features=224, fixed=True))
NASNetLarge = _nasnet("Large", _Settings(168, 96, 6, True), Sizes(331, features=331, fixed=True))
