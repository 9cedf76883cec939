"""From body and head to a model, and to its weights from a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from fkeras import layers
from fkeras.applications.building.arguments import Options, Sizes, check_options, start
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor, Model
from fkeras.saving import load_weights

#: from images or features to features: `(x, named, options)`, with further arguments until `partial`
#: has set them
Part: TypeAlias = Callable[..., KerasTensor]
Loaded: TypeAlias = tuple[Model, dict[str, Any]]

_FILES = "https://storage.googleapis.com/tensorflow/keras-applications/"


class Files(NamedTuple):
    """Keras's files of ImageNet weights: with the classifier, and without.

    Example:
        >>> Files("vgg16/vgg16_weights_tf_dim_ordering_tf_kernels{}.h5").url(False)[-19:]
        'tf_kernels_notop.h5'
    """

    template: str
    without_top: str = "_notop"
    folder: str = _FILES

    def url(self, include_top: bool) -> str:
        """Returns the address of the file."""
        return self.folder + self.template.format("" if include_top else self.without_top)


class Plan(NamedTuple):
    """Everything about an architecture except the caller's arguments.

    Args:
        function: name of the public function, for messages.
        body: from the images to the features.
        head: from the features to scores, or to pooled features.
        files: Keras's files of weights.
        sizes: image sizes.
    """

    function: str
    body: Part
    head: Part
    files: Files
    sizes: Sizes = Sizes(224)


def compose(
    plan: Plan, options: Options, named_after: Callable[[KerasTensor], str] | None = None
) -> Any:
    """Returns the model, or with a file of weights `(model, state)`.

    Args:
        plan: the architecture.
        options: the arguments of the caller.
        named_after: default name of the model, from the images.

    Raises:
        ValueError: for arguments that the architecture cannot take.
        FileNotFoundError: for a missing file of weights.
        FileError: for a file with other weights.
    """
    url = plan.files.url(options.include_top is not False)
    options = check_options(plan.function, options, url)
    x, inputs = start(plan.function, options, plan.sizes)
    if options.name is None and named_after is not None:
        options = options._replace(name=named_after(x))
    named = Names()
    x = plan.head(plan.body(x, named, options), named, options)
    model = Model(inputs, x, name=options.name)
    return model if options.weights is None else load_weights(options.weights, model)


def pooled(x: KerasTensor, named: Names, options: Options, use_names: bool = False) -> KerasTensor:
    """Applies the pooling that `pooling` names.

    Args:
        x: features (b, h, w, c).
        named: names of unnamed layers.
        options: the arguments of the caller.
        use_names: whether the layers are named "avg_pool" and "max_pool".
    """
    if options.pooling is None:
        return x
    if options.pooling == "avg":
        layer = layers.GlobalAveragePooling2D(name="avg_pool" if use_names else None)
    else:
        layer = layers.GlobalMaxPooling2D(name="max_pool" if use_names else None)
    return (layer if use_names else named(layer))(x)


def dense_head(
    x: KerasTensor,
    named: Names,
    options: Options,
    *,
    name_average: bool = True,
    name_pooling: bool = False,
    dropout: float = 0.0,
    **initializers: Any,
) -> KerasTensor:
    """Averages each channel and classifies with one dense layer; without the top, pools.

    Args:
        x: features (b, h, w, c).
        named: names of unnamed layers.
        options: the arguments of the caller.
        name_average: whether the averaging layer of the classifier is named "avg_pool".
        name_pooling: whether the pooling layers without a classifier have names.
        dropout: rate of the dropout before the dense layer; 0 for no dropout layer.
        initializers: initializers of the dense layer.
    """
    if not options.include_top:
        return pooled(x, named, options, name_pooling)
    average = layers.GlobalAveragePooling2D
    x = (average(name="avg_pool") if name_average else named(average()))(x)
    if dropout > 0:
        x = layers.Dropout(dropout, name="top_dropout")(x)
    return layers.Dense(
        options.classes,
        activation=options.classifier_activation,
        name="predictions",
        **initializers,
    )(x)


#: the head of most architectures: pooling layers have names
named_head = partial(dense_head, name_pooling=True)
