"""Resolution of class and function names in a configuration, from a fixed list of namespaces.

A file names a module, such as "keras.layers", and a class, such as "Dense". The module is looked
up in a table and never imported by name. The class must have `from_config`, and a function must
compute with arrays. Functions that open files, train, or call their arguments are not
resolvable, so that a malicious file cannot run them.
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

_PACKAGES = ("keras", "fkeras", "tf_keras", "keras_hub")
# names of the top-level package that may occur in a model file
_ROOT = ("DTypePolicy", "InputSpec", "Layer", "Model", "Sequential")
_OBJECTS = (
    "layers",
    "layers.rotary",
    "masks",
    "initializers",
    "losses",
    "metrics",
    "optimizers",
    "optimizers.schedules",
    "activations",
    "regularizers",
    "constraints",
    "quantizers",
    "pretrained",
)
# namespaces in which a name without a module is looked up, in this order
_WITHOUT_MODULE = (
    "layers",
    "initializers",
    "regularizers",
    "constraints",
    "losses",
    "metrics",
    "optimizers",
    "optimizers.schedules",
    "activations",
    "quantizers",
    "",
)
_FUNCTIONS = ("activations", "losses", "metrics")
_OPERATIONS = ("ops", "ops.image", "ops.linalg", "ops.nn", "ops.numpy")
# functions of these namespaces that create or look up objects: not for use by a file
_TOOLS = ("deserialize", "get", "resolve", "serialize")
# class names in Keras's files whose counterpart here has another name
_POLICIES = ("AWQ", "Float", "GPTQ", "Int4", "Quantized", "QuantizedFloat8")
_ALIASES = types.MappingProxyType(
    {
        "Functional": "Model",
        "DTypePolicyMap": "DTypePolicy",
        **{f"{kind}DTypePolicy": "DTypePolicy" for kind in _POLICIES},
    }
)


def file_namespace(module: str | None) -> str | None:
    """Returns the namespace for a file's module: "" for `fkeras` itself, None for a foreign module."""
    parts = (module or "").split(".")
    if parts[0] not in _PACKAGES:
        return None
    parts = parts[1:]
    if parts[:1] == ["src"]:  # Keras writes the private module of some classes
        parts = parts[1:]
    if parts[:1] == ["applications"]:  # layers defined by the models of keras.applications
        return "layers.applications"
    if parts[:2] == ["layers", "adapters"]:
        return "layers.adapters"
    for length in (2, 1):  # the longest match: "optimizers.schedules" before "optimizers"
        name = ".".join(parts[:length])
        if len(parts) >= length and name in (*_OBJECTS, *_OPERATIONS):
            return name
    return ""


def public(name: str, home: str) -> Any:
    """Returns the class or function `name` of the namespace `home` if a file may use it, or None."""
    name = _ALIASES.get(name, name)
    namespace = late_module(home)
    public_names = getattr(namespace, "__all__", ()) if home else _ROOT
    # an allow-list: getattr alone would also reach imported modules such as os
    if name not in public_names:
        return None
    value = getattr(namespace, name, None)
    if isinstance(value, type):
        return value if callable(getattr(value, "from_config", None)) else None
    # only recorded operations; functions such as ops.map call their arguments
    if home in _OPERATIONS:
        return value if getattr(value, "builtin", False) is True else None
    return value if home in _FUNCTIONS and name not in _TOOLS and callable(value) else None


def without_module(name: str) -> list[Any]:
    """Returns the classes and functions of a name in all namespaces, each object once."""
    found: list[Any] = []
    for home in _WITHOUT_MODULE:
        value = public(name, home)
        # identity: layers may compare by value
        if value is not None and not any(value is other for other in found):
            found.append(value)
    return found


def find(
    name: str,
    module: str | None,
    custom_objects: Mapping[str, Any] | None = None,
    registered: str | None = None,
) -> Any:
    """Returns the class or function that a file refers to by name and module.

    Args:
        name: the name of the class or function.
        module: the module in the file; None selects the first namespace that has the name.
        custom_objects: the user's classes and functions by name; these take precedence.
        registered: the name under which Keras registered the class, such as "package>Name".

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.
        TypeError: if the name or the module is not a string.
    """
    if not isinstance(name, str) or not isinstance(module, str | None):
        raise TypeError(
            "deserialize: expected the names of a class and its module, received "
            f"{type(name).__name__} and {type(module).__name__}. Pass the result of serialize."
        )
    namespace_name = file_namespace(module)
    custom = custom_object(custom_objects, name, registered)
    # a module outside Keras means a custom class, so its plain name may match a registered key
    if not custom and namespace_name is None:
        custom = registered_object(custom_objects, name)
    if custom:
        return custom[0]
    package, _, registered_name = str(registered).rpartition(">")
    own = namespace_name is not None or module is None
    if own and registered is not None and package not in ("", *_PACKAGES):
        raise ValueError(
            f"deserialize: expected the class {registered!r} of another package, which the file names "
            f"like the built-in {name!r}. Pass custom_objects={{{registered!r}: {registered_name}}}."
        )
    if module is None and (values := without_module(name)):
        return values[0]
    if namespace_name is not None:
        value = public(name, namespace_name)
        if value is not None:
            return value
        namespace = late_module(namespace_name)
        hint = suggest(name, namespace.__all__ if namespace_name else _ROOT)
    else:
        hint = suggest(name, custom_objects or ())
    short_name = name[:100]  # names come from an untrusted file
    where = (
        "the file, which has no 'module' for this name"
        if module is None
        else f"the module {module[:100]!r}"
    )
    custom_key = registered if isinstance(registered, str) and plain_name(registered) else name
    raise ValueError(
        f"deserialize: there is no {short_name!r} in {where}.{hint} For a custom class or function "
        f"pass {custom_code(custom_key)}."
    )
