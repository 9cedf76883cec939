"""Layers whose leaves are labels, made by `jax.tree.map` for optax.

`optax.multi_transform` and `optax.masked` take a tree of labels or booleans, or a function from
weights to such a tree. A layer is callable, so optax mistakes a layer of labels for a function. The
call of a layer of labels therefore returns the labels in the structure of the weights it receives.

Other functions of optax combine labels and weights with `jax.tree.map`: `form_of_labels` returns the
skeleton for these weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.engine.messages.errors import FKerasError, suggest
from fkeras.engine.tree.array_list import weights_by_path
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.walk import is_layer
from fkeras.engine.values.annotations import Layer, Tree

_KINDS = (str, bool, int, np.bool_)


def holds_labels(layer: Layer) -> bool:
    """Returns whether the leaves of a layer are Python strings, booleans or integers."""
    leaves = leaves_of(layer)
    if not leaves:
        return False
    first = leaves[0]
    if first is None:  # a layer without a bias, for example
        first = next((leaf for leaf in leaves if leaf is not None), None)
    return type(first) in _KINDS


def labels_for(layer: Layer, weights: tuple) -> Tree:
    """Returns the labels of a layer in the structure of some weights.

    Args:
        weights: the positional arguments of the call: one layer with the same paths, or one
            dictionary by path, the form in which a `Trainer` passes weights to its optimizer.

    Raises:
        FKerasError: for other arguments, or weights without a label.
    """
    by_path = weights_by_path(layer)
    tree: Tree = weights[0] if len(weights) == 1 else None
    if is_layer(tree):
        skeleton = skeleton_of(tree)
        _check(layer, skeleton.names, by_path)
        pairs = zip(skeleton.names, leaves_of(tree), strict=True)
        # None where a weight is missing, so that optax sees trees of equal structure
        return skeleton.join(tuple(None if w is None else by_path[name] for name, w in pairs))
    if isinstance(tree, Mapping) and tree:
        _check(layer, tuple(tree), by_path)
        return {path: by_path[path] for path in tree}
    raise FKerasError(
        f"{layer._where}: its leaves are labels, so the layer computes nothing. Call the model whose weights "
        "are labelled; optax takes the labels directly, or as `lambda _: labels`, and "
        "optax.inject_hyperparams takes them with static_args=, as in static_args=('mask',).",
        layer=layer._where,
    )


class _Form(Skeleton):
    """A skeleton that equals every skeleton with the same paths."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Skeleton) and self.names == other.names

    __hash__ = Skeleton.__hash__


def form_of_labels(skeleton: Skeleton) -> Skeleton:
    """Returns a skeleton for weights that `jax.tree.map` can combine with labels of a model.

    The skeleton equals each skeleton with the same paths: labels of a model also fit the frozen model.
    """
    return _Form(skeleton.cls, skeleton.static, skeleton.weights, skeleton.children)


def _check(layer: Layer, names: tuple, by_path: Mapping[str, Any]) -> None:
    unknown = next((name for name in names if by_path.get(name) is None), None)
    if unknown is not None:
        raise FKerasError(
            f"{layer._where}: has no label for the weight {unknown!r}.{suggest(str(unknown), by_path)} "
            "Make the labels of the model that is trained: jax.tree.map(function, model).",
            layer=layer._where,
        )
