"""Composition of a model from body and head, with weights from a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from fkeras import layers
from fkeras.applications.building.arguments import Options, Sizes, check_options, input_images
from fkeras.applications.building.names import Names
from fkeras.engine import KerasTensor, Model
from fkeras.saving import load_weights

#: function of `(x, named, options)` from images or features to features; `partial` sets all other
#: arguments
Part: TypeAlias = Callable[..., KerasTensor]
Loaded: TypeAlias = tuple[Model, dict[str, Any]]

_FILES = "https://storage.googleapis.com/tensorflow/keras-applications/"


class Files(NamedTuple):
    """URLs of Keras's files of ImageNet weights, with and without the classifier.

    Args:
        template: path in the folder, with {} for the suffix.
        without_top: suffix of the file without the classifier.

    Example:
        >>> Files("vgg16/vgg16_weights_tf_dim_ordering_tf_kernels{}.h5").url(False)[-19:]
        'tf_kernels_notop.h5'
    """

    template: str
    without_top: str = "_notop"
    folder: str = _FILES

    def url(self, include_top: bool) -> str:
        """Returns the URL of a file."""
        return self.folder + self.template.format("" if include_top else self.without_top)


class Plan(NamedTuple):
    """Everything about an architecture except the caller's arguments.

    Args:
        function: name of the public function, also for messages.
        body: computes features from images.
        head: computes class scores or pooled features from the body's features.
    """

    function: str
    body: Part
    head: Part
    files: Files
    sizes: Sizes = Sizes(224)


def compose(
    plan: Plan, options: Options, default_name: Callable[[KerasTensor], str] | None = None
) -> Any:
    """Composes the model; with a file of weights, returns `(model, state)`."""
    # before the check of `include_top`, which may still have another type
    url = plan.files.url(options.include_top is not False)
    options = check_options(plan.function, options, url)
    x, inputs = input_images(plan.function, options, plan.sizes)
    if options.name is None and default_name is not None:
        options = options._replace(name=default_name(x))
    named = Names()
    x = plan.head(plan.body(x, named, options), named, options)
    model = Model(inputs, x, name=options.name)
    return model if options.weights is None else load_weights(options.weights, model)


def global_pooling(
    x: KerasTensor, named: Names, options: Options, use_names: bool = False
) -> KerasTensor:
    """Pools each channel over the image, as the option `pooling` selects: "avg", "max" or None.

    Args:
        use_names: whether the layers have the names "avg_pool" and "max_pool" in Keras.
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
    """Classifies the channel means by one dense layer; without the classifier, only pools.

    Args:
        name_average: whether the pooling layer before the classifier has the name "avg_pool" in Keras.
        name_pooling: whether the pooling layers without a classifier have names in Keras.
        dropout: dropout rate before the dense layer; 0 for no dropout layer.
    """
    if not options.include_top:
        return global_pooling(x, named, options, name_pooling)
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


#: the head of architectures whose pooling layers all have names
named_head = partial(dense_head, name_pooling=True)
