"""A layer as a pytree: a flat tuple of leaves, and everything else as one static value.

The leaves of a layer are its own weights and then those of its children, in order. The static
half is a `Skeleton`, which hashes once and compares by identity first, because JAX compares it at
every dispatch. A layer with children is put together again only when somebody asks for them: a
training step that carries a model of 500 weights unflattens one object, not 500.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from fkeras.engine.tree.skeleton_difference import first_difference
from fkeras.engine.values.frozen import FrozenDict

WEIGHT = "fkeras.weight"
CACHES = ("_cut", "_leaves", "_opened", "_skeleton")


@dataclasses.dataclass(frozen=True)
class WeightRoles:
    """Names of a layer's weights whose `weight()` declaration departs from the default.

    Attributes:
        untrained: weights declared non-trainable.
        overwritten: weights overwritten by their gradient, see `weight`.
        fixed_dtype: weights with a dtype of their own, which no dtype policy casts.
    """

    untrained: tuple[str, ...] = ()
    overwritten: tuple[str, ...] = ()
    fixed_dtype: tuple[str, ...] = ()


class Skeleton:
    """The static half of a layer.

    Attributes:
        cls: the layer's class.
        static: its configuration by field.
        weights: the names of its own weights.
        children: by field, the tree of its children's skeletons.
        names: a path for each leaf, such as "cell/kernel".
        places: the number of each leaf by its path.
        trainable: for each leaf, whether it is trained: of a trainable layer, and no weight that is
            declared otherwise.
        own: how many of the leaves are its own weights.
    """

    __slots__ = (
        *("__weakref__", "_derived", "_hash", "_unequal", "children", "cls", "names", "own"),
        *("places", "static", "trainable", "weights"),
    )

    def __init__(self, cls: type, static: dict, weights: tuple, children: dict):
        self.cls, self.static, self.weights, self.children = cls, static, weights, children
        self.own = len(weights)
        names = list(weights)
        apart = (*cls.weight_roles.untrained, *cls.weight_roles.overwritten)
        trainable = [static["trainable"] and name not in apart for name in weights]
        for prefix, child in walk(children, cls.transparent_field):
            names.extend(f"{prefix}/{name}" for name in child.names)
            trainable.extend(child.trainable)
        self.names, self.trainable = tuple(names), tuple(trainable)
        self.places = {name: place for place, name in enumerate(self.names)}
        self._hash = self._unequal = None
        self._derived: dict[Any, Any] = {}

    def derive(self, function: Any) -> Any:
        """`function(self)`, computed once for each skeleton object.

        A cache that compares skeletons would cost each lookup a comparison of all their fields.

        Args:
            function: a function of a module; every new function object is computed again.
        """
        if function not in self._derived:
            self._derived[function] = function(self)
        return self._derived[function]

    def __hash__(self) -> int:
        if self._hash is None:
            static = frozenset(self.static.items())
            self._hash = hash((self.cls, static, self.weights, tuple(self.children.items())))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Skeleton):
            return False
        equal = (
            hash(self) == hash(other)
            and self.cls is other.cls
            and self.static == other.static
            and self.weights == other.weights
            and self.children == other.children
        )
        if not equal:  # JAX compares two, and then prints both
            self._unequal, other._unequal = weakref.ref(other), weakref.ref(self)
        return equal

    def __reduce__(self):
        return (Skeleton, (self.cls, self.static, self.weights, self.children))

    def __repr__(self) -> str:
        text = f"<Skeleton {self.cls.__name__}, {len(self.names)} leaves"
        other = None if self._unequal is None else self._unequal()
        difference = None if other is None else first_difference(self, other)
        return (
            f"{text}>" if difference is None else f"{text}; differs from the other by {difference}>"
        )

    def join(self, leaves: tuple) -> Any:
        """The layer of these leaves."""
        layer = object.__new__(self.cls)
        attributes = layer.__dict__
        attributes.update(self.static)
        attributes["_skeleton"] = self
        attributes["_leaves"] = leaves
        for name, leaf in zip(self.weights, leaves, strict=False):
            attributes[name] = leaf
        for name in self.children:
            if hasattr(self.cls, name):  # a class default would hide that it is still missing
                attributes[name] = self.child(name, leaves)
        return layer

    def child(self, field: str, leaves: tuple) -> Any:
        """The children in `field`, put together of `leaves`."""
        start = self.own
        for name, tree in self.children.items():
            size = sum(len(s.names) for _, s in walk_tree(tree, ""))
            if name == field:
                return _join_tree(tree, iter(leaves[start : start + size]))
            start += size
        raise KeyError(field)


def is_layer(value: Any) -> bool:
    """Whether `value` is a layer; by its class, which this file does not know."""
    return hasattr(type(value), "transparent_field")


def walk_tree(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The skeletons (or layers) in a child field, with their paths."""
    if isinstance(tree, tuple):
        for index, part in enumerate(tree):
            yield from walk_tree(part, f"{path}/{index}" if path else str(index))
    elif isinstance(tree, Mapping):
        for key, part in tree.items():
            yield from walk_tree(part, f"{path}/{key}" if path else str(key))
    elif is_layer(tree) or isinstance(tree, Skeleton):
        yield path, tree


def walk(children: Mapping[str, Any], transparent: str | None) -> Iterator[tuple[str, Any]]:
    """The skeletons (or layers) of all child fields; a transparent field adds nothing to paths."""
    for field, tree in children.items():
        yield from walk_tree(tree, "" if field == transparent else field)


