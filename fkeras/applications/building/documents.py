"""The docstrings of the architectures, from one template."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_TEMPLATE = """Composes {title}.

The model expects {images}

Args:
{arguments}

Returns:
    With `weights=None` the model without weights: `model.build(key)` draws them, `Trainer.init` too.
    With a file `(model, state)`, as `fk.load_weights` returns them; the state has the moving
    statistics.

Raises:
    ValueError: for an argument out of range, for images that are too small, and for the weights
        "imagenet"; the message has the address of Keras's file.
    TypeError: for an argument of another type.
    FileNotFoundError: for a path without a file.
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
        "input_shape": """height, width and channels of the images; the default is {default}.
        Height and width are {minimum} or more.""",
        "include_top": "whether the model ends in the classifier.",
        "weights": """None for a model without weights, or the path of a file that Keras or fkeras wrote
        (`.h5`, `.weights.h5`, `.keras`, `.safetensors`, `.npz`). Keras's files of ImageNet weights
        are such files; fkeras downloads nothing.""",
        "input_tensor": "a symbolic tensor of images in the place of a new input.",
        "pooling": """without the classifier: None for features (b, h, w, c), "avg" or "max" for (b, c).""",
        "classes": "number of classes of the classifier.",
        "classifier_activation": "activation of the classifier; None for logits.",
        "name": "name of the model.",
    }
)


class Document(NamedTuple):
    """Parts of the docstring of an architecture.

    Args:
        title: the architecture, at the end of "Composes ...".
        reference: authors, year, title and address of the paper.
        images: the pixels that the model expects.
        shape: images of the example.
        extra: further arguments with their descriptions.
    """

    title: str
    reference: str
    images: str
    shape: tuple[int, int, int] = (32, 32, 3)
    extra: Mapping[str, str] = MappingProxyType({})


RAW = "pixels from 0 to 255 and scales them itself."
PREPROCESSED = "images of its module's `preprocess_input`, which takes pixels from 0 to 255."


def docstring(
    function: str, document: Document, names: tuple[str, ...], default: int | None, minimum: int
) -> str:
    """Returns the docstring of an architecture.

    Args:
        function: name of the function.
        document: what is special.
        names: the arguments in their order.
        default: default height and width.
        minimum: smallest height and width.

    Example:
        >>> docstring("Net", Document("Net", "Net, 2020.", RAW), ("name",), 224, 32)[:13]
        'Composes Net.'
    """
    texts = {**_ARGUMENTS, **document.extra}
    shape = f"({default}, {default}, 3)"
    lines = (f"    {name}: {texts[name]}" for name in names)
    arguments = "\n".join(lines).format(default=shape, minimum=minimum)
    return _TEMPLATE.format(
        title=document.title,
        images=document.images,
        arguments=arguments,
        function=function,
        shape=document.shape,
        reference=document.reference,
    )
