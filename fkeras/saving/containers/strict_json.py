"""Parses JSON from a file strictly, and reads keys with checks of their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.config_checks import MISSING, Refuse, entry, expect
from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.limits import Limits

# a whole number of more digits than any size, seed or hash has
_DIGITS = 40


def parse(
    data: bytes | str,
    file: str | None = None,
    member: str | None = None,
    limits: Limits | None = None,
) -> Any:
    """The value of a JSON text, where it is JSON that a program may trust to read.

    `NaN` and `Infinity` are read, as Keras writes them. Keys that stand twice, endless nesting and
    endless numbers are refused.

    Args:
        data: the text, in UTF-8.
        file: the file it is from, for messages.
        member: the part of that file.
        limits: its greatest length and depth.

    Raises:
        FileError: for any other text.

    Example:
        >>> parse(b'{"units": 3}')
        {'units': 3}
    """
    limits = limits or Limits()

    def refuse(problem: str) -> FileError:
        return FileError(problem, file=file, member=member)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            seen: set[str] = set()
            name = next(k for k, _ in items if k in seen or seen.add(k))
            raise refuse(
                f"the key {name[:80]!r} stands twice in one object of the JSON, so that two readers "
                "would read two models. Remove one."
            )
        return made

    def whole(digits: str) -> int:
        if len(digits) > _DIGITS:
            raise refuse(f"a number of {len(digits)} digits; expected at most {_DIGITS}.")
        return int(digits)

    if len(data) > limits.config_bytes:
        raise refuse(
            f"a JSON text of {len(data)} bytes, expected at most {limits.config_bytes}. If you "
            "trust the file, pass limits=fk.Limits(config_bytes=...)."
        )
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
        value = json.loads(text, object_pairs_hook=pairs, parse_int=whole)
    except FileError:
        raise
    except UnicodeDecodeError as error:
        raise refuse(
            f"expected JSON in UTF-8, received other bytes at {error.start}. It is damaged."
        ) from error
    except RecursionError as error:
        raise _too_deep(limits, file, member) from error
    except ValueError as error:
        raise refuse(f"expected JSON, and it is none: {error}. It is damaged.") from error
    _check_depth(value, limits, file, member)
    return value


def _too_deep(limits: Limits, file: str | None, member: str | None) -> FileError:
    return FileError(
        f"JSON nested deeper than {limits.depth} levels. If you trust the file, pass "
        "limits=fk.Limits(depth=...).",
        file=file,
        member=member,
    )


def _check_depth(value: Any, limits: Limits, file: str | None, member: str | None) -> None:
    level = [value]
    depth = 0
    while level:
        if depth > limits.depth:
            raise _too_deep(limits, file, member)
        below = []
        for item in level:
            if isinstance(item, dict):
                below.extend(v for v in item.values() if isinstance(v, dict | list))
            elif isinstance(item, list):
                below.extend(v for v in item if isinstance(v, dict | list))
        level = below
        depth += 1


def check(value: Any, kind: type | tuple[type, ...], what: str, **place: str | None) -> Any:
    """`value`, where it is of the kind that it must be.

    Args:
        value: something out of JSON.
        kind: a type or several of them, as `fkeras.engine.config.config_checks.expect` takes them.
        what: what it is, for the message.
        place: `file`, `member` and `layer`, for the message.

    Raises:
        FileError: where it is of another kind.

    Example:
        >>> check(3, float, "the rate")
        3
    """
    return expect(value, kind, what, refuse=_at(place))


def field(
    mapping: Any,
    key: str,
    kind: type | tuple[type, ...],
    default: Any = MISSING,
    **place: str | None,
) -> Any:
    """The value of one key of a JSON object, where it is there and of its kind.

    Args:
        mapping: the object.
        key: the key.
        kind: as for `check`.
        default: what a missing key stands for; without it the key must be there.
        place: `file`, `member` and `layer`, for the message.

    Raises:
        FileError: where the key is missing or its value of another kind, or where `mapping` is no
            object.

    Example:
        >>> field({"name": "dense"}, "name", str, member="config.json")
        'dense'
    """
    return entry(mapping, key, kind, default=default, refuse=_at(place))


def _at(place: Mapping[str, str | None]) -> Refuse:
    return lambda problem: FileError(f"{problem} The file is damaged, or of another kind.", **place)
