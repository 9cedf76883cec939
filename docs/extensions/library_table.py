"""The directive `{library-table}`: the programs of `benchmarks/libraries` in numbers.

    ```{library-table} lines
    ```

The argument is "lines", "steps" (ratios to fkeras with quartiles) or "first" (CPU seconds of the first
call, with tracing and compiling). The numbers are those of the last run of `benchmarks/libraries/run.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from address import ROOT
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

RESULTS = ROOT / "benchmarks/libraries/results.json"
LIBRARIES = ("fkeras", "equinox", "nnx", "blox")
# titles of the programs on the page
TITLES = {
    "training": "a training step",
    "mlp": "two dense layers",
    "convnet": "convolutions with BatchNormalization",
    "lstm": "LSTM",
    "transformer": "two transformer blocks",
    "siamese": "a shared layer",
    "training_of_the_head": "train the head alone",
    "features": "a value inside",
    "ensemble": "eight trainings at once",
    "saved_and_loaded": "save and load",
}
_FAST = ("equinox arrays", "nnx split")


class LibraryTable(SphinxDirective):
    """A table with a row for each program."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(RESULTS))
        lines = list(rows(self.arguments[0]))
        node = nodes.container()
        self.state.nested_parse(StringList(lines, self.env.docname), self.content_offset, node)
        return node.children


def rows(kind: str) -> Iterator[str]:
    """Yields the lines of the table in Markdown."""
    results = json.loads(RESULTS.read_text())
    columns = LIBRARIES if kind == "lines" else (*LIBRARIES, *_FAST)
    yield "| program | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for program, title in TITLES.items():
        if kind == "lines":
            cells = [str(results["lines"][library][program]) for library in columns]
        elif program in results["times"]:
            cells = [_cell(kind, results["times"][program].get(library)) for library in columns]
        else:
            continue
        yield f"| {title} | " + " | ".join(cells) + " |"
    if kind == "lines":
        totals = [sum(results["lines"][library].values()) for library in columns]
        yield "| together | " + " | ".join(map(str, totals)) + " |"


def _cell(kind: str, times: dict[str, Any] | None) -> str:
    if times is None:
        return ""
    if kind == "first":
        return f"{times['first']:.1f}"
    low, middle, high = times["ratio"]
    return (
        f"{times['step_ms']:.3g} ms"
        if low == high == 1
        else f"{middle:.2f} ({low:.2f} to {high:.2f})"
    )


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("library-table", LibraryTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
