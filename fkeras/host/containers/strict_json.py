"""Parses untrusted JSON strictly, and reads keys with type checks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from fkeras.engine.config.config_checks import MISSING, MakeError, entry, expect
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.limits import Limits, check_limit

#: a value of parsed JSON, whose type `check` and `field` verify
ParsedJson: TypeAlias = Mapping[str, Any] | Sequence[Any] | str | float | bool | None

# more digits than any size, seed or hash has: int() takes quadratic time
_DIGITS = 40


def parse(
    data: bytes | str,
    file: str | None = None,
    member: str | None = None,
    limits: Limits | None = None,
) -> Any:
    """Parses a JSON text from an untrusted file.

    Accepts `NaN` and `Infinity`, which Keras writes. Rejects duplicate keys, deep nesting and very
    long integers.

    Args:
        data: JSON text; bytes are decoded as UTF-8.

    Raises:
        FileError: for invalid JSON, or a text that exceeds a limit.
    """
    limits = limits or Limits()

    def file_error(problem: str) -> FileError:
        return FileError(problem, file=file, member=member)

    def unique_pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        # JSON does not define which of two equal keys counts, so readers differ
        mapping = dict(items)
        if len(mapping) != len(items):
            seen: set[str] = set()
            name = next(k for k, _ in items if k in seen or seen.add(k))
            raise file_error(
                f"the key {name[:80]!r} occurs twice in one JSON object: readers differ in the value "
                "that they use. Remove one of the two."
            )
        return mapping

    def parse_integer(digits: str) -> int:
        if len(digits) > _DIGITS:
            raise file_error(
                f"expected a number of at most {_DIGITS} digits, received {len(digits)} digits."
            )
        return int(digits)

    check_limit(limits, "config_bytes", len(data), "bytes of JSON", file=file, member=member)
    try:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8")
        value = json.loads(text, object_pairs_hook=unique_pairs, parse_int=parse_integer)
    except FileError:
        raise
    except UnicodeDecodeError as error:
        raise file_error(
            f"expected JSON in UTF-8, received other bytes at {error.start}. The file is damaged."
        ) from error
    except RecursionError as error:  # the parser recurses before `_check_depth` can look
        raise file_error(
            f"expected at most {limits.depth} levels of nested JSON, received more."
        ) from error
    except ValueError as error:
        raise file_error(
            f"expected JSON, received invalid JSON: {error}. The file is damaged."
        ) from error
    _check_depth(value, limits, file, member)
    # JSON can escape half of a character, which no file name, JSON or HDF5 can hold
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            place = error.object[max(error.start - 40, 0) : error.start]
            raise file_error(
                f"expected Unicode, received a lone surrogate after {place!r}. Remove it from the text."
            ) from error
    return value


def _check_depth(value: ParsedJson, limits: Limits, file: str | None, member: str | None) -> None:
    # level by level: a recursive check could overflow the stack that it protects
    level = [value]
    depth = 0
    while level:
        check_limit(limits, "depth", depth, "levels of nested JSON", file=file, member=member)
        next_level = []
        for item in level:
            if isinstance(item, dict):
                next_level.extend(v for v in item.values() if isinstance(v, dict | list))
            elif isinstance(item, list):
                next_level.extend(v for v in item if isinstance(v, dict | list))
        level = next_level
        depth += 1


def check(value: ParsedJson, kind: type | tuple[type, ...], what: str, **place: str | None) -> Any:
    """Returns `value` if the value has the expected type.

    Args:
        kind: a type or a tuple of types, see `fkeras.engine.config.config_checks.expect`.
        place: `file`, `member` and `layer`, for the message.

    Raises:
        FileError: for a value of another type.
    """
    return expect(value, kind, what, make_error=_at(place))


def field(
    mapping: ParsedJson,
    key: str,
    kind: type | tuple[type, ...],
    default: ParsedJson | object = MISSING,
    **place: str | None,
) -> Any:
    """Returns the value of one key of a JSON object if the value has the expected type.

    Args:
        default: result for a missing key; without a default the key is required.

    Raises:
        FileError: for a missing key, a value of another type, or a `mapping` that is not an object.
    """
    return entry(mapping, key, kind, default=default, make_error=_at(place))


def _at(place: Mapping[str, str | None]) -> MakeError:
    return lambda problem: FileError(f"{problem} The file is damaged, or of another kind.", **place)
