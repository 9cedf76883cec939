"""Delimiters in rendered conversations: they split special tokens in messages, and enclose answers.

The delimiters are noncharacters: 32 code points that Unicode reserves for internal use by programs. A
delimiter does not occur in any text of the conversation.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_NONCHARACTERS = tuple(map(chr, range(0xFDD0, 0xFDF0)))


def free_delimiters(values: Any, count: int) -> list[str]:
    """Returns noncharacters that do not occur in the texts inside `values`.

    Raises:
        ValueError: if the texts contain nearly all noncharacters.

    Example:
        >>> [hex(ord(delimiter)) for delimiter in free_delimiters({"a": ["\ufdd0"]}, 2)]
        ['0xfdd1', '0xfdd2']
    """
    texts = list(_texts(values))
    free = [
        delimiter for delimiter in _NONCHARACTERS if not any(delimiter in text for text in texts)
    ]
    if len(free) < count:
        raise ValueError(
            "Tokenizer: the text contains nearly all noncharacters of Unicode (U+FDD0 to U+FDEF), which "
            "delimit special tokens. Remove the noncharacters from the text."
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


def split_tokens(value: Any, delimiter: str, tokens: Collection[str]) -> Any:
    """Inserts a delimiter after the first character of each special token in the texts of a value.

    Args:
        value: a text, or lists and dictionaries with texts.
        tokens: the special tokens.

    Raises:
        ValueError: for a special token of one character, which cannot be split.

    Example:
        >>> split_tokens({"text": "a<s><s>"}, "|", ["<s>"])
        {'text': 'a<|s><|s>'}
    """
    if isinstance(value, Mapping):
        return {
            split_tokens(k, delimiter, tokens): split_tokens(v, delimiter, tokens)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [split_tokens(v, delimiter, tokens) for v in value]
    contained = [token for token in tokens if isinstance(value, str) and token in value]
    if not contained:
        return value
    for token in contained:
        if len(token) == 1:
            raise ValueError(
                f"Tokenizer: the text contains the special token {token!r}, which is one character "
                "and cannot be split. Remove the character from the text."
            )
    # a lookahead finds overlapping tokens too
    pattern = "|".join(map(re.escape, contained))
    return re.sub(f"(?=(?:{pattern}))(.)", rf"\1{delimiter}", value, flags=re.DOTALL)


@dataclasses.dataclass(frozen=True)
class DelimitedText:
    """A rendered conversation with delimiters.

    Attributes:
        text: the text with all delimiters.
        split: the delimiter between the two parts of a special token that a message contains.
        begin: the delimiter before an answer.
        end: the delimiter after an answer.
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
        """Returns start and end of each delimited answer, as positions in `plain`."""
        spans, position, start = [], 0, 0
        for part in re.split(f"([{self.begin}{self.end}])", self.text.replace(self.split, "")):
            if part == self.begin:
                start = position
            elif part == self.end:
                spans.append((start, position))
            else:
                position += len(part)
        return spans
