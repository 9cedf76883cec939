"""Docstrings of class families: a base class documents shared fields once, for all subclasses.

The docstring of a base class declares a section for the family by its title: "Args of the family:",
"Raises of the family:" and so on. Each subclass gets the section in its own docstring, so `help` and
the documentation site show it there. A subclass documents only what differs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

_MARK = " of the family"
_ORDER = ("Args", "Call", "Shapes", "Raises", "Example", "References")


def complete_docstring(cls: type, arguments: Sequence[str]) -> None:
    """Adds the sections that the base classes declare for the family to the docstring of `cls`.

    An entry of "Args" is added if `cls` has the argument and does not document it. Any other section
    is added if the docstring lacks it. The nearest base class takes precedence.

    Args:
        arguments: names of the constructor's arguments, in order.
    """
    docstrings = (base.__doc__ or "" for base in cls.__mro__[1:])
    families = [docstring for docstring in docstrings if _MARK in docstring]
    if not families or not cls.__doc__ or _MARK in cls.__doc__:
        return
    summary, own = _sections(cls.__doc__)
    entries = _entries(own.get("Args", ""))
    for docstring in families:
        for title, body in _sections(docstring)[1].items():
            if title == f"Args{_MARK}":
                entries = {**_entries(body), **entries}
            elif title.endswith(_MARK):
                own.setdefault(title.removesuffix(_MARK), body)
    documented = [name for name in arguments if name in entries]
    others = [name for name in entries if " " in name]  # references such as "Other arguments"
    # one entry may document several arguments
    if lines := dict.fromkeys(entries[name] for name in (*documented, *others)):
        own["Args"] = "\n".join(lines)
    titles = sorted(own, key=lambda title: (*_ORDER, title).index(title))
    cls.__doc__ = "\n\n".join([summary, *(f"{title}:\n{own[title]}" for title in titles)])


def _sections(docstring: str) -> tuple[str, dict[str, str]]:
    """Splits a docstring into the text before the sections and the sections by title."""
    summary, *parts = re.split(r"^([A-Z][\w ]*):\n", inspect.cleandoc(docstring), flags=re.M)
    bodies = (body.rstrip() for body in parts[1::2])
    return summary.rstrip(), dict(zip(parts[::2], bodies, strict=True))


def _entries(body: str) -> dict[str, str]:
    """Returns the entries of a section by the names that they document."""
    entries = re.split(r"^(?=    \S)", body, flags=re.M)
    return {
        name.strip(): entry.rstrip()
        for entry in entries
        for name in entry.partition(":")[0].split(",")
        if entry
    }
