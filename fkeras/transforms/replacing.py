"""Replaces layers inside a model, and matches layers by patterns of their paths."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import suggest
from fkeras.engine.tree.sublayers import replace_children, sublayers

Pattern = str | tuple[str, ...] | list[str] | Callable[[str, Layer], bool]


def matcher(pattern: Pattern) -> Callable[[str, Layer], bool]:
    """Returns a function that returns whether a path and its layer match a pattern.

    Raises:
        TypeError: for a layer or a class of layers.
    """
    if isinstance(pattern, Layer):
        name = pattern.name or "name"
        raise TypeError(
            f"pattern: expected a path of a layer, received the layer {pattern._where}. Pass its name: "
            f"`model = fk.freeze(model, {name!r})`."
        )
    if isinstance(pattern, type):
        raise TypeError(
            f"pattern: expected a path of a layer, received the class {pattern.__name__}. Select by "
            "class with a function: `model = fk.freeze(model, lambda path, layer: isinstance(layer, "
            f"layers.{pattern.__name__}))`."
        )
    if callable(pattern):
        return pattern
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    # fnmatchcase: paths are case-sensitive on every system
    return lambda path, layer: any(fnmatch.fnmatchcase(path, p) for p in patterns)


def require_match(model: Layer, pattern: Pattern) -> None:
    """Raises an error if no layer inside `model` matches."""
    matches = matcher(pattern)
    paths = [path for path, layer in sublayers(model) if path]
    if not any(matches(path, layer) for path, layer in sublayers(model) if path):
        pattern_text = pattern if isinstance(pattern, str) else str(pattern)
        raise ValueError(
            f"{model._where}: no layer matches {pattern_text!r}.{suggest(pattern_text.strip('*'), paths)} Its "
            f"layers are: {', '.join(paths[:12])}{', ...' if len(paths) > 12 else ''}."
        )


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
