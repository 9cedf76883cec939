"""Adds the way to the notebook under the title of each page that is also a notebook.

With a public address this is the badge "Open in Colab", otherwise a link that downloads the notebook.
"""

from __future__ import annotations

import re
from typing import Any

import notebooks
from address import read_address


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _add_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_link(app: Any, name: str, source: list[str]) -> None:
    page = notebooks.DOCS / f"{name}.md"
    if page in notebooks.pages():
        link = _link(f"notebooks/{page.stem}.ipynb")
        source[0] = re.sub(r"^(# .*)$", rf"\1\n\n{link}", source[0], count=1, flags=re.M)


def _link(notebook: str) -> str:
    address = read_address()
    if address.settled:
        return f"[![Open in Colab](/static/colab.svg)]({address.colab(notebook)})"
    download = f"{{download}}`Download this page as a notebook </../{notebook}>`"
    return f"{download}. To run it in Colab, choose *File*, *Upload notebook*."
