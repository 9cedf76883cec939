"""Default names of layers, derived from the names of classes."""

from __future__ import annotations

import re


def snake_case(name: str) -> str:
    """Returns the name of a class in Keras's snake case: `MyHTTPLayer2D` is `my_http_layer2d`.

    Example:
        >>> snake_case("BatchNormalization")
        'batch_normalization'
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
