"""Fails the build if a page loads a script, style, font, picture or frame from another host."""

from __future__ import annotations

import pathlib
import re
from typing import Any

# links are allowed; files that a browser loads with the page are not
_LOADED = re.compile(
    r"<(?:script|img|iframe|video|audio|source|embed)\b[^>]*?\b(?:src|srcset)=[\"'](?:https?:)?//[^\"']*"
    r"|<link\b(?=[^>]*\brel=[\"'](?:stylesheet|preload|preconnect|icon|shortcut icon)[\"'])"
    r"[^>]*\bhref=[\"'](?:https?:)?//[^\"']*"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//[^\"');]*"
    r"|url\(\s*[\"']?(?:https?:)?//[^\"')]*"
    r"|\bimport\((?:\"|')https?://[^\"']*",
    re.I,
)


def setup(app: Any) -> dict[str, bool]:
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def foreign_content(folder: pathlib.Path) -> list[str]:
    """Returns "file: reference" for each reference to another host in HTML and CSS files."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".html", ".css")]
    return [
        f"{path.relative_to(folder)}: {match[0]}"
        for path in files
        for match in _LOADED.finditer(path.read_text())
    ]


def _check(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        references = foreign_content(pathlib.Path(app.outdir))
        if references:
            raise RuntimeError("content of other hosts:\n" + "\n".join(references[:20]))
