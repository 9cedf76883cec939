"""`CacheSize`: the size of the caches that `init_cache(batch, length)` makes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values.annotations import Leaf


@dataclasses.dataclass(frozen=True)
class CacheSize:
    """Rows and tokens that a cache holds.

    Attributes:
        batch: number of rows.
        length: number of tokens of each row.
        slack: number of tokens that a ring holds beside its window, so that as many of the last
            tokens can be taken back.

    Example:
        >>> CacheSize(2, 64).slack
        0
    """

    batch: int
    length: int
    slack: int = 0


def _is_integer(value: Leaf) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_size(arguments: tuple) -> bool:
    """Returns whether the arguments of `init_state` begin with a batch size."""
    return bool(arguments) and _is_integer(arguments[0])


def read(where: str, arguments: tuple, slack: Any) -> tuple[CacheSize, tuple]:
    """Returns the size and the remaining arguments of `init_cache(batch, length, *specs)`.

    Raises:
        ValueError: for a batch, a length or a slack that is no integer in its range.
    """
    given = (("batch", arguments[:1], 1), ("length", arguments[1:2], 1), ("slack", (slack,), 0))
    sizes = []
    for name, values, minimum in given:
        if not values or not _is_integer(values[0]) or values[0] < minimum:
            expected = "a positive integer" if minimum else "an integer of 0 or more"
            received = repr(values[0]) if values else "nothing"
            raise ValueError(
                f"{where}: init_cache: expected {expected} for {name}, received {received}. Write "
                "init_cache(batch, length): the number of rows, and the most tokens of a row."
            )
        sizes.append(int(values[0]))
    return CacheSize(*sizes), arguments[2:]


def check_room(where: str, capacity: int, needed: np.ndarray) -> None:
    """Raises FKerasError for a row that needs more tokens than a cache has room for.

    Args:
        capacity: the most tokens of a row.
        needed: tokens of each row after the call, (b,).

    Example:
        >>> check_room("attention", 8, np.array([3, 8]))
    """
    if needed.size and needed.max() > capacity:
        row = int(needed.argmax())
        raise FKerasError(
            f"{where}, row {row}: expected at most {capacity} tokens, for which the cache has room, received "
            f"{needed[row]} with those of this call. Make a larger cache, init_cache(batch, length), or "
            "stop rows whose cache is full.",
            layer=where,
        )


def check_no_slack(where: str, slack: Any) -> None:
    """Raises ValueError for a slack without the size of a cache."""
    if slack != 0:
        raise ValueError(
            f"{where}: init_state: expected slack together with a batch and a length, received "
            f"slack={slack!r} alone. Write init_cache(batch, length, slack={slack!r})."
        )
