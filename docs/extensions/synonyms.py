"""Adds the words of a page's header to the search of the site.

    fkeras:
      search: pandas, data frame, CSV

Sphinx's search ranks the titles of pages and sections, which have fkeras's words. The words in the
header are those that a user of another library types. They become main entries of the search's index,
which the search shows first; the page shows nothing of them.
"""

from __future__ import annotations

import pathlib
from typing import Any

import header
from sphinx.search import js_index


def setup(app: Any) -> dict[str, bool]:
    app.connect("build-finished", _add_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_entries(app: Any, error: Exception | None) -> None:
    path = pathlib.Path(app.outdir, "searchindex.js")
    if error or app.builder.format != "html" or not path.exists():
        return
    index = js_index.loads(path.read_text())
    # In the file, and not as nodes of the pages: Sphinx forgets the entries of pages that a build does
    # not write again.
    for number, name in enumerate(index["docnames"]):
        words = header.option(pathlib.Path(app.env.doc2path(name)), "search")
        for word in filter(None, map(str.strip, words.lower().split(","))):
            entry = [number, "", True]  # the page, no anchor, a main entry
            entries = index["indexentries"].setdefault(word, [])
            if entry not in entries:
                entries.append(entry)
    path.write_text(js_index.dumps(index))
