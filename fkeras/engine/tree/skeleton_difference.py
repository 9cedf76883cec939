"""The first difference between the static halves of two layers, for error messages of JAX.

JAX rejects pytrees of different structure with a message that prints both static halves. The printed
form of a skeleton therefore contains the first difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fkeras.engine.tree.walk import layers_in
from fkeras.engine.values.annotations import Graph, Skeleton

_WIDTH = 60
# arguments before outputs: outputs differ as a consequence
_CALL_FIELDS = ("layer", "args", "options", "training", "mask_rule", "value", "outputs", "masks")


def first_difference(first: Skeleton, second: Skeleton, path: str = "") -> str | None:
    """Returns the first difference of two skeletons, described for `first`; None for equal ones.

    Args:
        first: a `Skeleton`.
        second: another `Skeleton`.
    """
    if first == second:
        return None
    where = f"{path!r}: " if path else ""
    if first.cls is not second.cls:
        return f"{where}a {first.cls.__name__}"
    # missing children before fields: a model's graph differs whenever its layers do
    children, other_children = (dict(_children(skeleton)) for skeleton in (first, second))
    if set(children) != set(other_children):
        return where + _missing(children, other_children)
    # dict.fromkeys removes duplicates and keeps the order of declaration
    for name in dict.fromkeys((*first.static, *second.static)):
        if name == "graph" or first.static.get(name) == second.static.get(name):
            continue
        if name == "_built":
            return f"{where}{'built' if first.static.get(name) else 'not built'}"
        return f"{where}{name}={_short_repr(first.static.get(name))}"
    return (
        _in_children(children, other_children, path)
        or _in_graphs(first.static.get("graph"), second.static.get("graph"), where)
        or f"{where}weights {', '.join(first.weights) or 'none'}"
    )


def _missing(children: Mapping[str, Any], other_children: Mapping[str, Any]) -> str:
    unexpected = [repr(name) for name in children if name not in other_children]
    missing = [repr(name) for name in other_children if name not in children]
    return (
        f"with {', '.join(unexpected[:3])}" if unexpected else f"without {', '.join(missing[:3])}"
    )


def _in_children(
    children: Mapping[str, Any], other_children: Mapping[str, Any], path: str
) -> str | None:
    for name, child in children.items():
        child_path = f"{path}/{name}" if path else name
        difference = first_difference(child, other_children[name], child_path)
        if difference is not None:
            return difference
    return None


def _children(skeleton: Skeleton) -> Iterator[tuple[str, Any]]:
    for field, tree in skeleton.children.items():
        yield from layers_in(tree, "" if field == skeleton._transparent_field else field)


def _in_graphs(first: Graph | None, second: Graph | None, where: str) -> str | None:
    if first == second:
        return None
    if first is None or second is None:
        return f"{where}{'no graph yet' if first is None else 'a graph'}"
    if len(first.calls) != len(second.calls):
        return f"{where}a graph of {len(first.calls)} calls"
    for number, (call, other_call) in enumerate(zip(first.calls, second.calls, strict=True)):
        for name in _CALL_FIELDS:
            value = getattr(call, name)
            if value != getattr(other_call, name):
                text = ", ".join(map(str, value)) if name == "outputs" else _short_repr(value)
                return f"{where}call {number}, of {call.layer!r}, with {name} {text}"
    return f"{where}a graph with inputs {_short_repr(first.inputs)} and outputs {_short_repr(first.outputs)}"


def _short_repr(value: object) -> str:
    text = getattr(value, "__name__", None) if callable(value) else None
    text = text if isinstance(text, str) else repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
