"""The dtype to which the weights of a layer were cast, as by `jax.tree.map`."""

from __future__ import annotations

from fkeras.engine.config.policy import NAMES
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.walk import layers_in
from fkeras.engine.values.annotations import Layer, SomeLayer

_FLOATS = frozenset(name for name in NAMES if not name.startswith("mixed_"))


def cast_dtype(layer: Layer) -> str | None:
    """Returns the dtype that all weights of a layer have and that none of their policies gives.

    Weights with a declared dtype and weights that are no floats, such as codes of a quantized kernel,
    are left out. The result is None for a layer whose weights have the dtypes of their policies, or
    several dtypes.
    """
    found = None
    leaves = leaves_of(layer)
    for place, declared in skeleton_of(layer).derive(_policy_dtypes):
        name = getattr(getattr(leaves[place], "dtype", None), "name", None)
        if name == declared:
            return None
        if name in _FLOATS:
            if found not in (None, name):
                return None
            found = name
    return found


def dtypes_besides_policy(layer: Layer) -> tuple[str, ...]:
    """Returns the dtypes of a layer's weights if the policies give another dtype to one of them, else ().

    Weights with a declared dtype, and weights that are no floats, are left out.
    """
    leaves = leaves_of(layer)
    pairs = [
        (getattr(getattr(leaves[place], "dtype", None), "name", None), declared)
        for place, declared in skeleton_of(layer).derive(_policy_dtypes)
    ]
    pairs = [(name, declared) for name, declared in pairs if name in _FLOATS]
    if all(name == declared for name, declared in pairs):
        return ()
    return tuple(dict.fromkeys(str(name) for name, _ in pairs))


def declared_dtype_weights(layer: Layer) -> tuple[str, ...]:
    """Returns the paths of the weights with a declared dtype, which no dtype policy changes."""
    skeleton = skeleton_of(layer)
    casted = {place for place, _ in skeleton.derive(_policy_dtypes)}
    return tuple(name for place, name in enumerate(skeleton.names) if place not in casted)


def _policy_dtypes(skeleton: Skeleton) -> tuple[tuple[int, str], ...]:
    """Returns the place of each weight whose dtype its layer's policy gives, with that dtype."""
    dtype, fixed = skeleton.static["dtype"].variable_dtype, skeleton.cls._weight_roles.fixed_dtype
    places = [(i, dtype) for i, name in enumerate(skeleton.weights) if name not in fixed]
    for field, tree in skeleton.children.items():
        start = skeleton.spans[field][0]
        for _, child in layers_in(tree):
            places.extend((start + i, name) for i, name in child.derive(_policy_dtypes))
            start += len(child.names)
    return tuple(places)


def with_policy_dtypes(layer: SomeLayer) -> SomeLayer:
    """Returns the layer with each weight in the dtype that the policy of its layer gives."""
    skeleton, leaves = skeleton_of(layer), list(leaves_of(layer))
    for place, dtype in skeleton.derive(_policy_dtypes):
        name = getattr(getattr(leaves[place], "dtype", None), "name", dtype)
        if name != dtype and name in _FLOATS:
            leaves[place] = leaves[place].astype(dtype)
    return skeleton.join(leaves)
