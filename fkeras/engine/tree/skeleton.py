"""A layer as a pytree: a flat tuple of leaves, and everything else as one static value.

The leaves of a layer are its own weights, then those of its children, in order. The static half is
a `Skeleton`. JAX compares skeletons at every dispatch, so a skeleton caches its hash and compares by
identity first. Child layers are joined on first access: a training step that carries a model of 500
weights unflattens one object, not 500.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from fkeras.engine.tree.skeleton_difference import first_difference
from fkeras.engine.tree.walk import layers_in, map_layers
from fkeras.engine.values.annotations import Layer, Leaf

WEIGHT = "fkeras.weight"
CACHES = ("_cut", "_leaves", "_opened", "_origins", "_plain", "_skeleton")


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
        cls: the class of the layer.
        static: the configuration by field.
        weights: the names of the layer's own weights.
        children: the skeletons of child layers by field, in the tree of the field's value.
        names: the path of each leaf, such as "cell/kernel".
        places: the position of each leaf by path.
        trainable: whether each leaf is trained.
        own: the number of leaves that are the layer's own weights.
        spans: the start and end of the leaves of each child field.
    """

    __slots__ = (
        "__weakref__",
        "_derived",
        "_hash",
        "_shadowed",
        "_unequal",
        "children",
        "cls",
        "names",
        "own",
        "places",
        "spans",
        "static",
        "trainable",
        "weights",
    )

    def __init__(self, cls: type, static: dict, weights: tuple, children: dict):
        self.cls, self.static, self.weights, self.children = cls, static, weights, children
        self.own = len(weights)
        # the order of names is the order of the leaves: own weights, then the children by field
        names = list(weights)
        untrained_names = (*cls._weight_roles.untrained, *cls._weight_roles.overwritten)
        trainable = [static["trainable"] and name not in untrained_names for name in weights]
        self.spans: dict[str, tuple[int, int]] = {}
        for field, tree in children.items():
            start = len(names)
            for path, child in layers_in(tree, "" if field == cls._transparent_field else field):
                names.extend(f"{path}/{name}" for name in child.names)
                trainable.extend(child.trainable)
            self.spans[field] = start, len(names)
        self.names, self.trainable = tuple(names), tuple(trainable)
        self.places = {name: index for index, name in enumerate(self.names)}
        self._hash = self._unequal = None
        # `join` runs for every layer that leaves a compiled program, so this is computed once;
        # a class default would keep __getattr__ from joining these children at first use
        self._shadowed = tuple(name for name in children if hasattr(cls, name))
        self._derived: dict[Any, Any] = {}

    @property
    def _transparent_field(self) -> str | None:
        """The field of children that adds nothing to paths."""
        return self.cls._transparent_field

    def derive(self, function: Callable) -> Any:
        """Returns `function(self)`, computed once for each skeleton object.

        The cache belongs to the object: a cache by value would compare all fields at each lookup.

        Args:
            function: a function defined at module level; a new function object is computed anew.
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
            # hashes are cached, so most unequal skeletons need no comparison of fields
            hash(self) == hash(other)
            and self.cls is other.cls
            and self.static == other.static
            and self.weights == other.weights
            and self.children == other.children
        )
        if not equal:  # JAX prints both after the comparison: each message shows the difference
            self._unequal, other._unequal = weakref.ref(other), weakref.ref(self)
        return equal

    def __reduce__(self):
        # without caches: hashes of strings differ between processes
        return (Skeleton, (self.cls, self.static, self.weights, self.children))

    def __repr__(self) -> str:
        text = f"<Skeleton {self.cls.__name__}, {len(self.names)} leaves"
        other = None if self._unequal is None else self._unequal()
        difference = None if other is None else first_difference(self, other)
        return (
            f"{text}>" if difference is None else f"{text}; differs from the other by {difference}>"
        )

    def join(self, leaves: Iterable[Any]) -> Any:
        """Returns the layer with these leaves; JAX unflattens layers with this method."""
        leaves = tuple(leaves)
        layer = object.__new__(self.cls)
        attributes = layer.__dict__
        attributes.update(self.static)
        attributes["_skeleton"] = self
        attributes["_leaves"] = leaves
        if self.weights:  # the leaves of children follow the own weights
            attributes.update(zip(self.weights, leaves, strict=False))
        for name in self._shadowed:
            attributes[name] = self.child(name, leaves)
        return layer

    def child(self, field: str, leaves: tuple) -> Layer:
        """Returns the value of a field of children, joined from the layer's leaves."""
        start, end = self.spans[field]
        remaining = iter(leaves[start:end])

        def join(_: str, child: Skeleton) -> Any:
            return child.join(tuple(itertools.islice(remaining, len(child.names))))

        return map_layers(self.children[field], join)


