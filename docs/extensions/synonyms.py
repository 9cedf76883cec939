"""Adds the words of a page's header to the search of the site.

    fkeras:
      search: pandas, data frame, CSV

Sphinx's search ranks the titles of pages and sections, which have fkeras's words. The words in the
header are those that a user of another library types. They become main entries of the index, which
the search shows first; the page shows nothing of them.
"""

from __future__ import annotations

import pathlib
from typing import Any

import header
from docutils import nodes
from sphinx import addnodes


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-read", _add_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_entries(app: Any, document: nodes.document) -> None:
    page = pathlib.Path(app.env.doc2path(app.env.docname))
    words = [word.strip() for word in header.option(page, "search").split(",") if word.strip()]
    if words:
        entries = [("single", word, "", "main", None) for word in words]
        document.insert(0, addnodes.index(entries=entries))
