"""Lookup of initializers by name, from the registration rows at the end of each module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, overload

from fkeras.engine.config.configurable import deserializer, lookup
from fkeras.engine.config.field_types import Named
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.frozen import is_array
from fkeras.engine.values.registry import by_name
from fkeras.initializers.constant import INITIALIZERS as CONSTANT_ROWS
from fkeras.initializers.constant import Exactly
from fkeras.initializers.distributions import INITIALIZERS as DISTRIBUTIONS_ROWS
from fkeras.initializers.orthogonal import INITIALIZERS as ORTHOGONAL_ROWS
from fkeras.initializers.scaling import INITIALIZERS as SCALING_ROWS
from fkeras.initializers.stft import INITIALIZERS as STFT_ROWS

_NAMES: Mapping[str, type] = by_name(
    CONSTANT_ROWS,
    DISTRIBUTIONS_ROWS,
    ORTHOGONAL_ROWS,
    SCALING_ROWS,
    STFT_ROWS,
)


@overload
def get(identifier: None, custom_objects: Mapping[str, Any] | None = None) -> None: ...


@overload
def get(
    identifier: Named, custom_objects: Mapping[str, Any] | None = None
) -> Callable[..., Any]: ...


@hides_internal_frames
def get(
    identifier: Named | None, custom_objects: Mapping[str, Any] | None = None
) -> Callable[..., Any] | None:
    """Returns the initializer for a name, a configuration or an object.

    Every function `(key, shape, dtype) -> array` is an initializer, including the functions of
    `jax.nn.initializers`.

    Args:
        identifier: a name such as "he_normal" or "HeNormal", data from `serialize`, an initializer
            or its class, a function, an array of the weight's shape, or None.
        custom_objects: your classes and functions by name.

    Returns:
        The initializer; None for None.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.

    Example:
        >>> import fkeras as fk
        >>> fk.initializers.get("he_normal")
        HeNormal()
    """
    if is_array(identifier):
        array: Any = identifier
        return Exactly(array)
    return lookup(identifier, "initializer", _NAMES, custom_objects)


deserialize = deserializer(get)
