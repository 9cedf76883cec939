"""Paths of keys in configurations: each reader notes the key that it reads on what is raised there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

# the longest path in a message, and the longest key
_KEYS, _LENGTH = 12, 60


class within:  # noqa: N801  (a context manager, named as `contextlib.suppress` is)
    """Notes a key on exceptions from the block, before the keys that are noted already.

    Args:
        key: the key of a dictionary, or the place in a list.

    Example:
        >>> try:
        ...     with within("layers"), within(0), within("units"):
        ...         raise ValueError("expected a number")
        ... except ValueError as error:
        ...     key_path(error)
        'layers[0].units'
    """

    __slots__ = ("_key",)

    def __init__(self, key: Any):
        self._key = key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Exception):
            add_key(error, self._key)


def add_key(error: Exception, *keys: Any) -> None:
    """Notes keys on an exception, before those that are noted already."""
    with contextlib.suppress(AttributeError):  # a class with slots
        error.keys = (*keys, *getattr(error, "keys", ()))  # type: ignore[attr-defined]


def key_path(error: BaseException) -> str | None:
    """The path of the key that an exception is about, or None where nothing was noted.

    The keys on the exceptions that caused it follow its own.
    """
    keys: list[Any] = []
    current: BaseException | None = error
    for _ in range(_KEYS):
        if current is None:
            break
        keys.extend(getattr(current, "keys", ()))
        current = current.__cause__
    return written(keys) if keys else None


def written(keys: Sequence[Any]) -> str:
    """A path as text; the beginning of a long one is left out.

    Example:
        >>> written(("config", "layers", 1, "config", "units"))
        'config.layers[1].config.units'
    """
    kept = keys if len(keys) <= _KEYS else ("...", *keys[-_KEYS:])
    text = ""
    for key in kept:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += f"{'.' if text else ''}{str(key)[:_LENGTH]}"
    return text
