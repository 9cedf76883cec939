"""Replaces layers inside a layer by a function of path and layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fkeras.engine.layer.layer import Layer
from fkeras.engine.tree.sublayers import replace_children


def replace_layers(
    layer: Layer, change: Callable[[str, Layer], Layer | None], path: str = ""
) -> Any:
    """Returns a copy with other layers in the places of some.

    Args:
        layer: a layer or model.
        change: called with a path and the layer, `layer` itself first; returns the new layer, or
            None to visit the layers inside.
        path: the path of `layer`.

    Example:
        >>> import fkeras as fk
        >>> model = fk.Sequential([fk.Input((4,)), fk.layers.Dense(2, name="head")])
        >>> other = fk.engine.replace_layers(
        ...     model, lambda path, layer: layer.replace(units=3) if path == "head" else None)
        >>> other.layers["head"].units
        3
    """
    other = change(path, layer)
    if other is not None:
        return other
    return replace_children(layer, lambda at, child: replace_layers(child, change, at), path)
