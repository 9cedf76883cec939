"""Delimiters in rendered conversations: they enclose answers.

The delimiters are noncharacters: 32 code points that Unicode reserves for internal use by programs. A
delimiter does not occur in any text of the conversation.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fkeras.pretrained.texts.traced_text import join, plain

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
            "delimit answers. Remove the noncharacters from the text."
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


@dataclasses.dataclass(frozen=True)
class DelimitedText:
    """A rendered conversation with delimiters around answers.

    Attributes:
        text: the text with all delimiters.
        begin: the delimiter before an answer.
        end: the delimiter after an answer.
    """

    text: str
    begin: str
    end: str

    @property
    def plain(self) -> str:
        """The text without delimiters, with the origins of its characters."""
        return join("", self._parts()[::2])

    def spans(self) -> list[tuple[int, int]]:
        """Returns start and end of each delimited answer, as positions in `plain`."""
        spans, position, start = [], 0, 0
        for part in self._parts():
            if part == self.begin:
                start = position
            elif part == self.end:
                spans.append((start, position))
            else:
                position += len(part)
        return spans

    def _parts(self) -> list[str]:
        """Returns the parts of the text, and the delimiters between them."""
        parts, end = [], 0
        for part in re.split(f"([{self.begin}{self.end}])", plain(self.text)):
            parts.append(self.text[end : end + len(part)])
            end += len(part)
        return parts
