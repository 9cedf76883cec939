"""Selectors: layers by path, pattern or function, and calls and tensors by coordinates.

All transforms take the same selectors. A path is that of `fk.engine.sublayers`, such as
"encoder/block3". A pattern is a path with `*`, `?` or `[...]`, and `*` also matches "/".
"""

from __future__ import annotations

import collections
import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import suggest
from fkeras.engine.migration_hints.hints import hints
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import join_path

#: `(path, node)` or `(path, node, tensor)`: a call of a layer, or an output of the call
Coordinates: TypeAlias = tuple[str, int] | tuple[str, int, int]
#: a path, a pattern, or a function of path and layer
Selector: TypeAlias = str | Callable[[str, Layer], bool]
#: a selector of layers, or several, each of which must match
Pattern: TypeAlias = Selector | Sequence[Selector]
#: a selector of layers, or coordinates
Place: TypeAlias = Selector | Coordinates

_WILDCARDS = frozenset("*?[")


class Selected(NamedTuple):
    """A selected layer, call or tensor.

    Attributes:
        path: the path of the layer.
        node: the index of the call among the layer's calls; None for all calls.
        tensor: the index of the call's output; None for all outputs.
    """

    path: str
    node: int | None = None
    tensor: int | None = None

    def __str__(self) -> str:
        parts = [repr(self.path), *(str(i) for i in self[1:] if i is not None)]
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def matcher(pattern: Pattern, where: str = "fk.freeze") -> Callable[[str, Layer], bool]:
    """Returns a function that returns whether a path and its layer match a pattern.

    Args:
        where: the transform, for messages.

    Raises:
        TypeError: for a layer, a class of layers, and coordinates.
    """
    if isinstance(pattern, Layer):
        name = pattern.name or "name"
        raise TypeError(
            f"pattern: expected a path of a layer, received the layer {pattern._where}. Pass its name: "
            f"`model = {where}(model, {name!r})`."
        )
    if isinstance(pattern, type):
        raise TypeError(
            f"pattern: expected a path of a layer, received the class {pattern.__name__}. Select by "
            f"class with a function: `model = {where}(model, lambda path, layer: isinstance(layer, "
            f"layers.{pattern.__name__}))`."
        )
    if callable(pattern):
        return pattern
    if isinstance(pattern, str):
        # fnmatchcase: paths are case-sensitive on every system
        return lambda path, layer: path == pattern or fnmatch.fnmatchcase(path, pattern)
    if _is_coordinates(pattern):
        raise TypeError(
            f"pattern: expected a path of a layer, received the coordinates {pattern!r} of a call. A "
            f"layer has one configuration for all calls: pass {pattern[0]!r}."
        )
    if not isinstance(pattern, Sequence):
        raise TypeError(
            f"pattern: expected a path such as 'block1*', a list of paths, or a function of path and "
            f"layer, received {pattern!r}."
        )
    matchers = [matcher(one, where) for one in pattern]
    return lambda path, layer: any(matches(path, layer) for matches in matchers)


def require_match(
    model: Layer,
    pattern: Pattern,
    layers: Iterable[tuple[str, Layer]] | None = None,
    hint: Callable[[Selector], str] = lambda selector: "",
) -> None:
    """Raises an error if the pattern, or a selector of a list, matches no layer.

    Args:
        layers: the paths and layers that may match; None for the layers inside `model`.
        hint: returns the end of the message for a selector without a match.
    """
    pairs = [(path, layer) for path, layer in layers or sublayers(model) if path]
    matcher(pattern)  # raises for a value that is no pattern
    selectors = [pattern] if isinstance(pattern, str) or callable(pattern) else pattern
    for selector in selectors:
        matches = matcher(selector)
        if not any(matches(path, layer) for path, layer in pairs):
            raise ValueError(no_match(model, selector) + hint(selector))


def no_match(model: Layer, pattern: object) -> str:
    """Returns the message for a selector that matches no layer of `model`."""
    paths = [path for path, _ in sublayers(model) if path]
    patterns = {path: f"*/{path.rpartition('/')[2]}" for path in paths if "/" in path}
    counts = collections.Counter(patterns.values())
    # layers of one name in several blocks are listed as one pattern
    listed = [*dict.fromkeys(patterns[p] if counts[patterns.get(p, "")] > 1 else p for p in paths)]
    text = pattern if isinstance(pattern, str) else str(pattern)
    other = hints("layer of transformers").get(text.strip("*/."), "").strip("`")
    near = (
        f" Write {other!r}."
        if other in patterns.values()
        else suggest(text.strip("*"), [*listed, *paths])
    )
    return (
        f"{model._where}: no layer matches {text!r}.{near} Its "
        f"layers are: {', '.join(listed[:12])}{', ...' if len(listed) > 12 else ''}."
    )


def select(model: Layer, place: Place, where: str, *, opened: bool = False) -> tuple[Selected, ...]:
    """Returns what a selector selects in a model, in the order of `fk.engine.sublayers`.

    Layers inside of a selected layer are not selected again. A pattern with wildcards selects no
    inputs.

    Args:
        where: the transform, for messages.
        opened: whether coordinates count the calls in the graph of the opened model.

    Raises:
        TypeError: for a value that is no selector.
        ValueError: if nothing matches.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> model = fk.Model(x, fk.layers.Dense(2, name="b")(fk.layers.Dense(3, name="a")(x)))
        >>> [selected.path for selected in select(model, "*", "probe")], str(select(model, ("a", 0), "")[0])
        (['a', 'b'], "('a', 0)")
    """
    if _is_coordinates(place):
        path, node, *tensor = cast(Any, place)
        one = Selected(path, node, *tensor)
        if not (opened and any(path == one.path for path, _ in sublayers(model) if path)):
            _check_call(model, one, where)
        return (one,)
    matches = matcher(cast(Pattern, place), where)
    has_wildcards = isinstance(place, str) and not _WILDCARDS.isdisjoint(place)
    selected: list[Selected] = []
    for path, layer in sublayers(model):
        if not path or (has_wildcards and path != place and isinstance(layer, InputLayer)):
            continue
        if any(path.startswith(f"{outer.path}/") for outer in selected[-1:]):
            continue
        if matches(path, layer):
            selected.append(Selected(path))
    if not selected:
        raise ValueError(no_match(model, place))
    return tuple(selected)


def select_all(
    model: Layer, places: Place | Sequence[Place], where: str, *, opened: bool = False
) -> tuple[Selected, ...]:
    """Returns what a selector or a list of selectors selects; arguments as for `select`."""
    listed = list(places) if isinstance(places, list) else [places]
    return tuple(
        one for place in listed for one in select(model, cast(Place, place), where, opened=opened)
    )


def _check_call(model: Layer, one: Selected, where: str) -> None:
    if not any(path == one.path for path, _ in sublayers(model) if path):
        raise ValueError(no_match(model, one.path))
    assert one.node is not None
    for path, layer in sublayers(model):
        graph = getattr(layer, "graph", None)
        if graph is None:
            continue
        for name in graph.layers:
            if join_path(path, name) == one.path:
                graph.call_number(name, one.node)  # raises for an unknown call
                return
    raise ValueError(
        f"{where}: {one.path!r} is called by the layer around it, not by a graph, so it has no "
        f"coordinates. Pass the path {one.path!r}."
    )


def _is_coordinates(place: object) -> bool:
    return (
        isinstance(place, tuple)
        and len(place) in (2, 3)
        and isinstance(place[0], str)
        and all(isinstance(index, int) and not isinstance(index, bool) for index in place[1:])
    )
