"""Bounds on the time that `re` takes for a regular expression out of a file."""

from __future__ import annotations

import math
import re
from re import _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any


def trials(pattern: str, length: int) -> float:
    """How many characters `re` looks at, at most, before it knows whether a text fits a pattern.

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
    """`(in how many ways a part of a pattern can fit at one place, the trials of all of them)`."""
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
        # a turn that fits nothing is the last one, beyond those that must be
        most = min(int(most), max(length // narrow, 1) if narrow else int(least) + length)
        ways, cost = _repeated(*_counted(part, length), min(int(least), most), most)
        return (1.0 if kind == "POSSESSIVE_REPEAT" else ways), cost
    if kind == "BRANCH":
        found = [_counted(part, length) for part in value[1]]
        return sum(w for w, _ in found), sum(c for _, c in found)
    if kind == "SUBPATTERN":
        return _counted(value[3], length)
    if kind in ("ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):  # what fits once is not tried again
        return 1.0, _counted(value if kind == "ATOMIC_GROUP" else value[1], length)[1]
    if kind == "GROUPREF_EXISTS":
        found = [_counted(part, length) for part in value[1:] if part is not None]
        return sum(w for w, _ in found), sum(c for _, c in found)
    return 1.0, float(length) if kind.startswith("GROUPREF") else 1.0


def _repeated(ways: float, cost: float, least: int, most: int) -> tuple[float, float]:
    """The ways and trials of from `least` to `most` times what has these."""
    if ways <= 1:
        return float(most - least + 1), max(cost, 1.0) * most
    if most * math.log2(ways) > 100:
        return math.inf, math.inf
    total = sum(ways**n for n in range(least, most + 1))
    return total, cost * sum(ways**n for n in range(most))
