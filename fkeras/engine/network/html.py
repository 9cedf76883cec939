"""Networks in notebooks: the calls, the table of the summary, and a drawing of the graph, as HTML.

Each part can be folded by the `<details>` element, and the drawing is SVG text: a notebook needs no
other program and no script.
"""

from __future__ import annotations

import html

from fkeras.engine.graph.listing import lines_html
from fkeras.engine.messages.html import html_table
from fkeras.engine.network.summary import HEADINGS, NUMBERS, table
from fkeras.engine.network.text import has_arrays, network_lines
from fkeras.engine.values.annotations import Network

# a drawing of more layers would be too large for the output of a cell
_MOST_DRAWN = 200
_CHARACTER, _HEIGHT, _ROW, _SPACE = 7.2, 36, 62, 18


def network_html(network: Network) -> str:
    """Returns the calls of a network, its summary and a drawing of its graph as HTML.

    Args:
        network: a network, built or not.
    """
    parts = [lines_html(network_lines(network))]
    if has_arrays(network):
        parts.append(_folded("Summary", _summary(network)))
    if network.graph is not None:
        parts.append(_folded("Graph", _drawing(network)))
    return "\n".join(parts)


def _summary(network: Network) -> str:
    contents = table(network)
    return "\n".join(
        [
            '<div style="max-height:40em;overflow:auto">',
            html_table(HEADINGS, contents.rows, NUMBERS),
            "</div>",
            *(f"<div>{html.escape(line)}</div>" for line in contents.totals),
        ]
    )


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


def _drawing(network: Network) -> str:
    graph = network.graph
    if len(graph.layers) > _MOST_DRAWN:
        return (
            f"<p>{len(graph.layers)} layers are too many for a cell: "
            "<code>fk.utils.plot_model</code> writes the drawing to a file.</p>"
        )
    # deepest layers first, as the data flow downwards
    levels = list(reversed(graph.layers_by_depth.values()))
    widths = {
        name: _CHARACTER * max(len(name), len(type(network.layers[name]).__name__)) + 14
        for name in graph.layers
    }
    level_widths = [sum(widths[n] + _SPACE for n in level) - _SPACE for level in levels]
    total = max(level_widths, default=0) + 2 * _SPACE
    places: dict[str, tuple[float, float]] = {}
    for row, (level, width) in enumerate(zip(levels, level_widths, strict=True)):
        left = (total - width) / 2
        for name in level:
            places[name] = (left + widths[name] / 2, row * _ROW + 4)
            left += widths[name] + _SPACE
    edges = dict.fromkeys(
        (graph.coords[slot].layer, call.layer) for call in graph.calls for slot in call.inputs
    )
    lines = [_edge(places[start], places[end], total) for start, end in edges if start != end]
    boxes = [
        _box(name, type(network.layers[name]).__name__, places[name], widths[name])
        for name in places
    ]
    height = len(levels) * _ROW
    return (
        f'<div style="overflow:auto"><svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{total:.0f}" height="{height}" font-family="monospace" font-size="12" '
        f'fill="none" stroke="currentColor">{"".join([*lines, *boxes])}</svg></div>'
    )


def _edge(start: tuple[float, float], end: tuple[float, float], total: float) -> str:
    (x1, y1), (x2, y2) = start, end
    y1 += _HEIGHT
    # an arrow over several rows bends to the side, so that boxes between its ends do not cover it
    bend = 0.0 if y2 - y1 < _ROW else total / 3
    middle = max(4.0, min(total - 4.0, (x1 + x2) / 2 + bend))
    path = (
        f"M{x1:.1f} {y1:.1f} C{middle:.1f} {y1 + 12:.1f} {middle:.1f} {y2 - 12:.1f} "
        f"{x2:.1f} {y2:.1f} m-4 -6 l4 6 l4 -6"
    )
    return f'<path d="{path}"/>'


def _box(name: str, kind: str, place: tuple[float, float], width: float) -> str:
    x, y = place
    text = f'text-anchor="middle" fill="currentColor" stroke="none" x="{x:.1f}"'
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y}" width="{width:.1f}" height="{_HEIGHT}" rx="4"/>'
        f'<text {text} y="{y + 15}" font-weight="bold">{html.escape(name)}</text>'
        f'<text {text} y="{y + 30}">{html.escape(kind)}</text>'
    )
