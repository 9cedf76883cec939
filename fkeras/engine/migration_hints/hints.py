"""The lookup of migration hints; `hints.txt` beside this file holds their texts."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType


def hints(table: str) -> Mapping[str, str]:
    """Returns the hints of one table by the names of Keras code; no hints for an unknown table.

    Args:
        table: kind of object, such as "layer" and "metric", or a namespace, such as "fkeras.ops".
    """
    return _tables().get(table, ("", {}))[1]


def keras_table() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields `(title, rows)` for each table, for the documentation; a row is `(Keras, fkeras)`.

    Rows with equal hints are one row, whose names are separated by commas. Code in hints stands in
    backticks, as in the error messages.
    """
    for table, (title, by_name) in _tables().items():
        names: dict[str, list[str]] = {}
        for name, hint in by_name.items():
            example = '"dense"' if table == "model.layers" else "'name'"
            names.setdefault(hint.replace("{name}", example), []).append(name)
        yield title, [(", ".join(same), hint) for hint, same in names.items()]


@functools.cache
def _tables() -> Mapping[str, tuple[str, Mapping[str, str]]]:
    """Title and hints of each table; the head of the file explains the format."""
    text = pathlib.Path(__file__).with_name("hints.txt").read_text("utf-8")
    tables: dict[str, tuple[str, dict[str, str]]] = {}
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("["):
            table, _, title = line[1:].partition("] ")
            tables[table] = (title, {})
        elif line.startswith("    "):
            hint = line.strip()
            if "$" in hint:
                for phrase, words in tables["phrases"][1].items():
                    hint = hint.replace(f"${phrase}", words)
            tables[table][1].update(dict.fromkeys(names, hint))
        elif line and not line.startswith("#"):
            names = line.split(", ")
    del tables["phrases"]
    return MappingProxyType(
        {table: (title, MappingProxyType(rows)) for table, (title, rows) in tables.items()}
    )
