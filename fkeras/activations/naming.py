"""Activations by name, from the rows at the end of each family module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fkeras.activations import gated, positive, rectified, saturating, shares, shrinking
from fkeras.engine.config.configurable import lookup
from fkeras.engine.values.registry import by_name

_NAMES: Mapping[str, Callable[..., Any]] = by_name(
    gated.ACTIVATIONS,
    positive.ACTIVATIONS,
    rectified.ACTIVATIONS,
    saturating.ACTIVATIONS,
    shares.ACTIVATIONS,
    shrinking.ACTIVATIONS,
)


def get(identifier: Any, custom_objects: Mapping[str, Any] | None = None) -> Callable:
    """The function that a name, a configuration or a function means; None means `linear`.

    Args:
        identifier: a name such as "relu", what `serialize` wrote, a function, or None.
        custom_objects: your own functions by name.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import fkeras as fk
        >>> fk.activations.get("relu") is fk.activations.relu
        True
        >>> fk.activations.get(None)(3.0)
        3.0
    """
    if identifier is None:
        return rectified.linear
    return lookup(identifier, "activation", _NAMES, custom_objects)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Callable:
    """The function that `serialize` wrote.

    Args:
        config: the name of a function of this package, or JSON data of one of your own.
        custom_objects: your own functions by name.

    Raises:
        ValueError: for an unknown name, with the nearest one.

    Example:
        >>> import fkeras as fk
        >>> fk.activations.serialize(fk.activations.gelu)
        'gelu'
        >>> fk.activations.deserialize("gelu") is fk.activations.gelu
        True
    """
    return get(config, custom_objects)
