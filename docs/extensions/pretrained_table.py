"""The directive `{pretrained-table}`: the architectures of `fk.pretrained`, generated from the table of families."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from address import ROOT
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(ROOT))

from fkeras.pretrained.families.table import FAMILIES
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.heads import HeadsConfig, parts_of_class


class PretrainedTable(SphinxDirective):
    """A row for each architecture."""

    def run(self) -> list[nodes.Node]:
        node = nodes.container()
        lines = StringList(list(lines_of_table()), self.env.docname)
        self.state.nested_parse(lines, self.content_offset, node)
        return node.children


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("pretrained-table", PretrainedTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def lines_of_table() -> Iterator[str]:
    """Yields the lines of the table in Markdown."""
    yield "| `model_type` | classes of `architectures` | options | GGUF | outputs |"
    yield "|---|---|---|---|---|"
    for family in FAMILIES:
        gguf = "yes" if family.gguf else "no"
        options = f"{{py:obj}}`fkeras.pretrained.{family.config.__name__}`"
        poolers = _poolers(family)
        heads = {
            n: parts_of_class(n) or poolers for names in family.classes.values() for n in names
        }
        found = {parts: _outputs(family, parts) for parts in {*heads.values()}}
        # folders of timm name no class: one row for all architectures
        rows = {(name,): classes for name, classes in family.classes.items() if classes}
        for model_types, classes in (rows or {(*family.classes,): ()}).items():
            parts = [heads[cls] for cls in classes] or [getattr(family.tiny, "parts", ())]
            outputs = dict.fromkeys(
                name for n in parts for name in found.get(n) or _outputs(family, n)
            )
            cells = _listed(model_types), _listed(classes), options, gguf, _listed(outputs)
            yield f"| {' | '.join(cells)} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _poolers(family: Family) -> tuple[str, ...]:
    """Returns the parts of models without another head."""
    return tuple(n for n in ("pooler", "head") if n in getattr(family.config, "endings", {}))


def _outputs(family: Family, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names of the outputs; a graph with one output returns logits."""
    config = family.tiny
    if isinstance(config, HeadsConfig) and {*parts} <= {*config.endings}:
        config = dataclasses.replace(config, parts=parts)
    outputs = family.build(config).outputs
    names = outputs if isinstance(outputs, dict) else ("logits",)
    return tuple(re.sub(r"^stage\d+$", "stageN", name) for name in names)