def same_leaf(a: Leaf, b: Leaf) -> bool:
    """Returns whether two leaves are equal arrays of one dtype, or both None.

    NaN equals NaN: a layer equals its own copy. A tracer equals only itself.
    """
    if a is b:
        return True
    arrays = (
        isinstance(a, jax.Array | np.ndarray | np.generic),
        isinstance(b, jax.Array | np.ndarray | np.generic),
    )
    if not all(arrays):  # shapes, labels and other results of jax.tree.map
        return not any(arrays) and _same_tree(a, b)
    # the values of tracers are unknown at trace time
    if a is None or b is None or isinstance(a, Tracer) or isinstance(b, Tracer):
        return False
    if getattr(a, "shape", 0) != getattr(b, "shape", 0):
        return False
    if getattr(a, "dtype", 0) != getattr(b, "dtype", 0):
        return False
    x, y = np.asarray(a), np.asarray(b)
    return bool(((x == y) | ((x != x) & (y != y))).all())  # only NaN differs from itself


def _same_tree(a: Leaf, b: Leaf) -> bool:
    a_structure, b_structure = jax.tree.structure(a), jax.tree.structure(b)
    if jax.tree_util.treedef_is_leaf(a_structure) or jax.tree_util.treedef_is_leaf(b_structure):
        return type(a) is type(b) and bool(a == b)
    return a_structure == b_structure and all(
        map(same_leaf, jax.tree.leaves(a), jax.tree.leaves(b))
    )


def skeleton_of(layer: Layer) -> Skeleton:
    """Returns the static half of `layer`, computed once for each object."""
    # caching is safe, since layers are immutable
    cached = layer.__dict__.get("_skeleton")
    if cached is not None:
        return cached
    static, weights, children = {"_built": layer.__dict__.get("_built", False)}, [], {}
    for field in dataclasses.fields(layer):
        if WEIGHT in field.metadata:
            weights.append(field.name)
            continue
        value = getattr(layer, field.name)
        # child_fields restricts the search to declared fields; None means all fields
        child_fields = type(layer)._child_fields
        if (child_fields is None or field.name in child_fields) and next(
            layers_in(value), None
        ) is not None:
            children[field.name] = map_layers(value, lambda _, child: skeleton_of(child))
        else:
            static[field.name] = value
    skeleton = Skeleton(type(layer), static, tuple(weights), children)
    layer.__dict__["_skeleton"] = skeleton
    return skeleton


def leaves_of(layer: Layer) -> tuple:
    """Returns the leaves of `layer`; None for a weight that the layer does not have."""
    cached = layer.__dict__.get("_leaves")
    if cached is not None:
        return cached
    skeleton = skeleton_of(layer)
    leaves = [getattr(layer, name) for name in skeleton.weights]
    for field in skeleton.children:
        for _, child in layers_in(getattr(layer, field)):
            leaves.extend(leaves_of(child))
    # through __dict__, since __setattr__ of a layer rejects assignments
    layer.__dict__["_leaves"] = tuple(leaves)
    return layer.__dict__["_leaves"]


def flatten(layer: Layer) -> tuple[tuple, Skeleton]:
    """Returns the leaves and the static half of a layer, for JAX."""
    attributes = layer.__dict__
    leaves, skeleton = attributes.get("_leaves"), attributes.get("_skeleton")
    if leaves is not None and skeleton is not None:  # two lookups instead of two calls
        return leaves, skeleton
    return leaves_of(layer), skeleton_of(layer)


def flatten_with_keys(layer: Layer) -> tuple[list, Skeleton]:
    """Returns the same as `flatten` with a key for each leaf."""
    skeleton = skeleton_of(layer)
    # one key with the whole path: layers are one level of the pytree; JAX's messages read `key.key`
    keys = map(jax.tree_util.DictKey, skeleton.names)
    return list(zip(keys, leaves_of(layer), strict=True)), skeleton


def register(cls: type) -> None:
    """Registers a layer class as a pytree and sets its `_weight_roles`."""
    options = {f.name: f.metadata[WEIGHT] for f in dataclasses.fields(cls) if WEIGHT in f.metadata}
    cls._weight_roles = WeightRoles(
        untrained=tuple(name for name, option in options.items() if not option["trainable"]),
        overwritten=tuple(name for name, option in options.items() if option["overwritten"]),
        fixed_dtype=tuple(name for name, option in options.items() if option["dtype"] is not None),
    )
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, Skeleton.join, flatten)
