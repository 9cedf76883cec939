"""A graph as text and HTML: one line for each call, in the form of an assignment."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from fkeras.engine.values.structure import draw

#: a longer list of calls is cut in the middle
_LONGEST = 40
#: columns of an assignment before the shapes, and of the whole line
_COLUMNS, _WIDTH = 60, 100

#: lines, each with the lines that are indented below
Lines: TypeAlias = Sequence[tuple[str, "Lines"]]
Describe: TypeAlias = Callable[[str, bool], tuple[str, str, Lines]]


def lines_text(lines: Lines) -> str:
    """Returns lines as text."""
    blocks = ((line, lines_text(below).replace("\n", "\n    ")) for line, below in lines)
    return "\n".join(f"{line}\n    {text}" if text else line for line, text in blocks)


def lines_html(lines: Lines, is_open: bool = True) -> str:
    """Returns lines as HTML; a line with lines below is a `<details>` element.

    Args:
        is_open: whether the elements of the outermost lines are open; those below are closed.
    """
    parts = []
    for line, below in lines:
        text = html.escape(line)
        if below:
            # the triangle of a summary stands in the padding, so that all lines are aligned
            summary = f'<summary style="list-style-position:outside">{text}</summary>'
            attribute = ' open=""' if is_open else ""
            text = f"<details{attribute}>{summary}{lines_html(below, False)}</details>"
        parts.append(f"<div>{text}</div>")
    style = "font-family:monospace;white-space:pre;overflow-x:auto;padding-left:1.5em"
    return f'<div style="{style}">{"".join(parts)}</div>'


def listing(graph: Any, describe: Describe) -> Iterator[tuple[str, Lines]]:
    """Returns the lines of a graph: calls with shapes, then the outputs.

    Args:
        graph: a `Graph`.
        describe: function of a layer's name, and of whether the layer has been listed before, that
            returns the layer as text, a remark for the end of the line, and lines to be indented
            below the call.
    """
    names = _names(graph)
    shown = range(len(graph.calls))
    if len(shown) > _LONGEST:
        shown = [*shown[: _LONGEST // 2], None, *shown[-(_LONGEST // 2) :]]
    for number in shown:
        if number is None:
            yield f"... {len(graph.calls) - _LONGEST} calls ...", ()
            continue
        call, first = graph.calls[number], graph.first_slots[number]
        text, remark, below = describe(call.layer, graph.node_indices[number] > 0)
        arguments = _arguments(call, names)
        specs = ", ".join(
            f"{spec} {spec.dtype}" if spec.dtype != "float32" else str(spec)
            for spec in call.outputs
        )
        masked = ", masked" if any(mask is not None for mask in call.masks) else ""
        variable = names[first].partition("[")[0]
        end = f"  # {specs}{masked}{remark}"
        if call.is_input:
            left = f"{variable} = Input"
        else:
            space = _WIDTH - len(variable) - len(arguments) - len(end) - 3
            left = f"{variable} = {_cut(text, space)}{arguments}"
        yield f"{left:{_COLUMNS}}{end}", below
    yield f"return {draw(graph.outputs, names.__getitem__)}", ()


def _names(graph: Any) -> list[str]:
    """Returns the names of all slots: `lstm`, `lstm:1` in the second call, `lstm[0]` of several."""
    names = []
    for number, call in enumerate(graph.calls):
        node = graph.node_indices[number]
        variable = f"{call.layer}:{node}" if node else call.layer
        count = len(call.outputs)
        names += [f"{variable}[{n}]" if count > 1 else variable for n in range(count)]
    return names


def _arguments(call: Any, names: Sequence[str]) -> str:
    if call.is_input:
        return ""
    positional = [draw(child, names.__getitem__) for child in call.args.children]
    pairs = zip(call.options.keys, call.options.children, strict=True)
    named = [f"{key}={draw(child, names.__getitem__)}" for key, child in pairs]
    if call.training is not None:
        named.append(f"training={call.training}")
    return f"({', '.join([*positional, *named])})"


def _cut(text: str, width: int) -> str:
    """Returns the text of a layer, cut to about `width` letters; the last arguments are missing."""
    kept = max(width - len("...)"), len(text.partition("(")[0]) + 1)
    return text if len(text) <= kept + len("...)") else f"{text[:kept]}...)"
