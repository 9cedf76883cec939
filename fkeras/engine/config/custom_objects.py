"""Lookup of the user's classes and functions by the names in a file.

A file refers to a class or function by its registered Keras name, "package>Name", or by its plain
name. The keys of `custom_objects` may be either; the registered name takes precedence.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any


def plain_name(name: object) -> str | None:
    """Returns the part of a registered name after the package; None for any other name."""
    if not isinstance(name, str) or name.count(">") != 1:
        return None
    package, _, plain = name.partition(">")
    # the equation of an einsum has "->", which is no package separator
    return plain if package and plain.isidentifier() and not package.endswith("-") else None


class CustomObjects(dict):
    """Dictionary of the user's classes and functions; registered names fall back to plain names.

    Example:
        >>> found = CustomObjects({"relu2": abs})
        >>> "my_package>relu2" in found, found["my_package>relu2"] is abs
        (True, True)
    """

    def __missing__(self, name: object) -> Any:
        plain = plain_name(name)
        if plain is None or not dict.__contains__(self, plain):
            raise KeyError(name)
        return dict.__getitem__(self, plain)

    def __contains__(self, name: object) -> bool:
        if dict.__contains__(self, name):
            return True
        plain = plain_name(name)
        return plain is not None and dict.__contains__(self, plain)

    def get(self, name: object, default: Any = None) -> Any:
        """Returns the object for a name, or `default`."""
        # dict.get ignores __missing__
        return self[name] if name in self else default  # noqa: SIM401


def custom_object(
    custom_objects: Mapping[str, Any] | None, name: str, registered: str | None = None
) -> tuple[Any, ...]:
    """Returns `(object,)` for a file's `name` and `registered` name, or `()` for unknown names."""
    if not custom_objects:
        return ()
    for key in (registered, name, plain_name(registered), plain_name(name)):
        if isinstance(key, str) and key in custom_objects:
            return (custom_objects[key],)
    return ()


def registered_object(custom_objects: Mapping[str, Any] | None, name: str) -> tuple[Any, ...]:
    """Returns `(object,)` if exactly one registered name ends in `name`, otherwise `()`."""
    objects = [value for key, value in (custom_objects or {}).items() if plain_name(key) == name]
    return (objects[0],) if len(objects) == 1 else ()


def custom_code(name: object, example: str = "your_object") -> str:
    """Returns the `custom_objects` argument that resolves a name, as Python code for a message.

    Example:
        >>> custom_code("my_package>Scale"), custom_code("my layer")
        ("custom_objects={'my_package>Scale': Scale}", "custom_objects={'my layer': your_object}")
    """
    text = str(name)[:100]
    plain = plain_name(text) or text
    is_name = plain.isidentifier() and not keyword.iskeyword(plain)
    return f"custom_objects={{{text!r}: {plain if is_name else example}}}"
