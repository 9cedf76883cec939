"""The walker over the nested mappings of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fkeras.engine.values.annotations import Json

# most parts of a configuration have these types, and a check against Mapping is slow
PLAIN = frozenset((bool, float, int, str, type(None)))


def mappings(config: Json, skip: tuple[str, ...] = ()) -> Iterator[Mapping[str, Any]]:
    """Yields every mapping in a configuration, in no particular order and without recursion.

    Example:
        >>> sorted(len(item) for item in mappings({"a": [{"b": 1, "c": {}}], "d": {}}, ("d",)))
        [0, 2, 2]
    """
    pending = [config]
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind in PLAIN:
            continue
        if isinstance(item, list | tuple):
            pending.extend(item)
        elif kind is dict or isinstance(item, Mapping):
            yield item
            pending.extend(value for key, value in item.items() if key not in skip)
