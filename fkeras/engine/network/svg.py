"""Networks as SVG: a box for each layer, an arrow for each tensor, nested networks as frames."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax

from fkeras.engine.network.draw import Details, box_lines, edges_of
from fkeras.engine.network.layered import lay_out
from fkeras.engine.values.annotations import Network

_CHARACTER, _LINE, _PADDING = 7.3, 15.0, 7.0
# colors for light and dark pages
_WEIGHTS, _INPUT, _SHARE = "#3b82f6", "#808080", "#ef4444"
_FRAME = 'stroke-dasharray="4 3"'
_NO_SHARES: Mapping[str, float] = MappingProxyType({})


def to_svg(
    network: Network,
    *,
    shapes: bool = True,
    nested: bool = True,
    details: Details | None = None,
    direction: str = "TB",
    shares: Mapping[str, float] = _NO_SHARES,
) -> str:
    """Returns the graph as an SVG drawing, without another program.

    Layers with weights are blue, inputs gray; a frame surrounds the layers of a nested network. An
    arrow back to an earlier box is a later call of a shared layer.

    Args:
        network: a network with a graph.
        shapes: whether the boxes show output shapes.
        nested: whether the layers of nested networks are drawn.
        details: what the boxes show; None for names, classes and `shapes`.
        direction: direction of the arrows: "TB" for top to bottom, "LR", "BT" or "RL".
        shares: parts of a sum, such as times, by the path of the layer. A box shows its share as a
            number and as a color, and a frame the sum of its boxes.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> text = to_svg(fk.Model(x, fk.layers.Dense(2)(x)))
        >>> text[:4], text.count("<rect"), text.count("<path")
        ('<svg', 2, 1)
    """
    drawer = _Drawer(details or Details(shapes), nested, direction, shares)
    body, width, height = drawer.draw(network, "")
    label = html.escape(f"Graph of {network._where}", quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{label}" '
        f'font-family="monospace" font-size="12" fill="none" stroke="currentColor">{body}</svg>'
    )


@dataclasses.dataclass(frozen=True)
class _Drawer:
    """The options of a drawing; the fields are arguments of `to_svg`."""

    details: Details
    nested: bool
    direction: str
    shares: Mapping[str, float]

    def draw(self, network: Network, outer: str) -> tuple[str, float, float]:
        """Returns elements, width and height of the drawing of a network.

        Args:
            outer: the path of the network, with "/" at its end.
        """
        graph: Any = network._require_graph("A picture")
        # deepest layers first, as the data flow
        levels = list(reversed(graph.layers_by_depth.values()))
        ranks = {name: rank for rank, level in enumerate(levels) for name in level}
        boxes, sizes = {}, {}
        for name in ranks:
            layer, lines = network.layers[name], list(box_lines(network, name, self.details))
            share = self._share(f"{outer}{name}")
            if share is not None:
                lines.append(f"{share:.1%}")
            inner = ("", 0.0, 0.0)
            if self.nested and getattr(layer, "graph", None) is not None:
                inner = self.draw(layer, f"{outer}{name}/")
            width = max([_CHARACTER * len(line) for line in lines]) + 2 * _PADDING
            height = _LINE * len(lines) + 2 * _PADDING
            boxes[name] = (layer, lines, inner, share)
            sizes[name] = (max(width, inner[1]), height + inner[2])
        layout = lay_out(sizes, ranks, dict.fromkeys(edges_of(graph)), self.direction)
        parts = [f'<path d="{path}"/>' for path in layout.paths]
        for name, (layer, lines, inner, share) in boxes.items():
            style = _style(layer, inner[0]) if share is None else self._shade(share, inner[0])
            parts.append(_box(lines, inner, layout.places[name], sizes[name], style))
        return "".join(parts), layout.width, layout.height

    def _share(self, path: str) -> float | None:
        """Returns the share of a layer and the layers inside of it; None without a share."""
        inside = [
            share
            for name, share in self.shares.items()
            if name == path or name.startswith(f"{path}/")
        ]
        return sum(inside) if inside else None

    def _shade(self, share: float, inner: str) -> str:
        if inner:
            return _FRAME
        return (
            f'fill="{_SHARE}" fill-opacity="{0.7 * share / (max(self.shares.values()) or 1):.3f}"'
        )


def _style(layer: Any, inner: str) -> str:
    if inner:
        return _FRAME
    if type(layer).__name__ == "InputLayer":
        return f'fill="{_INPUT}" fill-opacity="0.2"'
    if jax.tree.leaves(layer) or not layer.built:
        return f'fill="{_WEIGHTS}" fill-opacity="0.15"'
    return ""


def _box(
    lines: Sequence[str],
    inner: tuple[str, float, float],
    place: tuple[float, float],
    size: tuple[float, float],
    style: str,
) -> str:
    (x, y), (width, height) = place, size
    left, top = x - width / 2, y - height / 2
    style = f'rx="4" {style}'.rstrip()
    parts = [
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'
    ]
    for number, line in enumerate(lines):
        weight = ' font-weight="bold"' if number == 0 else ""
        parts.append(
            f'<text text-anchor="middle" fill="currentColor" stroke="none" x="{x:.1f}" '
            f'y="{top + _PADDING + _LINE * number + 11:.1f}"{weight}>{html.escape(line)}</text>'
        )
    if inner[0]:
        shift = f"{x - inner[1] / 2:.1f} {top + height - inner[2]:.1f}"
        parts.append(f'<g transform="translate({shift})">{inner[0]}</g>')
    return "".join(parts)
