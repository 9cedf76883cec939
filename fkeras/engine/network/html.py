"""Networks in notebooks: the calls, the table of the summary, and a drawing of the graph, as HTML.

Each part can be folded by the `<details>` element, and the drawing is SVG text: a notebook needs no
other program and no script.
"""

from __future__ import annotations

import html

from fkeras.engine.graph.listing import lines_html
from fkeras.engine.messages.html import html_table
from fkeras.engine.network.summary import HEADINGS, NUMBERS, table
from fkeras.engine.network.svg import to_svg
from fkeras.engine.network.text import has_arrays, network_lines
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.values.annotations import Network

# a drawing of more layers would be too large for the output of a cell
_MOST_DRAWN = 200


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
    count = sum(1 for _ in sublayers(network))
    if count > _MOST_DRAWN:
        return (
            f"<p>{count} layers are too many for a cell: "
            "<code>fk.utils.plot_model(model, 'model.svg')</code> writes the drawing to a file.</p>"
        )
    return f'<div style="overflow:auto">{to_svg(network)}</div>'
