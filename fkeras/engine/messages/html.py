"""HTML for notebooks: tables whose texts are escaped."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence


def html_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()
) -> str:
    """Returns a table as HTML; all texts are escaped.

    Example:
        >>> html_table(["name"], [["<b>"]])
        '<table><thead><tr><th style="text-align:left">name</th></tr></thead><tbody><tr><td style="text-align:left;white-space:pre">&lt;b&gt;</td></tr></tbody></table>'
    """
    sides = ["right" if i in numbers else "left" for i in range(len(headings))]
    head = "".join(
        f'<th style="text-align:{side}">{html.escape(text)}</th>'
        for side, text in zip(sides, headings, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{side};white-space:pre">{html.escape(text)}</td>'
            for side, text in zip(sides, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
