"""Reads options of a page from the lines under `fkeras:` in its header."""

from __future__ import annotations

import pathlib
import re


def option(page: pathlib.Path, name: str) -> str:
    """Returns the text of an option, such as "train,viz" for the line `extras: train,viz`.

    Args:
        page: a Markdown file.
        name: the option; a page without its line gives "".
    """
    header = page.read_text().partition("\n---\n")[0]
    match = re.search(rf"^\s+{name}: *(.+)$", header, re.M)
    return match[1].strip() if match else ""
