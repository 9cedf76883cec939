"""The template of the architectures' docstrings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fkeras.applications.building.arguments import Sizes

_TEMPLATE = """Composes {title}.

The model expects {images}

Args:
{arguments}

Returns:
    With `weights=None`, a model without weights; `model.build(key)` or `Trainer.init` initializes
    them. With a file, `(model, state)` as from `fk.load_weights`; the state holds the moving
    statistics of the normalization.

Raises:
    ValueError: for an argument out of range, for images that are too small, and for
        `weights="imagenet"`; the message gives the URL of Keras's file.
    TypeError: for an argument of another type.
    FileNotFoundError: if the file of weights is missing.
    FileError: for a file with the weights of another model; the error lists all differences.

Example:
    >>> import fkeras as fk
    >>> model = fk.applications.{function}(weights=None, input_shape={shape}, classes=10)
    >>> model.outputs.shape
    (None, 10)

References:
    {reference}
"""

_ARGUMENTS = MappingProxyType(
    {
        "input_shape": """height, width and channels of the images, with height and width of {minimum} or
        more; the default is {default}, and {features} without the classifier.""",
        "include_top": "whether the model ends in the classifier.",
        "weights": """None for a model without weights, or the path of a file from Keras or fkeras
        (`.h5`, `.weights.h5`, `.keras`, `.safetensors`, `.npz`), such as a downloaded file of
        Keras's ImageNet weights. fkeras downloads nothing.""",
        "input_tensor": "symbolic images that replace the input of the model.",
        "pooling": """output without the classifier: None for features (b, h, w, c), "avg" or "max" for
        features (b, c).""",
        "classes": "number of classes of the classifier.",
        "classifier_activation": "activation of the classifier; None for logits.",
        "name": "name of the model.",
    }
)


class Document(NamedTuple):
    """Texts for the docstring of an architecture.

    Args:
        title: name of the architecture, after "Composes".
        reference: authors, year, title and URL of the paper.
        images: the pixels that the model expects, after "The model expects".
    """

    title: str
    reference: str
    images: str
    shape: tuple[int, int, int] = (32, 32, 3)
    extra: Mapping[str, str] = MappingProxyType({})


RAW = "pixels from 0 to 255 and scales the pixels itself."
PREPROCESSED = "images from its module's `preprocess_input`, which scales pixels from 0 to 255."


def docstring(function: str, document: Document, names: tuple[str, ...], sizes: Sizes) -> str:
    """Returns the docstring of an architecture."""
    descriptions = {**_ARGUMENTS, **document.extra}
    lines = (f"    {name}: {descriptions[name]}" for name in names)
    arguments = "\n".join(lines).format(
        default=f"({sizes.default}, {sizes.default}, 3)",
        features=f"({sizes.features}, {sizes.features}, 3)",
        minimum=sizes.minimum,
    )
    return _TEMPLATE.format(
        title=document.title,
        images=document.images,
        arguments=arguments,
        function=function,
        shape=document.shape,
        reference=document.reference,
    )