def _join_tree(tree: Any, leaves: Iterator) -> Any:
    if isinstance(tree, Skeleton):
        return tree.join(tuple(next(leaves) for _ in tree.names))
    if isinstance(tree, tuple):
        return tuple(_join_tree(t, leaves) for t in tree)
    if isinstance(tree, Mapping):
        return tree.like({k: _join_tree(t, leaves) for k, t in tree.items()})
    return tree


def _split_tree(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_split_tree(v) for v in value)
    if isinstance(value, Mapping):
        parts = {k: _split_tree(v) for k, v in value.items()}
        return value.like(parts) if isinstance(value, FrozenDict) else FrozenDict(parts)
    return skeleton_of(value) if is_layer(value) else value


def holds_layer(value: Any) -> bool:
    """Whether a field's value is a layer, or a tuple or dictionary with layers in it."""
    return next(walk_tree(value, ""), None) is not None


def map_children(layer: Any, change: Callable[[str, Any], Any], path: str = "") -> dict[str, Any]:
    """The fields of children, with `change(path, child)` in the place of each child.

    Args:
        layer: the layer.
        change: called with each child and its path.
        path: the path of the layer.

    Example:
        >>> import fkeras as fk
        >>> layer = fk.layers.TimeDistributed(fk.layers.Dense(2))
        >>> map_children(layer, lambda path, child: child.replace(name=path))
        {'layer': Dense(2, name='layer')}
    """

    def inside(value: Any, at: str) -> Any:
        if is_layer(value):
            return change(at, value)
        if isinstance(value, tuple):
            return tuple(inside(v, f"{at}/{i}" if at else str(i)) for i, v in enumerate(value))
        if isinstance(value, Mapping):
            made = {k: inside(v, f"{at}/{k}" if at else str(k)) for k, v in value.items()}
            return FrozenDict(made)
        return value

    found = {}
    for field in skeleton_of(layer).children:
        prefix = "" if field == layer.transparent_field else field
        at = f"{path}/{prefix}" if path and prefix else path or prefix
        found[field] = inside(getattr(layer, field), at)
    return found


def same_leaf(a: Any, b: Any) -> bool:
    """Whether two leaves are equal arrays of one dtype, or both None; a tracer equals itself."""
    if a is b:
        return True
    arrays = (
        isinstance(a, jax.Array | np.ndarray | np.generic),
        isinstance(b, jax.Array | np.ndarray | np.generic),
    )
    if not all(arrays):  # shapes, labels: what jax.tree.map made of the arrays
        return not any(arrays) and _same_other(a, b)
    if a is None or b is None or isinstance(a, Tracer) or isinstance(b, Tracer):
        return False
    if getattr(a, "shape", 0) != getattr(b, "shape", 0):
        return False
    if getattr(a, "dtype", 0) != getattr(b, "dtype", 0):
        return False
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))


def _same_other(a: Any, b: Any) -> bool:
    one, two = jax.tree.structure(a), jax.tree.structure(b)
    if jax.tree_util.treedef_is_leaf(one) or jax.tree_util.treedef_is_leaf(two):
        return type(a) is type(b) and bool(a == b)
    return one == two and all(map(same_leaf, jax.tree.leaves(a), jax.tree.leaves(b)))


def skeleton_of(layer: Any) -> Skeleton:
    """The static half of `layer`, made once for each object."""
    known = layer.__dict__.get("_skeleton")
    if known is not None:
        return known
    static, weights, children = {"_built": layer.__dict__.get("_built", False)}, [], {}
    for field in dataclasses.fields(layer):
        if WEIGHT in field.metadata:
            weights.append(field.name)
            continue
        value = getattr(layer, field.name)
        allowed = type(layer).child_fields
        if (allowed is None or field.name in allowed) and holds_layer(value):
            children[field.name] = _split_tree(value)
        else:
            static[field.name] = value
    skeleton = Skeleton(type(layer), static, tuple(weights), children)
    layer.__dict__["_skeleton"] = skeleton
    return skeleton


def leaves_of(layer: Any) -> tuple:
    """The leaves of `layer`: a slot for each weight, None where there is none."""
    known = layer.__dict__.get("_leaves")
    if known is not None:
        return known
    skeleton = skeleton_of(layer)
    leaves = [getattr(layer, name) for name in skeleton.weights]
    for _, child in walk({f: getattr(layer, f) for f in skeleton.children}, None):
        leaves.extend(leaves_of(child))
    layer.__dict__["_leaves"] = tuple(leaves)
    return layer.__dict__["_leaves"]


def flatten(layer: Any) -> tuple[tuple, Skeleton]:
    return leaves_of(layer), skeleton_of(layer)


def flatten_with_keys(layer: Any) -> tuple[list, Skeleton]:
    skeleton = skeleton_of(layer)
    keys = (jax.tree_util.GetAttrKey(name) for name in skeleton.names)
    return list(zip(keys, leaves_of(layer), strict=True)), skeleton


def unflatten(skeleton: Skeleton, leaves: Any) -> Any:
    return skeleton.join(tuple(leaves))


def register(cls: Any) -> None:
    """Registers a layer class as a pytree and sets its `weight_roles`."""
    options = {f.name: f.metadata[WEIGHT] for f in dataclasses.fields(cls) if WEIGHT in f.metadata}
    cls.weight_roles = WeightRoles(
        untrained=tuple(name for name, option in options.items() if not option["trainable"]),
        overwritten=tuple(name for name, option in options.items() if option["overwritten"]),
        fixed_dtype=tuple(name for name, option in options.items() if option["dtype"] is not None),
    )
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
