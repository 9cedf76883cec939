"""Converts the package's docstrings to reStructuredText.

The docstrings are plain text with backticks around code, sections such as `Args:`, and doctests. All
other characters are literal, so those that reStructuredText would interpret are escaped.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence

_SECTION = re.compile(r"^([A-Z][\w ]*):$")
_ENTRY = re.compile(r"^(\*{0,2}[\w. ,]+?): (.*)$")
_TITLES = {"Args": "Arguments", "Call": "Arguments of the call"}
_LISTS = ("Args", "Attributes", "Call", "Raises", "Fields", "Methods")


def to_rst(lines: Sequence[str], types: Mapping[str, str] | None = None) -> list[str]:
    """Returns a docstring as reStructuredText.

    Args:
        lines: the lines of the docstring, without its indentation.
        types: the types of the arguments, which follow their names.
    """
    title, body = "", []
    written: list[str] = []
    for line in [*lines, "End:"]:
        match = _SECTION.match(line)
        if match is None:
            body.append(line)
            continue
        written.extend(_section(title, body, types or {}))
        title, body = match[1], []
    return written


def first_line(docstring: str | None) -> str:
    """Returns the first line of a docstring as reStructuredText."""
    return escape((docstring or "").strip().partition("\n")[0])


def section(docstring: str | None, title: str) -> str:
    """Returns the text of one section in one line, or "" if there is no such section."""
    text = f"{inspect.cleandoc(docstring or '')}\n"
    match = re.search(rf"^{title}:\n((?:(?: {{4}}.*)?\n)+)", text, re.M)
    return " ".join(match[1].split()) if match else ""


def entries(docstring: str, title: str) -> dict[str, str]:
    """Returns the entries of a section by name, each text in one line."""
    text = f"{inspect.cleandoc(docstring)}\n"
    match = re.search(rf"^{title}:\n((?:(?: {{4}}.*)?\n)+)", text, re.M)
    found: dict[str, str] = {}
    name = ""
    for line in (match[1] if match else "").splitlines():
        entry = _ENTRY.match(line.strip()) if line.startswith("    ") and line[4:5] != " " else None
        if entry:
            name = entry[1]
            found[name] = entry[2]
        elif name:
            found[name] += f" {line.strip()}"
    return found


def escape(text: str) -> str:
    """Returns a line of text as reStructuredText: code in backticks, other characters literal."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"``{part[1:-1]}``" + _separator(parts, place)
        if place % 2
        else re.sub(r"([\\*|`]|_(?=\W|$))", r"\\\1", part)
        for place, part in enumerate(parts)
    )


def _separator(parts: list[str], place: int) -> str:
    # inline code must be followed by a space or by punctuation
    return "\\ " if re.match(r"[\w]", parts[place + 1]) else ""


def with_entries(lines: Sequence[str], entries: Sequence[str]) -> list[str]:
    """Returns a docstring with further entries in its section "Args"; it may lack the section."""
    lines = list(lines)
    if "Args:" not in lines:
        titles = [number for number, line in enumerate(lines) if _SECTION.match(line)]
        start = titles[0] if titles else len(lines)
        return [*lines[:start], "Args:", *entries, "", *lines[start:]]
    start = lines.index("Args:") + 1
    end = start
    while end < len(lines) and lines[end].startswith(" "):
        end += 1
    return [*lines[:end], *entries, *lines[end:]]


def _section(title: str, body: list[str], types: Mapping[str, str]) -> Iterator[str]:
    if title:
        indented = [line for line in body if line.strip()]
        indent = min((len(line) - len(line.lstrip()) for line in indented), default=0)
        body = [line[indent:] for line in body]
        yield from (f".. rubric:: {_TITLES.get(title, title)}", "")
    if title in _LISTS:
        yield from _entries(body, types)
    else:
        yield from _text(body)


def _entries(body: list[str], types: Mapping[str, str]) -> Iterator[str]:
    """Yields a list with one item for each entry; lines with more indentation continue an entry."""
    items: list[str] = []
    for line in body:
        if not line.strip():
            continue
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(line.strip())
    for item in items:
        match = _ENTRY.match(item)
        if match is None:
            yield f"- {escape(item)}"
            continue
        # autodoc's text of a type is in italics too
        shown = f" (*{escape(types[match[1]])}*)" if match[1] in types else ""
        yield f"- **{escape(match[1])}**{shown}: {escape(match[2])}"
    yield ""


def _text(body: list[str]) -> Iterator[str]:
    """Yields paragraphs, lists and code; each paragraph is one line."""
    paragraph: list[str] = []
    lines = iter([*body, ""])
    code: list[str] = []
    for line in lines:
        plain = line.strip()
        if code and plain:  # a doctest or an indented block ends at an empty line
            code.append(line)
            continue
        if code:
            yield from _code(code)
            code = []
        if plain.startswith(">>> ") or (line.startswith("    ") and not paragraph and plain):
            yield from _paragraph(paragraph)
            paragraph, code = [], [line]
        elif not plain:
            yield from _paragraph(paragraph)
            paragraph = []
        elif plain.startswith(("- ", "* ")) or re.match(r"\d+\. ", plain):
            yield from _paragraph(paragraph)
            paragraph = [plain]
        else:
            paragraph.append(plain)
    if code:
        yield from _code(code)


def _paragraph(lines: list[str]) -> Iterator[str]:
    if lines:
        text = " ".join(lines)
        bullet = re.match(r"(?:[-*]|\d+\.) ", text)
        mark = bullet[0] if bullet else ""
        yield mark + escape(text[len(mark) :])
        yield ""


def _code(lines: list[str]) -> Iterator[str]:
    indent = len(lines[0]) - len(lines[0].lstrip())
    language = "pycon" if lines[0].lstrip().startswith(">>>") else "text"
    yield from (f".. code-block:: {language}", "")
    yield from (f"    {line[indent:]}" for line in lines)
    yield ""
