"""Adds the badge "Open in Colab" under the title of each page that is also a notebook."""

from __future__ import annotations

import re
from typing import Any

import notebooks
from address import read_address


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _add_badge)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_badge(app: Any, name: str, source: list[str]) -> None:
    page = notebooks.DOCS / f"{name}.md"
    if page not in notebooks.pages():
        return
    target = read_address().colab(f"notebooks/{page.stem}.ipynb")
    badge = f"[![Open in Colab](/static/colab.svg)]({target})"
    source[0] = re.sub(r"^(# .*)$", rf"\1\n\n{badge}", source[0], count=1, flags=re.M)
