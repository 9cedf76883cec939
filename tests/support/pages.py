"""Runs the code cells of a page of the site in one namespace, without Sphinx."""

import contextlib
import re
import tempfile
from typing import Any, NamedTuple

import jax

from tests.support.paths import ROOT

_SECTION = re.compile(r"^#{2,3} (.+)$", re.M)
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(?::[^\n]*\n)*(.*?)^```$", re.M | re.S)


class Cell(NamedTuple):
    """A code cell of a page.

    Attributes:
        section: the title above the cell, or "".
        source: the code.
        hidden: whether the page folds the cell.
    """

    section: str
    source: str
    hidden: bool


def cells(page: str) -> list[Cell]:
    """Returns the code cells of a page such as "guides/surgery"."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    titles = [(match.start(), match[1]) for match in _SECTION.finditer(text)]
    return [
        Cell(
            next((title for start, title in reversed(titles) if start < match.start()), ""),
            match[1],
            "hide-input" in match[0].partition("\n\n")[0],
        )
        for match in _CELL.finditer(text)
    ]


def run(page: str) -> dict[str, Any]:
    """Runs the cells of a page in an empty folder and returns the names that they define."""
    namespace: dict[str, Any] = {"__name__": page}
    # JAX's defaults, as readers have them
    defaults = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
    with (
        defaults[0],
        defaults[1],
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):
        for number, cell in enumerate(cells(page)):
            exec(compile(cell.source, f"{page}, cell {number}: {cell.section}", "exec"), namespace)
    return namespace
