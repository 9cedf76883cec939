"""The first difference between the static halves of two layers, for error messages of JAX.

JAX rejects pytrees of different structure with a message that prints both static halves. The printed
form of a skeleton therefore contains the first difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fkeras.engine.tree.walk import layers_in

_WIDTH = 60
# arguments before outputs: outputs differ as a consequence
_CALL_FIELDS = ("layer", "args", "options", "training", "mask_rule", "value", "outputs", "masks")


def first_difference(one: Any, two: Any, path: str = "") -> str | None:
    """Returns the first difference of two skeletons, described for `one`; None for equal ones.

    Args:
        one: a `Skeleton`.
        two: another `Skeleton`.
        path: the path of both in the outermost layer, for the message.

    Example:
        >>> import fkeras as fk
        >>> from fkeras.engine.tree.skeleton import skeleton_of
        >>> one, two = (skeleton_of(fk.layers.Dense(units)) for units in (4, 5))
        >>> first_difference(one, two), first_difference(two, one)
        ('units=4', 'units=5')
    """
    if one == two:
        return None
    where = f"{path!r}: " if path else ""
    if one.cls is not two.cls:
        return f"{where}a {one.cls.__name__}"
    # missing children before fields: a model's graph differs whenever its layers do
    mine, theirs = (dict(_children(skeleton)) for skeleton in (one, two))
    if set(mine) != set(theirs):
        return where + _missing(mine, theirs)
    # dict.fromkeys removes duplicates and keeps the order of declaration
    for name in dict.fromkeys((*one.static, *two.static)):
        if name == "graph" or one.static.get(name) == two.static.get(name):
            continue
        if name == "_built":
            return f"{where}{'built' if one.static.get(name) else 'not built'}"
        return f"{where}{name}={_short(one.static.get(name))}"
    return (
        _in_children(mine, theirs, path)
        or _in_graphs(one.static.get("graph"), two.static.get("graph"), where)
        or f"{where}weights {', '.join(one.weights) or 'none'}"
    )


def _missing(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    more = [repr(name) for name in mine if name not in theirs]
    less = [repr(name) for name in theirs if name not in mine]
    return f"with {', '.join(more[:3])}" if more else f"without {', '.join(less[:3])}"


def _in_children(mine: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> str | None:
    for name, child in mine.items():
        below = f"{path}/{name}" if path else name
        difference = first_difference(child, theirs[name], below)
        if difference is not None:
            return difference
    return None


def _children(skeleton: Any) -> Iterator[tuple[str, Any]]:
    for field, tree in skeleton.children.items():
        yield from layers_in(tree, "" if field == skeleton.transparent_field else field)


def _in_graphs(one: Any, two: Any, where: str) -> str | None:
    if one == two:
        return None
    if one is None or two is None:
        return f"{where}{'no graph yet' if one is None else 'a graph'}"
    if len(one.calls) != len(two.calls):
        return f"{where}a graph of {len(one.calls)} calls"
    for number, (mine, theirs) in enumerate(zip(one.calls, two.calls, strict=True)):
        for name in _CALL_FIELDS:
            value = getattr(mine, name)
            if value != getattr(theirs, name):
                shown = ", ".join(map(str, value)) if name == "outputs" else _short(value)
                return f"{where}call {number}, of {mine.layer!r}, with {name} {shown}"
    return f"{where}a graph with inputs {_short(one.inputs)} and outputs {_short(one.outputs)}"


def _short(value: Any) -> str:
    text = getattr(value, "__name__", None) if callable(value) else None
    text = text if isinstance(text, str) else repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
