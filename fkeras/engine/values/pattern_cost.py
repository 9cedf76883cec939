"""Bounds the time that `re` takes for a regular expression from a file.

`re` backtracks: `(a+)+$` takes 2^n steps on n letters. The bound counts, for each part of a pattern,
in how many ways the part can fit at one position, and the steps of trying all of them. The parser of
`re` is private, so a scanner here reads the pattern; a construct that the scanner does not know has
an infinite cost.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from typing import Literal

_COMMENT = re.compile(r"\(\?#[^)]*\)|\(\?[aiLmsu]+\)")  # global flags count as a comment
_TOKEN = re.compile(
    r"""
    (?P<reference>\(\?P=\w+\)|\\(?!0|[1-3][0-7]{2})[0-9]{1,2})
    |(?P<condition>\(\?\(\w+\))
    |(?P<once>\(\?(?:<?[=!]|>))
    |(?P<plain>\(\?:)
    |(?P<group>\((?!\?)|\(\?P<\w+>|\(\?[aiLmsu]*(?:-[ims]+)?:)  # `x`, which ignores spaces, is unknown
    |(?P<position>[\^$]|\\[AZbB])
    |(?P<class>\[\^?\]?(?:\\.|[^]\\])*\]|\\[dDsSwW])
    |(?P<code>\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|[0-3][0-7]{0,2}|[abfnrtv]))
    |(?P<character>\\.|[^()|])
    """,
    re.VERBOSE | re.DOTALL,
)
_QUANTIFIER = re.compile(
    r"(?:(?P<sign>[*+?])|\{(?!\})(?P<least>[0-9]*)(?P<comma>,(?P<most>[0-9]*))?\})(?P<mode>[?+]?)"
)


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a pattern.

    Attributes:
        kind: "character": fits one character. "position": fits between characters. "reference":
            fits the text of a group. "once": `parts[0]` is tried until it fits for the first time,
            as in look-arounds and atomic groups. "branch": fits as any of `parts`. "sequence": the
            `parts` one after the other. "repeat": `parts[0]` from `least` to `most` times.
        text: the character or class: "a", "[ab]" or "any". In a sequence "group" marks a group that
            captures or sets flags, which `re` does not merge with the parts around the group.
        parts: the parts inside.
        least: fewest repetitions.
        most: most repetitions.
        possessive: whether a repetition gives back nothing.
        width: number of characters that the part fits at least.
    """

    kind: Literal["character", "position", "reference", "once", "branch", "sequence", "repeat"]
    text: str = ""
    parts: tuple[Part, ...] = ()
    least: int = 1
    most: float = 1
    possessive: bool = False
    width: int = 0


def trials(pattern: str, length: int) -> float:
    """Counts the characters that `re` reads, at most, to tell whether a text fits a pattern.

    Returns:
        The count; infinity for an expression that is invalid or that the scanner does not know.

    Example:
        >>> trials("abc", 9), trials("(a+)+$", 50)
        (3.0, inf)
    """
    try:
        re.compile(pattern)  # the scanner reads valid expressions only
        return _count(_Scanner(pattern).scan(), length)[1]
    except (re.error, OverflowError, RecursionError, _UnknownError):
        return math.inf


def _count(part: Part, length: int) -> tuple[float, float]:
    """Returns `(ways, cost)`: the ways in which a part can fit at one position, and their steps."""
    if part.kind == "sequence":
        ways, cost = 1.0, 0.0
        for inner in part.parts:  # each way of the first parts tries the next part anew
            inner_ways, inner_cost = _count(inner, length)
            cost += ways * inner_cost
            ways *= inner_ways
        return ways, cost
    if part.kind == "branch":
        counts = [_count(inner, length) for inner in part.parts]
        return sum(ways for ways, _ in counts), sum(cost for _, cost in counts)
    if part.kind == "once":
        return 1.0, _count(part.parts[0], length)[1]
    if part.kind == "repeat":
        return _count_repeated(part, length)
    return 1.0, float(length) if part.kind == "reference" else 1.0


def _count_repeated(part: Part, length: int) -> tuple[float, float]:
    (inner,) = part.parts
    # a repetition of no characters is the last one, beyond the required number
    max_repeats = max(length // inner.width, 1) if inner.width else part.least + length
    max_count = int(min(part.most, max_repeats))
    min_count = min(part.least, max_count)
    ways, cost = _count(inner, length)
    if ways <= 1:
        ways, cost = float(max_count - min_count + 1), max(cost, 1.0) * max_count
    elif max_count * math.log2(ways) > 100:  # before the powers overflow
        return math.inf, math.inf
    else:
        cost *= sum(ways**n for n in range(max_count))
        ways = sum(ways**n for n in range(min_count, max_count + 1))
    return (1.0 if part.possessive else ways), cost


class _UnknownError(Exception):
    """A construct of a pattern that the scanner does not know."""


class _Scanner:
    """Reads the structure of a valid regular expression."""

    def __init__(self, pattern: str):
        self.pattern, self.at = pattern, 0

    def scan(self) -> Part:
        part = self.branches()
        if self.at < len(self.pattern):
            raise _UnknownError
        return part

    def match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        """Moves past the match of an expression at this position."""
        match = expression.match(self.pattern, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def take(self, text: str) -> bool:
        """Moves past a character, if the character comes next."""
        found = self.pattern.startswith(text, self.at)
        self.at += found
        return found

    def branches(self) -> Part:
        """Reads alternatives up to a closing bracket or the end."""
        sequences = [self.sequence()]
        while self.take("|"):
            sequences.append(self.sequence())
        return sequences[0] if len(sequences) == 1 else _branch(sequences)

    def sequence(self) -> Part:
        """Reads parts up to the end of an alternative."""
        parts: list[Part] = []
        while True:
            while self.match(_COMMENT):  # a quantifier after a comment repeats the part before
                pass
            if parts and (quantifier := self.match(_QUANTIFIER)):
                parts.append(_repeat(parts.pop(), quantifier))
            elif self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
                parts.append(self.atom())
            else:
                return _sequence(parts)

    def atom(self) -> Part:
        """Reads a part without its quantifier."""
        token = self.match(_TOKEN)
        if token is None:
            raise _UnknownError
        kind, text = token.lastgroup, token[0]
        if kind in ("reference", "position"):
            return Part(kind, text)
        if kind == "code":  # these escapes are those of Python's strings
            return _character(ast.literal_eval(f'"{text}"'))
        if kind == "character":
            return _character("any" if text == "." else text[-1])
        if kind == "class":  # `[a]` is the character
            return _character(text[1] if len(text) == 3 else text)
        inner = self.condition() if kind == "condition" else self.branches()
        if not self.take(")"):
            raise _UnknownError
        if kind == "once":
            return Part("once", text, (inner,), width=inner.width if text == "(?>" else 0)
        if kind == "group":
            return Part("sequence", "group", (inner,), width=inner.width)
        return inner

    def condition(self) -> Part:
        """Reads the alternatives of `(?(group)yes|no)` after the condition."""
        sequences = [self.sequence()]
        if self.take("|"):
            sequences.append(self.sequence())
        width = min(part.width for part in sequences) if len(sequences) > 1 else 0
        return Part("branch", "", tuple(sequences), width=width)


def _repeat(part: Part, quantifier: re.Match[str]) -> Part:
    sign, least, comma, most = quantifier.group("sign", "least", "comma", "most")
    if sign:
        min_count, max_count = int(sign == "+"), 1 if sign == "?" else math.inf
    else:
        min_count = int(least or 0)
        max_count = min_count if comma is None else int(most) if most else math.inf
    possessive, width = quantifier["mode"] == "+", min_count * part.width
    return Part("repeat", "", (part,), min_count, max_count, possessive, width)


def _character(text: str) -> Part:
    return Part("character", text, width=1)


def _sequence(parts: list[Part]) -> Part:
    parts = [inner for part in parts for inner in _listed(part)]
    if len(parts) == 1:
        return parts[0]
    return Part("sequence", "", tuple(parts), width=sum(part.width for part in parts))


def _listed(part: Part) -> tuple[Part, ...]:
    return part.parts if part.kind == "sequence" and part.text != "group" else (part,)


def _branch(sequences: list[Part]) -> Part:
    """Joins alternatives as `re` does: the common start once, then characters as one class."""
    lists = [list(_listed(part)) for part in sequences]
    prefix: list[Part] = []
    while all(lists) and all(_joins_start(parts[0], lists[0][0]) for parts in lists):
        prefix.append(lists[0][0])
        lists = [parts[1:] for parts in lists]
    if all(len(parts) == 1 and _joins_class(parts[0]) for parts in lists):
        remainder = _character(f"any of {' '.join(parts[0].text for parts in lists)}")
    else:
        alternatives = tuple(_sequence(parts) for parts in lists)
        width = min(part.width for part in alternatives)
        remainder = Part("branch", "", alternatives, width=width)
    return _sequence([*prefix, remainder])


def _joins_start(part: Part, other: Part) -> bool:
    return part.kind in ("character", "position") and part == other


def _joins_class(part: Part) -> bool:
    if part.kind != "character" or part.text.startswith("any"):
        return False
    # a class with an escape may be one character, and equal to another alternative: `]|[\\]]`
    is_class = len(part.text) > 2
    return not (is_class and (part.text.startswith("[^") or "\\" in part.text))
