"""Nested lists, tuples and dictionaries as hashable templates with numbered places for tensors.

`jax.tree` flattens such trees too, but a treedef can be written neither to JSON nor in an error message.
`FrozenDict` and tuples, the frozen configuration values, cannot serve as templates: they lose the
difference between lists and tuples and ignore the order of keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.values.annotations import Leaf, Template, Tree
from fkeras.engine.values.frozen import ArrayConstant, KeyConstant
from fkeras.engine.values.spec import argument_specs
from fkeras.engine.values.values_by_call import ValuesByCall


@dataclasses.dataclass(frozen=True)
class Ref:
    """The place of tensor number `index` in a template."""

    index: int


@dataclasses.dataclass(frozen=True)
class Branch:
    """A list, tuple or dictionary in a template; children are references, branches or static values.

    Attributes:
        kind: "list", "tuple" or "dict".
        keys: the keys of a dictionary.
        children: the parts, for a dictionary in the order of `keys`.
        by_call: whether the dictionary is a `ValuesByCall`.
    """

    kind: str
    keys: tuple
    children: tuple
    by_call: bool = False


def freeze(tree: Tree, leaf: Callable[[Any], Any]) -> Template:
    """Returns the template of `tree`; each leaf is replaced by `leaf(value)`."""
    if isinstance(tree, Mapping):
        keys = tuple(tree)
        children = tuple(freeze(tree[k], leaf) for k in keys)
        return Branch("dict", keys, children, isinstance(tree, ValuesByCall))
    if isinstance(tree, list):
        return Branch("list", (), tuple(freeze(v, leaf) for v in tree))
    # a named tuple is a leaf: JSON and Keras's files have no form for its class
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return Branch("tuple", (), tuple(freeze(v, leaf) for v in tree))
    return leaf(tree)


def thaw(template: Template, leaf: Callable[[Any], Any]) -> Tree:
    """Returns the tree of a template, the inverse of `freeze`; each leaf is replaced by `leaf(value)`."""
    if not isinstance(template, Branch):
        return leaf(template)
    children = [thaw(c, leaf) for c in template.children]
    if template.kind == "dict":
        kind = ValuesByCall if template.by_call else dict
        return kind(zip(template.keys, children, strict=True))
    return children if template.kind == "list" else tuple(children)


def map_leaves(template: Template, leaf: Callable[[Any], Any]) -> Template:
    """Returns a template of the same structure; each leaf is replaced by `leaf(value)`."""
    if not isinstance(template, Branch):
        return leaf(template)
    children = tuple(map_leaves(child, leaf) for child in template.children)
    return Branch(template.kind, template.keys, children, template.by_call)


def leaves(template: Template) -> Iterator[Any]:
    """Yields the leaves of a template from left to right."""
    if isinstance(template, Branch):
        for child in template.children:
            yield from leaves(child)
    else:
        yield template


def visits(template: Template) -> list[int]:
    """Returns the numbers of a template's tensors in Keras's order: dictionaries by sorted keys.

    Keras's files number outputs and order layers in this order.
    """
    if isinstance(template, Ref):
        return [template.index]
    if not isinstance(template, Branch):
        return []
    children: Any = template.children
    if template.kind == "dict":
        # by text, since keys of several types do not compare
        sorted_indices = sorted(range(len(children)), key=lambda i: str(template.keys[i]))
        children = [children[i] for i in sorted_indices]
    return [index for child in children for index in visits(child)]


def fill(template: Template, values: Any) -> Tree:
    """Returns the tree of a template with `values[i]` in the place of each `Ref(i)`."""
    return thaw(template, lambda v: values[v.index] if isinstance(v, Ref) else v)


def _constant(array: np.ndarray) -> jax.Array:
    # constants keep their values while a program is traced: operations check indices and read masks
    with jax.ensure_compile_time_eval():
        return jnp.asarray(array)


def fill_arrays(
    template: Template, arrays: Any, constant: Callable[[Any], Any] = _constant
) -> Tree:
    """Returns the arguments of a recorded call with arrays in the places of the tensors."""

    def leaf(value: object) -> Leaf:
        if isinstance(value, Ref):
            return arrays[value.index]
        if isinstance(value, KeyConstant):
            return value.key
        return constant(value.array) if isinstance(value, ArrayConstant) else value

    return thaw(template, leaf)


def fill_specs(template: Template, specs: Any) -> tuple:
    """Returns the positional arguments of a recorded call as specs, as `build` and `init_state` take them."""
    return tuple(map(argument_specs, fill(template, specs)))


def fill_tensors(template: Template, tensors: Any) -> Tree:
    """Returns the arguments of a recorded call with symbolic tensors; constants stay NumPy arrays."""
    return fill_arrays(template, tensors, np.asarray)


def renumber(template: Template, numbers: Sequence[int]) -> Template:
    """Returns the template with `Ref(numbers[i])` in the place of each `Ref(i)`."""
    return map_leaves(
        template, lambda leaf: Ref(numbers[leaf.index]) if isinstance(leaf, Ref) else leaf
    )


def number(tree: Tree) -> tuple[Any, list[Any]]:
    """Returns `(template, leaves)`: the template with numbered leaves; None is no leaf."""
    numbered: list[Any] = []

    def place(value: object) -> Template:
        if value is None:
            return None
        numbered.append(value)
        return Ref(len(numbered) - 1)

    return freeze(tree, place), numbered


def match(template: Template, tree: Tree) -> list[Any] | None:
    """Returns the leaves of `tree` in the order of the template's references.

    Returns None if the structures differ; a list matches a tuple of the same length.
    """
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
    matched_leaves: list[Any] = []
    for child, item in zip(template.children, items, strict=True):
        child_leaves = match(child, item)
        if child_leaves is None:
            return None
        matched_leaves.extend(child_leaves)
    return matched_leaves


def draw(template: Template, name: Callable[[int], str] = str) -> str:
    """Returns a template as text, for messages: `[b, c]`, `{'left': b}`."""
    if not isinstance(template, Branch):
        return name(template.index) if isinstance(template, Ref) else repr(template)
    items = [draw(c, name) for c in template.children]
    if template.kind == "dict":
        pairs = zip(template.keys, items, strict=True)
        return "{" + ", ".join(f"{k!r}: {p}" for k, p in pairs) + "}"
    return ("[{}]" if template.kind == "list" else "({})").format(", ".join(items))
