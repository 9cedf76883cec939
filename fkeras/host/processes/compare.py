"""Describes the differences between the fingerprint of a checkpoint and the current one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_DIGEST = "digest"


def compare(saved: object, now: Mapping[str, Any], limit: int = 10) -> list[str]:
    """Returns a phrase for each difference between two fingerprints; an empty list if equal.

    Args:
        saved: the fingerprint of a checkpoint, decoded from JSON; None if the checkpoint has none.
        now: the current fingerprint, or several fingerprints by subject.
        limit: largest number of phrases; one more phrase counts the omitted differences.

    Example:
        >>> compare({"optimizer": {"rate": 0.001}}, {"optimizer": {"rate": 0.01}})
        ['optimizer: rate was 0.001, is 0.01']
    """
    if saved is None:
        return []
    phrases = [
        _format_difference(path, phrase) for path, phrase in _differences(saved, _plain(now), ())
    ]
    if len(phrases) > limit:
        return [*phrases[:limit], f"and {len(phrases) - limit} more"]
    return phrases


def _plain(value: object) -> Any:
    # `saved` was JSON: tuples are lists there, and keys are strings.
    return json.loads(json.dumps(value))


def _format_difference(path: tuple[str, ...], phrase: str) -> str:
    if len(path) < 2:
        return f"{''.join(path)} {phrase}"
    return f"{path[0]}: {'.'.join(path[1:])} {phrase}"


def _differences(
    saved: object, now: object, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(saved, dict) and isinstance(now, dict):
        reported = False
        for name in [*saved, *(name for name in now if name not in saved)]:
            inner_path = (*path, name)
            if name == _DIGEST:
                continue
            if name not in now:
                differences = [(inner_path, f"was {_format_value(saved[name])}, is missing")]
            elif name not in saved:
                differences = [(inner_path, f"is {_format_value(now[name])}, was missing")]
            else:
                differences = list(_differences(saved[name], now[name], inner_path))
            reported = reported or bool(differences)
            yield from differences
        # A digest only shows that something differs: mention it if no readable fact differs.
        if not reported and saved.get(_DIGEST) != now.get(_DIGEST):
            yield path, f"has other contents (digest {saved.get(_DIGEST)}, now {now.get(_DIGEST)})"
    elif json.dumps(saved) != json.dumps(now):  # as text, NaN equals NaN
        yield path, f"was {_format_value(saved)}, is {_format_value(now)}"


def _format_value(value: object) -> str:
    text = json.dumps(value) if isinstance(value, dict) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
