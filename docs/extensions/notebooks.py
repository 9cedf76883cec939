"""Writes notebooks/*.ipynb from the executed pages of the tutorials and of "Getting started".

    python docs/extensions/notebooks.py

The build of the site executes the pages, and a test compares the notebooks with the pages, so the
notebooks need no run of their own. The program needs only Python.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import header
from address import DOCS, ROOT, Address, archive, read_address

FOLDERS = ("getting_started", "tutorials")
NOTEBOOKS = ROOT / "notebooks"
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.M | re.S)
_NOTE = re.compile(r"^:::\{(note|tip|warning)\}\n(.*?)^:::$", re.M | re.S)
_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)?[\w/]+)\.md(#[\w-]+)?\)")
_ROLE = re.compile(r"\{[\w:-]+\}`~?([^`<]+?)(?:\s*<[^>`]*>)?`")
# the comment for notebooks without a public address
_UPLOAD = """
# in Colab, first upload {archive} to the runtime: the folder at the left, then the arrow"""
# the versions of all installed packages are constraints, so pip changes no installed package
_INSTALL = """\
# installs fkeras, and changes none of the installed packages{note}
!pip list --format=freeze > /tmp/installed.txt
%pip install -q -c /tmp/installed.txt "{requirement}"

import fkeras as fk

fk.utils.cache_programs()  # after a restart of the runtime nothing is compiled again
"""


def pages() -> list[pathlib.Path]:
    """Returns the pages that become notebooks: those with code cells in `FOLDERS`."""
    paths = [path for folder in FOLDERS for path in sorted((DOCS / folder).glob("*.md"))]
    return [path for path in paths if "```{code-cell}" in path.read_text()]


def notebook_path(page: pathlib.Path) -> pathlib.Path:
    """Returns the file of a page's notebook."""
    return NOTEBOOKS / f"{page.stem}.ipynb"


def notebook(page: pathlib.Path) -> str:
    """Returns the notebook of a page as JSON text.

    Raises:
        ValueError: for a directive that a notebook cannot show.
    """
    address = read_address()
    cells = [_code(first_cell(extras(page)))]
    text = page.read_text().partition("\n---\n")[2]
    position = 0
    for match in _CELL.finditer(text):
        cells.extend(_markdown(text[position : match.start()], page, address))
        cells.append(_code(_without_options(match[1])))
        position = match.end()
    cells.extend(_markdown(text[position:], page, address))
    if address.settled:  # the badge stands under the title
        badge = f"[![Open in Colab](../docs/static/colab.svg)]({address.colab(_relative(page))})"
        title = cells[1]["source"]
        title[1:1] = ["\n", f"{badge}\n", *(["\n"] if len(title) > 1 else [])]
    content = {
        "cells": [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def first_cell(names: str = "") -> str:
    """Returns the first cell of a notebook, which installs fkeras with these extras."""
    address = read_address()
    note = "" if address.settled else _UPLOAD.format(archive=archive())
    return _INSTALL.format(note=note, requirement=address.requirement(names))


def extras(page: pathlib.Path) -> str:
    """Returns the extras of fkeras that a page needs, from the line `extras:` of its header."""
    return header.option(page, "extras").replace(" ", "")


def _relative(page: pathlib.Path) -> str:
    return notebook_path(page).relative_to(ROOT).as_posix()


def _without_options(cell: str) -> str:
    return re.sub(r"\A(?::[\w-]+:[^\n]*\n)+\n*", "", cell)


def _markdown(text: str, page: pathlib.Path, address: Address) -> Iterator[dict]:
    folder = page.parent.relative_to(DOCS).as_posix()

    def link(match: re.Match) -> str:
        text, page, anchor = match.groups(default="")
        target = page.removeprefix("../") if page.startswith("../") else f"{folder}/{page}"
        return f"[{text}]({address.page(target)}{anchor})" if address.settled else text

    def quote(match: re.Match) -> str:
        lines = f"**{match[1].capitalize()}**\n\n{match[2]}".rstrip().splitlines()
        return "\n".join(f"> {line}".rstrip() for line in lines)

    text = _NOTE.sub(quote, text.strip("\n"))
    text = _ROLE.sub(r"`\1`", _LINK.sub(link, text))
    left = re.search(r"^(?:```|:::+)\{.*$", text, re.M)
    if left:
        raise ValueError(
            f"{page.relative_to(ROOT)}: expected cells, text and notes, received {left[0]!r}. "
            "A notebook shows no other directive: write Markdown."
        )
    if text:
        yield {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str) -> dict:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text.rstrip("\n").splitlines(keepends=True),
    }


def main() -> None:
    NOTEBOOKS.mkdir(exist_ok=True)
    files = {notebook_path(page): notebook(page) for page in pages()}
    for path in NOTEBOOKS.glob("*.ipynb"):
        if path not in files:
            path.unlink()
    for path, text in files.items():
        path.write_text(text)
    print(f"{len(files)} notebooks in {NOTEBOOKS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
