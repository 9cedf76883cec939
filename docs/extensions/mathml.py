"""Renders formulas as MathML, which browsers draw without scripts or fonts of other hosts."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    formula = tex2mathml(node.astext(), as_block=True)
    writer.body.append(f'<div class="math-block">{formula}</div>')
    raise nodes.SkipNode
