"""Bounds on the time that `re` spends on a regular expression from a file.

A pattern with nested quantifiers, such as `(a+)+$`, backtracks for a time exponential in the length
of the text. Files hold patterns for weight paths, so their cost is bounded before `re` runs them.
"""

from __future__ import annotations

import math
import re
from re import _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any


def trials(pattern: str, length: int) -> float:
    """Returns an upper bound on the characters that `re` examines to match one text.

    Args:
        pattern: a regular expression.
        length: the length of the text.

    Example:
        >>> trials("abc", 9), trials("(a+)+$", 50)
        (3.0, inf)
    """
    try:
        return _counted(_parser.parse(pattern), length)[1]
    except (re.error, OverflowError, RecursionError):
        return math.inf


def _counted(parsed: Any, length: int) -> tuple[float, float]:
    """Returns `(ways, cost)`: the ways in which parts match at one position, and their total cost."""
    ways, cost = 1.0, 0.0
    for kind, value in parsed:
        own, trial = _of_one(str(kind), value, length)
        cost += ways * trial
        ways *= own
    return ways, cost


def _of_one(kind: str, value: Any, length: int) -> tuple[float, float]:
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, part = value
        narrow = part.getwidth()[0]
        # `re` stops repeating after an empty match, except for the required repetitions
        most = min(int(most), max(length // narrow, 1) if narrow else int(least) + length)
        ways, cost = _repeated(*_counted(part, length), min(int(least), most), most)
        return (1.0 if kind == "POSSESSIVE_REPEAT" else ways), cost
    if kind == "BRANCH":
        counts = [_counted(part, length) for part in value[1]]
        return sum(ways for ways, _ in counts), sum(cost for _, cost in counts)
    if kind == "SUBPATTERN":
        return _counted(value[3], length)
    if kind in ("ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):  # no backtracking into a match
        return 1.0, _counted(value if kind == "ATOMIC_GROUP" else value[1], length)[1]
    if kind == "GROUPREF_EXISTS":
        counts = [_counted(part, length) for part in value[1:] if part is not None]
        return sum(ways for ways, _ in counts), sum(cost for _, cost in counts)
    return 1.0, float(length) if kind.startswith("GROUPREF") else 1.0


def _repeated(ways: float, cost: float, least: int, most: int) -> tuple[float, float]:
    """Returns `(ways, cost)` of `least` to `most` repetitions of a part with these values."""
    if ways <= 1:
        return float(most - least + 1), max(cost, 1.0) * most
    if most * math.log2(ways) > 100:
        return math.inf, math.inf
    total = sum(ways**n for n in range(least, most + 1))
    return total, cost * sum(ways**n for n in range(most))
