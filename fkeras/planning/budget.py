"""Budgets of memory, and the largest batch size within a budget."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from fkeras.authoring.engine import describe_value
from fkeras.engine import suggest

_UNITS = MappingProxyType(
    {
        "B": 1,
        "KB": 10**3,
        "MB": 10**6,
        "GB": 10**9,
        "TB": 10**12,
        "KIB": 2**10,
        "MIB": 2**20,
        "GIB": 2**30,
        "TIB": 2**40,
    }
)
_BUDGET = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_MOST_ROWS = 2**20


def budget_bytes(budget: Any) -> int:
    """Returns the bytes of a budget.

    Args:
        budget: a number of bytes, or a text with a unit: "16GB" are 16 * 10**9 bytes, "16 GiB" are
            16 * 2**30 bytes.

    Raises:
        TypeError: for other types.
        ValueError: for other texts, and for budgets that are not positive.
    """
    if isinstance(budget, bool) or not isinstance(budget, int | float | str):
        raise TypeError(
            "fit_into: expected a number of bytes or a text, received "
            f'{describe_value(budget)}. Write plan.fit_into("16GB").'
        )
    if isinstance(budget, str):
        match = _BUDGET.fullmatch(budget)
        unit = match[2].upper() or "B" if match else ""
        if match is None or unit not in _UNITS:
            hint = suggest(unit, _UNITS) if match else ""
            raise ValueError(
                f'fit_into: expected a budget such as "16GB" or "512 MiB", received {budget!r}.{hint}'
            )
        budget = float(match[1]) * _UNITS[unit]
    if not 1 <= budget < float("inf"):
        raise ValueError(
            f'fit_into: expected a positive number of bytes, received {budget!r}. Write "16GB".'
        )
    return int(budget)


def largest_rows(
    peak: Callable[[int], int], start: int, limit: int, open_rows: bool, parts: int = 1
) -> int:
    """Returns the largest batch size whose peak is within the limit, or 0.

    Args:
        open_rows: whether the model accepts other batch sizes than `start`.
    """
    if not open_rows:
        return start if peak(start) <= limit else 0
    powers = [2**exponent for exponent in range(_MOST_ROWS.bit_length())]
    every = {*powers, *(3 * power // 2 for power in powers[1:]), start}
    sizes = sorted(size for size in every if size % parts == 0)
    # memory is nearly a linear function of the rows: two plans predict the place, others confirm it
    for_each = (peak(2 * start) - peak(start)) / start
    place = len(sizes) - 1
    if for_each > 0:
        guess = start + (limit - peak(start)) / for_each
        place = min(place, max(0, bisect.bisect_right(sizes, guess) - 1))
    while place >= 0 and peak(sizes[place]) > limit:
        place -= 1
    while 0 <= place < len(sizes) - 1 and peak(sizes[place + 1]) <= limit:
        place += 1
    return sizes[place] if place >= 0 else 0
