"""The directive `{migration-table}`: Keras code beside fkeras code, from the migration hints.

    ```{migration-table}
    model.compile(...) | compile
    keras.backend | backend (fk)
    ```

Each line becomes a row: the text of the left column, then the name in the migration hints. If
several tables have the name, the end of the table's title follows in parentheses. Without lines the
directive shows all rows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from address import ROOT
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(ROOT))

from fkeras.engine.migration_hints.hints import keras_table


_LINE = re.compile(r"(?:(.*) \| )?(.*?)(?: \((.*)\))?")


class MigrationTable(SphinxDirective):
    """Rows of the migration hints."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        lines = list(_selected(self.content) if self.content else _all())
        node = nodes.container()
        self.state.nested_parse(StringList(lines, self.env.docname), self.content_offset, node)
        return node.children


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("migration-table", MigrationTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _selected(lines: Iterable[str]) -> Iterator[str]:
    yield from _head()
    for line in lines:
        shown, name, kind = _LINE.fullmatch(line.strip()).groups(default="")
        hints = [
            hint
            for title, rows in keras_table()
            for names, hint in rows
            if name in names.split(", ") and title.endswith(kind)
        ]
        if not hints:
            raise LookupError(f"the migration hints have no {line!r}")
        yield _row(shown or name, hints[0])


def _all() -> Iterator[str]:
    for title, rows in keras_table():
        yield from ("", f"**{title}**", "", *_head())
        yield from (_row(names, hint) for names, hint in rows)


def _head() -> tuple[str, ...]:
    return "| Keras | fkeras |", "|---|---|"


def _row(names: str, hint: str) -> str:
    written = ", ".join(f"`{name}`" for name in names.split(", "))
    return f"| {written} | {hint.replace('|', chr(92) + '|')} |"
