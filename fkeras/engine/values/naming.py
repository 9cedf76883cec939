"""Names of layers: the default, derived from the name of the class, and the rule for all names."""

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


def checked_name(name: object) -> str | None:
    """Returns the name of a layer, or None.

    Raises:
        ValueError: for anything but a non-empty string without "/".
    """
    if name is None:
        return None
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(
            f"name: expected a non-empty string without '/', received {name!r}. '/' joins the "
            "names of layers inside layers; use '_'."
        )
    return name
