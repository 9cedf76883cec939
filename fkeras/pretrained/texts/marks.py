"""Marks in texts: characters that end control tokens and that surround answers.

Unicode reserves 32 characters, the noncharacters, for a program's own use. Marks are noncharacters that
do not occur in any text of a conversation.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_NONCHARACTERS = tuple(map(chr, range(0xFDD0, 0xFDF0)))


def free_marks(values: Any, count: int) -> list[str]:
    """Returns marks that do not occur in the texts inside `values`.

    Raises:
        ValueError: if the texts contain nearly all noncharacters.

    Example:
        >>> [hex(ord(mark)) for mark in free_marks({"a": ["\ufdd0"]}, 2)]
        ['0xfdd1', '0xfdd2']
    """
    texts = list(_texts(values))
    free = [mark for mark in _NONCHARACTERS if not any(mark in text for text in texts)]
    if len(free) < count:
        raise ValueError(
            "Tokenizer: the text contains nearly all noncharacters of Unicode (U+FDD0 to U+FDEF), which "
            "mark control tokens. Remove them."
        )
    return free[:count]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def split_tokens(value: Any, mark: str, tokens: Collection[str]) -> Any:
    """Writes a mark behind the first character of each control token in the texts of a value.

    Args:
        value: a text, or lists and dictionaries with texts.
        tokens: the control tokens.

    Raises:
        ValueError: for a control token of one character, which has no two parts.

    Example:
        >>> split_tokens({"text": "a<s><s>"}, "|", ["<s>"])
        {'text': 'a<|s><|s>'}
    """
    if isinstance(value, Mapping):
        return {
            split_tokens(k, mark, tokens): split_tokens(v, mark, tokens) for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [split_tokens(v, mark, tokens) for v in value]
    contained = [token for token in tokens if isinstance(value, str) and token in value]
    if not contained:
        return value
    for token in contained:
        if len(token) == 1:
            raise ValueError(
                f"Tokenizer: the text contains the control token {token!r}, one character, which "
                "has no other ids. Remove the character from the text."
            )
    # a lookahead finds overlapping tokens too
    pattern = "|".join(map(re.escape, contained))
    return re.sub(f"(?=(?:{pattern}))(.)", rf"\1{mark}", value, flags=re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Marked:
    """A rendered conversation with marks.

    Attributes:
        text: the text with all marks.
        split: between the two parts of a control token that a message contains.
        begin: before an answer.
        end: behind an answer.
    """

    text: str
    split: str
    begin: str
    end: str

    @property
    def without_answers(self) -> str:
        return self.text.replace(self.begin, "").replace(self.end, "")

    @property
    def plain(self) -> str:
        return self.without_answers.replace(self.split, "")

    def spans(self) -> list[tuple[int, int]]:
        """Returns begin and end of each marked answer, as positions in `plain`."""
        spans, position, start = [], 0, 0
        for part in re.split(f"([{self.begin}{self.end}])", self.text.replace(self.split, "")):
            if part == self.begin:
                start = position
            elif part == self.end:
                spans.append((start, position))
            else:
                position += len(part)
        return spans
