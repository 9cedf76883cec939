"""Resource limits of one rendering of a chat template: everything that the template makes and reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from typing import Any, NamedTuple

from fkeras.pretrained.texts.traced_text import (
    TracedText,
    highest,
    join,
    method,
    replace,
    trace,
)

#: characters of the rendered text, and of each value inside the template
TEXT = 1 << 23
_STEPS = 1 << 18  # iterations of loops and calls of macros
_FACTOR = 1 << 16  # factor of a repetition
_BITS = 4096  # size of an integer
_EXPONENT = 16  # bits of base and exponent
_DEPTH = 200  # lists in lists
_ITEM = 32  # characters that take as long as an item of a list
_VISIT = 128  # characters that are read while an item of a new list is counted
_BYTES = 1 << 26  # of all values that the template makes
_READ = 1 << 27  # characters that the template reads
_INDENT = 32
_PART = 128  # bytes of a part of a text
_LINES = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_SPACES = "".join(character for character in map(chr, range(0x3001)) if character.isspace())
_PRODUCTS = ("strip", "lstrip", "rstrip", "rfind", "rindex", "rsplit", "rpartition")
_CONTAINERS = (list, tuple, Mapping, set, frozenset, range, KeysView, ItemsView, ValuesView)


class Extent(NamedTuple):
    """The size of a value if every item is written out.

    Attributes:
        size: number of characters, with those of items that occur several times counted each time.
        depth: depth of nested lists.
        origin: highest origin of the texts.
    """

    size: int
    depth: int = 0
    origin: int = 0


class Budget:
    """Counts the steps, the values and the texts of one rendering.

    Args:
        error: the exception for an exceeded limit.
        variables: the variables of the template. Longer messages give larger limits.
    """

    def __init__(self, error: type[Exception], variables: Mapping[str, Any]):
        self.error, self.steps, self.characters = error, _STEPS, TEXT
        # extents of lists by identity, with the lists themselves: a list in the sandbox never changes
        self.known: dict[int, tuple[Any, Extent]] = {}
        self.largest = sys.maxsize
        self.unread = sys.maxsize
        given = self.extent(variables).size
        self.largest = TEXT + 4 * given
        self.bytes, self.unread = _BYTES + 16 * given, _READ + 64 * given

    def step(self, count: int = 1) -> None:
        self.steps -= count
        if self.steps < 0:
            raise self.error(f"more than {_STEPS} iterations")

    def extent(self, value: Any) -> Extent:
        """Returns the extent of a value; reads each list once."""
        if isinstance(value, str):
            return Extent(len(value), 0, highest(value))
        if isinstance(value, int):
            return Extent(1 + value.bit_length() // 8)
        if not isinstance(value, _CONTAINERS) or not hasattr(value, "__len__"):
            return Extent(1)  # Jinja's context is a mapping without a length
        if id(value) in self.known:
            return self.known[id(value)][1]
        self.read(_VISIT * len(value))
        size, depth, origin = _ITEM, 0, 0
        if isinstance(value, range):
            size += _ITEM * len(value)
        else:
            children = [*value, *value.values()] if isinstance(value, Mapping) else value
            for child in children:
                if type(child).__name__ == "Namespace":
                    raise self.error("puts a namespace into a list")
                extent = self.extent(child)
                size += extent.size + _ITEM
                depth, origin = max(depth, extent.depth), max(origin, extent.origin)
        extent = Extent(size, depth + 1, origin)
        if isinstance(value, KeysView | ItemsView | ValuesView):
            return extent
        return self.learn(value, extent)

    def learn(self, value: Any, extent: Extent) -> Extent:
        """Checks and stores the extent of a list."""
        if extent.depth > _DEPTH:
            raise self.error(f"lists in lists, deeper than {_DEPTH}")
        self.check(extent.size)
        self.known[id(value)] = value, extent
        return extent

    def check(self, size: int) -> None:
        """Rejects a value of this size."""
        if size > self.largest:
            raise self.error(f"a value of {size} characters, more than {self.largest}")

    def read(self, size: int) -> None:
        self.unread -= size
        if self.unread < 0:
            raise self.error(f"reads more than {_READ} characters")

    def weighed(self, value: Any) -> Any:
        """Counts the reading of a value, such as an operand of `==` or `in`."""
        self.read(self.extent(value).size)
        return value

    def made(self, value: Any) -> Any:
        """Counts a new value."""
        self.kept(value)
        if isinstance(value, str):
            self.bytes -= sys.getsizeof(value)
            self.bytes -= len(value) if isinstance(value, TracedText) else 0
        elif isinstance(value, _CONTAINERS):
            self.bytes -= sys.getsizeof(value)
        if self.bytes < 0:
            raise self.error(f"makes more than {_BYTES} bytes of values")
        return value

    def kept(self, value: Any) -> Any:
        """Checks a value that the template gives a name."""
        self.check(self.extent(value).size)
        if isinstance(value, int) and value.bit_length() > _BITS:
            raise self.error("computes with integers that are too large")
        return value

    def text(self, value: Any) -> str:
        """Returns the text of a value, with the origins of the texts inside."""
        if isinstance(value, str):
            return value
        if type(value).__name__ == "Namespace":
            raise self.error("writes a namespace")
        extent = self.extent(value)
        # the text of an unprintable character has up to 10 characters
        self.check(10 * extent.size if isinstance(value, _CONTAINERS) else extent.size)
        return self.made(trace(str(value), extent.origin))

    def written(self, value: Any) -> str:
        """Counts a part of the rendered text."""
        text = self.text(value)
        self.characters -= len(text)
        if self.characters < 0:
            raise self.error(f"more than {TEXT} characters of text")
        return text

    def concatenated(self, *values: Any) -> str:
        return self.joined(values)

    def joined(self, values: Iterable, separator: Any = "") -> str:
        texts, separator = [self.text(value) for value in values], self.text(separator)
        self.check(sum(map(len, texts)) + len(separator) * len(texts))
        return self.made(join(separator, texts))

    def replaced(self, text: Any, old: Any, new: Any, count: int | None = -1) -> str:
        """Replaces parts of a text; the filter and the method "replace"."""
        text, old, new = self.text(text), self.text(old), self.text(new)
        self.read(len(text))
        is_traced = isinstance(text, TracedText) or isinstance(new, TracedText)
        self.check(len(text) + text.count(old) * max(len(new), _PART if is_traced else 0))
        return self.made(replace(text, old, new, -1 if count is None else count))

    def indented(
        self, text: Any, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        """Indents lines; the filter "indent"."""
        text = self.text(text)
        space = width if isinstance(width, str) else " " * min(width, _INDENT)
        self.check(len(text) + len(space) * (text.count("\n") + 1))
        lines: list[str] = []
        for line in self.method(text, "split", "\n"):
            is_indented = (line or blank) if lines else first
            lines.append(join("", [space, line]) if is_indented else line)
        return self.joined(lines, "\n")

    def method(self, text: str, name: str, *args: Any, **options: Any) -> Any:
        """Calls a method of a string."""
        if name == "join":
            return self.joined(*args, separator=text)
        if name == "replace":
            return self.replaced(text, *args, **options)
        given = [*args, *options.values()]
        lengths = [len(value) for value in given if isinstance(value, str)]
        # these methods compare each character with the whole argument
        factor = max(lengths, default=1) if name in _PRODUCTS else 1
        self.read(len(text) * max(1, factor) + sum(self.extent(value).size for value in given))
        if name in ("split", "rsplit", "splitlines"):
            separator = args[0] if args else options.get("sep")
            breaks = _LINES if name == "splitlines" else _SPACES
            breaks = [separator] if isinstance(separator, str) and separator else breaks
            parts = 1 + sum(text.count(part) for part in breaks)
            self.check(_PART * parts)
            self.bytes -= _PART * parts + 2 * len(text)
        result = method(text, name, *args, **options)
        return result if result is text else self.made(result)

    def computed(self, operator: str, left: Any, right: Any, compute: Callable[[], Any]) -> Any:
        """Computes an operator, after a check of the size of the result."""
        self.check_operands(operator, left, right)
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            return self.joined([left, right])
        result = compute()
        value = right if isinstance(left, int) else left
        if isinstance(result, str) and isinstance(value, TracedText) and value:
            result = TracedText(result, value.origins * (len(result) // len(value)))
        elif isinstance(result, list | tuple):
            extents = [self.extent(v) for v in (left, right) if isinstance(v, list | tuple)]
            times = 1 if len(extents) == 2 else len(result) // max(1, len(value))
            size, depth, origin = (list(column) for column in zip(*extents, strict=True))
            self.learn(result, Extent(times * sum(size) + _ITEM, max(depth), max(origin)))
        return self.made(result)

    def check_operands(self, operator: str, left: Any, right: Any) -> None:
        """Checks the size of the result of an operator before the computation."""
        values = [v for v in (left, right) if isinstance(v, str | list | tuple)]
        if operator == "+":
            self.check(sum(self.extent(value).size for value in values))
        elif values and operator == "%":
            raise self.error("formats a string with %, which has no limit. Use ~ to join texts")
        elif values and operator == "*":
            factor = right if values[0] is left else left
            if isinstance(factor, int) and factor > _FACTOR:
                raise self.error(f"repeats a value {factor} times, more than {_FACTOR}")
            self.check(self.extent(values[0]).size * (factor if isinstance(factor, int) else 0))
        elif not values:
            bits = [v.bit_length() if isinstance(v, int) else 0 for v in (left, right)]
            most = _EXPONENT if operator == "**" else _BITS
            power = bits[0] * right if operator == "**" and bits[1] else 0
            if max(bits) > most or power > _BITS:
                raise self.error("computes with integers that are too large")
