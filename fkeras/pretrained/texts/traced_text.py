"""Texts that remember which of their characters come from messages, through the operations of templates.

A character's origin is a byte: `TRUSTED` for the template and the program, `ANSWER` for messages of the
assistant, `USER` for other messages. An operation without a character-wise rule gives all characters of its
result the highest origin of its arguments: a message can lose rights, and never gains them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

TRUSTED, ANSWER, USER = 0, 1, 2
_STRIPPED = ("strip", "lstrip", "rstrip", "removeprefix", "removesuffix")
# values from which templates write delimiters, such as '<|' ~ message.role ~ '|>'
_NAMING, _NAME = ("role", "type"), re.compile(r"[A-Za-z0-9_-]*")


class TracedText(str):
    """A text with the origins of its characters.

    Args:
        text: the characters.
        origins: one origin for each character.
    """

    origins: bytes

    def __new__(cls, text: str, origins: bytes) -> TracedText:
        made = super().__new__(cls, plain(text))
        made.origins = origins
        return made

    def __str__(self) -> str:
        # `str(text)` in compiled templates keeps the origins
        return self

    def __getitem__(self, key: Any) -> str:
        origins = self.origins[key]
        origins = bytes([origins]) if isinstance(origins, int) else origins
        return TracedText(str.__getitem__(self, key), origins)

    def __iter__(self) -> Any:
        return (self[n] for n in range(len(self)))

    def __add__(self, other: str) -> str:
        return join("", [self, other])

    def __radd__(self, other: str) -> str:
        return join("", [other, self])


def plain(text: str) -> str:
    """Returns a text without origins."""
    return str.__str__(text)


def origins(text: str) -> bytes:
    """Returns the origins of the characters of a text."""
    return text.origins if isinstance(text, TracedText) else bytes(len(text))


def highest(text: str) -> int:
    """Returns the highest origin of the characters of a text."""
    found = origins(text) if isinstance(text, TracedText) else b""
    return next((origin for origin in (USER, ANSWER) if origin in found), TRUSTED)


def trace(value: Any, origin: int) -> Any:
    """Returns a value whose texts, also those in lists and dictionaries, have an origin.

    Example:
        >>> trace({"text": "ab"}, USER)["text"].origins
        b'\\x02\\x02'
    """
    if isinstance(value, str):
        return TracedText(value, bytes([origin]) * len(value)) if origin else value
    if isinstance(value, Mapping):
        return {
            trace(k, origin): v
            if k in _NAMING and isinstance(v, str) and _NAME.fullmatch(v)
            else trace(v, origin)
            for k, v in value.items()
        }
    return [trace(v, origin) for v in value] if isinstance(value, list | tuple) else value


def retraced(result: Any, sources: Sequence[str]) -> Any:
    """Returns the result of an operation on texts with the origins that no rule for characters gives."""
    traced = [source for source in sources if isinstance(source, TracedText)]
    if not traced or not isinstance(result, str) or isinstance(result, TracedText):
        return result
    if len(traced) == 1 and len(result) == len(traced[0]):
        return TracedText(result, traced[0].origins)
    return trace(result, max(map(highest, traced)))


def join(separator: str, texts: Sequence[str]) -> str:
    """Joins texts.

    Example:
        >>> join("-", ["a", trace("b", USER)]).origins
        b'\\x00\\x00\\x02'
    """
    joined = plain(separator).join(texts)
    if not any(isinstance(text, TracedText) for text in (separator, *texts)):
        return joined
    return TracedText(joined, origins(separator).join([origins(text) for text in texts]))


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """Replaces parts of a text."""
    if not old or (not isinstance(text, TracedText) and not isinstance(new, TracedText)):
        return retraced(plain(text).replace(old, new, count), [text, new])
    return join(new, method(text, "split", old, count))


def method(text: str, name: str, *args: Any, **options: Any) -> Any:
    """Calls a method of strings that returns no more characters than the text has."""
    result = getattr(plain(text), name)(*args, **options)
    if not isinstance(text, TracedText):
        return result
    if isinstance(result, str) and name in _STRIPPED:
        # the first character that is kept occurs nowhere among those before
        start = len(text) - len(result) if name in ("lstrip", "removeprefix") else 0
        start = plain(text).find(result) if name == "strip" else start
        return text if len(result) == len(text) else text[start : start + len(result)]
    if isinstance(result, list | tuple):
        separator = args[0] if args else options.get("sep")
        apart = len(separator) if name in ("split", "rsplit") and separator is not None else 0
        parts, end = [], 0
        for part in result:
            # lines and words do not begin with the characters that separate them
            start = end if separator is not None else plain(text).find(part, end)
            parts.append(text[start : start + len(part)])
            end = start + len(part) + apart
        return type(result)(parts)
    return retraced(result, [text])
