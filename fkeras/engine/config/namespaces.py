"""What a configuration may name: classes and functions of a fixed list of rooms.

A file says "keras.layers" and "Dense". The first is looked up in a table, never imported by its
name; the second must be a class with `from_config` there, or a function that computes with arrays.
What opens files, trains, or takes functions to call is not found, whatever a file calls it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.custom_objects import (
    custom_code,
    custom_object,
    plain_name,
    registered_object,
)
from fkeras.engine.config.late_module import late_module
from fkeras.engine.messages.errors import suggest

_PACKAGES = ("keras", "fkeras", "tf_keras")
# of the package's own names those that a model's file has
_ROOT = ("DTypePolicy", "InputSpec", "Layer", "Model", "Sequential")
_OBJECTS = (
    "layers",
    "initializers",
    "losses",
    "metrics",
    "optimizers",
    "optimizers.schedules",
    "activations",
    "regularizers",
    "constraints",
    "quantizers",
)
_FUNCTIONS = ("activations", "losses", "metrics")
_OPERATIONS = ("ops", "ops.image", "ops.linalg", "ops.nn", "ops.numpy")
# functions in those rooms that make or look up objects, and compute nothing
_TOOLS = ("deserialize", "get", "resolve", "serialize")
# Keras's public names of what lives elsewhere in its own tree, and its aliases
_POLICIES = ("AWQ", "Float", "GPTQ", "Int4", "Quantized", "QuantizedFloat8")
_ALIASES = types.MappingProxyType(
    {
        "Functional": "Model",
        "DTypePolicyMap": "DTypePolicy",
        **{f"{kind}DTypePolicy": "DTypePolicy" for kind in _POLICIES},
    }
)


def room(module: str | None) -> str | None:
    """The room that a file's module means; "" for the package itself, None for no room of ours.

    Example:
        >>> room("keras.src.layers.core.dense"), room("keras.src.models.functional"), room("os")
        ('layers', '', None)
    """
    parts = (module or "").split(".")
    if parts[0] not in _PACKAGES:
        return None
    parts = parts[1:]
    if parts[:1] == ["src"]:
        parts = parts[1:]
    if parts[:1] == ["applications"]:  # layers that ready-made models of Keras bring with them
        return "layers.applications"
    for length in (2, 1):
        name = ".".join(parts[:length])
        if len(parts) >= length and name in (*_OBJECTS, *_OPERATIONS):
            return name
    return ""


def public(name: str, home: str) -> Any:
    """What a file may mean by `name` in the room `home`, or None.

    Example:
        >>> public("Functional", "").__name__, public("load_model", ""), public("get", "losses")
        ('Model', None, None)
    """
    name = _ALIASES.get(name, name)
    namespace = late_module(home)
    allowed = getattr(namespace, "__all__", ()) if home else _ROOT
    if name not in allowed:
        return None
    value = getattr(namespace, name, None)
    if isinstance(value, type):
        return value if callable(getattr(value, "from_config", None)) else None
    if home in _OPERATIONS:  # recorded functions of arrays; others call what they are given
        return value if getattr(value, "builtin", False) is True else None
    return value if home in _FUNCTIONS and name not in _TOOLS and callable(value) else None


def find(
    name: Any,
    module: Any,
    custom_objects: Mapping[str, Any] | None = None,
    registered: Any = None,
) -> Any:
    """The class or function that a file calls `name` in `module`.

    Args:
        name: the name of the class or function.
        module: the module that the file names.
        custom_objects: the user's own by name.
        registered: the name under which Keras registered the class, such as "package>Name".

    Raises:
        ValueError: where there is none that a file may name, with the nearest one.
        TypeError: where name or module are no strings.

    Example:
        >>> find("relu", "keras.activations").__name__
        'relu'
        >>> find("system", "os")
        Traceback (most recent call last):
        ...
        ValueError: deserialize: there is no 'system' in the module 'os'. ...
    """
    if not isinstance(name, str) or not isinstance(module, str | None):
        raise TypeError(
            f"deserialize: expected the names of a class and its module, received "
            f"{type(name).__name__} and {type(module).__name__}. Pass what serialize returned."
        )
    home = room(module)
    found = custom_object(custom_objects, name, registered)
    if not found and home is None:
        found = registered_object(custom_objects, name)
    if found:
        return found[0]
    if home is not None:
        value = public(name, home)
        if value is not None:
            return value
        namespace = late_module(home)
        hint = suggest(name, namespace.__all__ if home else _ROOT)
    else:
        hint = suggest(name, custom_objects or ())
    shown = name[:100]
    where = (
        "the file, which names no 'module' for it"
        if module is None
        else f"the module {module[:100]!r}"
    )
    own = registered if isinstance(registered, str) and plain_name(registered) else name
    raise ValueError(
        f"deserialize: there is no {shown!r} in {where}.{hint} For a class or function of your own "
        f"pass {custom_code(own)}."
    )
