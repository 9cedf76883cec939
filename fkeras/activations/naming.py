"""Lookup of activations by name, from the registration rows at the end of each module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fkeras.activations import gated, positive, rectified, saturating, shares, shrinking
from fkeras.engine.config.configurable import lookup
from fkeras.engine.config.field_types import Named
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.registry import by_name

_NAMES: Mapping[str, Callable[..., Any]] = by_name(
    gated.ACTIVATIONS,
    positive.ACTIVATIONS,
    rectified.ACTIVATIONS,
    saturating.ACTIVATIONS,
    shares.ACTIVATIONS,
    shrinking.ACTIVATIONS,
)


@hides_internal_frames
def get(
    identifier: Named | None, custom_objects: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Returns the activation for a name, a configuration or a function; `linear` for None.

    Args:
        identifier: a name such as "relu", data from `serialize`, a function, or None.
        custom_objects: your functions by name.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.

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
    """Returns the activation for data from `serialize`.

    Args:
        config: the name of a function of this package, or JSON data of a function of yours.
        custom_objects: your functions by name.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.

    Example:
        >>> import fkeras as fk
        >>> fk.activations.serialize(fk.activations.gelu)
        'gelu'
        >>> fk.activations.deserialize("gelu") is fk.activations.gelu
        True
    """
    return get(config, custom_objects)
