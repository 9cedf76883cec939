"""Paths of configuration keys in errors: each reader adds its key to exceptions that pass.

The exception carries the keys in an attribute, so that readers need no argument for the path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

# the longest path in a message, and the longest key
_KEYS, _LENGTH = 12, 60


class within:  # noqa: N801  (a context manager, named as `contextlib.suppress` is)
    """Context manager that prepends a key to the key path of exceptions from its block.

    Args:
        key: the key of a dictionary, or the index in a list.

    Example:
        >>> try:
        ...     with within("layers"), within(0), within("units"):
        ...         raise ValueError("expected a number")
        ... except ValueError as error:
        ...     key_path(error)
        'layers[0].units'
    """

    __slots__ = ("_key",)

    def __init__(self, key: object):
        self._key = key

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, Exception):
            add_key(error, self._key)


def add_key(error: Exception, *keys: object) -> None:
    """Prepends keys to the key path of an exception."""
    with contextlib.suppress(AttributeError):  # an exception class with __slots__
        error.keys = (*keys, *getattr(error, "keys", ()))  # type: ignore[attr-defined]


def key_path(error: BaseException) -> str | None:
    """Returns the key path of an exception as text, or None without any keys.

    The keys of the exception's causes follow the exception's own keys.
    """
    keys: list[Any] = []
    current: BaseException | None = error
    for _ in range(_KEYS):  # bounded, since __cause__ can form a cycle
        if current is None:
            break
        keys.extend(getattr(current, "keys", ()))
        current = current.__cause__
    return written(keys) if keys else None


def written(keys: Sequence[Any]) -> str:
    """Returns a key path as text; the beginning of a long path is replaced by "..."."""
    shown_keys = keys if len(keys) <= _KEYS else ("...", *keys[-_KEYS:])
    text = ""
    for key in shown_keys:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f"{'.' if text else ''}{str(key)[:_LENGTH]}"
    return text
