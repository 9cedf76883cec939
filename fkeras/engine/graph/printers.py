"""Hooks of the printers treescope and wadler_lindig, which equinox uses: a graph is one folded line.

The printers call the hooks, so their packages are installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def folded_graph(title: str, lines: Sequence[str], path: str | None) -> Any:
    """Returns a graph for treescope: the title, with the calls as lines that unfold.

    Args:
        title: the text of the folded graph.
        lines: a line for each call.
        path: treescope's path of the graph.
    """
    from treescope import rendering_parts as parts

    return parts.build_foldable_tree_node_from_children(
        prefix=f"<{title}",
        children=[parts.fold_condition(expanded=parts.text(line)) for line in lines],
        suffix=">",
        path=path,
        expand_state=parts.ExpandState.COLLAPSED,
    )


def unfolding_layers(layers: Any, path: str | None, render: Any) -> Any:
    """Returns layers by name for treescope, each of which unfolds.

    Args:
        layers: a `LayerDict`.
        path: treescope's path of the layers.
        render: treescope's function for the layers.
    """
    from treescope import repr_lib

    return repr_lib.render_dictionary_wrapper(type(layers), dict(layers), path, render)


def graph_document(title: str) -> Any:
    """Returns a graph for wadler_lindig: the title alone."""
    import wadler_lindig  # type: ignore[import-not-found]

    return wadler_lindig.TextDoc(f"<{title}>")


def layers_document(layers: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Returns layers by name for wadler_lindig.

    Args:
        layers: a `LayerDict`.
        options: the options of the printer.
    """
    import wadler_lindig  # type: ignore[import-not-found]

    return wadler_lindig.pdoc(dict(layers.items()), **options)
