"""Nested lists, tuples and dictionaries as hashable values with numbered places for tensors.

`jax.tree` flattens such trees too, but its treedefs go neither to JSON nor into an error message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Ref:
    """The place of tensor number `index`."""

    index: int


@dataclasses.dataclass(frozen=True)
class Branch:
    """A list, tuple or dictionary whose children are references, branches or static values."""

    kind: str
    keys: tuple
    children: tuple


def freeze(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """The hashable form of `tree`; each leaf is replaced by `leaf(value)`.

    Raises:
        TypeError: for a pytree that is no list, tuple, dictionary or None.
    """
    if isinstance(tree, Mapping):
        keys = tuple(tree)
        return Branch("dict", keys, tuple(freeze(tree[k], leaf) for k in keys))
    if isinstance(tree, list):
        return Branch("list", (), tuple(freeze(v, leaf) for v in tree))
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return Branch("tuple", (), tuple(freeze(v, leaf) for v in tree))
    return leaf(tree)


def thaw(template: Any, leaf: Callable[[Any], Any]) -> Any:
    """The tree that `freeze` froze; each leaf is replaced by `leaf(value)`."""
    if not isinstance(template, Branch):
        return leaf(template)
    children = [thaw(c, leaf) for c in template.children]
    if template.kind == "dict":
        return dict(zip(template.keys, children, strict=True))
    return children if template.kind == "list" else tuple(children)


def map_leaves(template: Any, leaf: Callable[[Any], Any]) -> Any:
    """Returns a frozen tree of the same structure; each leaf is replaced by `leaf(value)`.

    Example:
        >>> map_leaves(freeze([Ref(0), 2], lambda v: v), lambda v: v if v == 2 else Ref(1)).children
        (Ref(index=1), 2)
    """
    if not isinstance(template, Branch):
        return leaf(template)
    children = tuple(map_leaves(child, leaf) for child in template.children)
    return Branch(template.kind, template.keys, children)


def leaves(template: Any) -> Iterator[Any]:
    """The leaves of a frozen tree, from left to right."""
    if isinstance(template, Branch):
        for child in template.children:
            yield from leaves(child)
    else:
        yield template


def visits(template: Any) -> list[int]:
    """The numbers of a frozen tree's tensors in Keras's order: the keys of dictionaries sorted.

    Its files number outputs and order layers so.
    """
    if isinstance(template, Ref):
        return [template.index]
    if not isinstance(template, Branch):
        return []
    children: Any = template.children
    if template.kind == "dict":
        places = sorted(range(len(children)), key=lambda i: str(template.keys[i]))
        children = [children[i] for i in places]
    return [index for child in children for index in visits(child)]


def fill(template: Any, values: Any) -> Any:
    """The tree with `values[i]` in the place of each `Ref(i)`."""
    return thaw(template, lambda v: values[v.index] if isinstance(v, Ref) else v)


def renumber(template: Any, numbers: Sequence[int]) -> Any:
    """The frozen tree with `Ref(numbers[i])` in the place of each `Ref(i)`.

    Example:
        >>> renumber(Branch("tuple", (), (Ref(0), "axis")), [7])
        Branch(kind='tuple', keys=(), children=(Ref(index=7), 'axis'))
    """
    return map_leaves(
        template, lambda leaf: Ref(numbers[leaf.index]) if isinstance(leaf, Ref) else leaf
    )


def number(tree: Any) -> tuple[Any, list[Any]]:
    """`(template, leaves)`: the tree with its leaves numbered; None is no leaf."""
    found: list[Any] = []

    def place(value: Any) -> Any:
        if value is None:
            return None
        found.append(value)
        return Ref(len(found) - 1)

    return freeze(tree, place), found


def match(template: Any, tree: Any) -> list[Any] | None:
    """The leaves of `tree` in the order of `template`'s references, None where they differ."""
    if not isinstance(template, Branch):
        return [tree] if isinstance(template, Ref) else []
    if template.kind == "dict":
        if not isinstance(tree, Mapping) or set(tree) != set(template.keys):
            return None
        items = [tree[k] for k in template.keys]
    elif isinstance(tree, list | tuple) and len(tree) == len(template.children):
        items = list(tree)
    else:
        return None
    found: list[Any] = []
    for child, item in zip(template.children, items, strict=True):
        part = match(child, item)
        if part is None:
            return None
        found.extend(part)
    return found


def draw(template: Any, name: Callable[[int], str] = str) -> str:
    """The tree as text, for messages: `[b, c]`, `{'left': b}`."""
    if not isinstance(template, Branch):
        return name(template.index) if isinstance(template, Ref) else repr(template)
    parts = [draw(c, name) for c in template.children]
    if template.kind == "dict":
        pairs = zip(template.keys, parts, strict=True)
        return "{" + ", ".join(f"{k!r}: {p}" for k, p in pairs) + "}"
    return ("[{}]" if template.kind == "list" else "({})").format(", ".join(parts))


def any_leaf(tree: Any, test: Callable[[Any], bool]) -> bool:
    """Whether some leaf of the pytree passes `test`."""
    return any(test(leaf) for leaf in jax.tree.leaves(tree))
