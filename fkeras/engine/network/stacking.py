"""Stacked blocks: a network whose repeated blocks share layers with stacked weights.

A compiled training step over single blocks takes, updates and returns each weight of each block, so
the step grows with the number of blocks although the blocks run as one loop. Over stacked blocks the step
depends on one block. Training stacks the weights before the first step and takes them apart wherever a
run leaves the loop.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.graph.repeats import Repeat
from fkeras.engine.network.network import Network
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.engine.tree.weights import own_weights
from fkeras.engine.values.annotations import Array, Layer, Node, Tree
from fkeras.engine.values.frozen import FrozenDict

#: the names of the layers around a network, from the outermost to the innermost
Names = tuple[str, ...]


class Stacking:
    """Moves values of a model between single blocks and stacked blocks.

    Args:
        rolled: a built network whose graph, or the graph of a network inside, has depth "scan".
        model: the network of any depth that `unstack` returns; `rolled` by default.

    Attributes:
        single: the static half of the model.
        stacked: the static half of the model with stacked blocks.
        layers: for each stacked layer the path of its network, and the layer's names in all blocks.
            The second name holds the stacked weights.

    Example:
        >>> import jax, fkeras as fk
        >>> model = fk.Sequential([fk.Input((4,)), *(fk.layers.Dense(4, name=c) for c in "abc")])
        >>> model = fk.transforms.roll(model.build(jax.random.key(0)))
        >>> stacking = Stacking(model)
        >>> stacked = stacking.stack(model)
        >>> stacked.layers["b"].kernel.shape, list(stacked.layers)
        ((3, 4, 4), ['input_layer', 'b'])
        >>> stacking.unstack(stacked) == model
        True
    """

    def __init__(self, rolled: Network, model: Network | None = None):
        self.single: Skeleton = skeleton_of(rolled if model is None else model)
        self.layers: tuple[tuple[Names, Names], ...] = tuple(_stacked_layers(rolled, ()))
        self.stacked: Skeleton = skeleton_of(_without_blocks(rolled, self.layers, ()))
        #: by path of a stacked weight: the paths of the weight in all blocks
        self.paths: dict[str, tuple[str, ...]] = {}
        for network, names in self.layers:
            prefixes = [join_path("/".join(network), name) for name in names]
            length = len(prefixes[1]) + 1
            for path in self.single.names:
                if path.startswith(f"{prefixes[1]}/"):
                    self.paths[path] = tuple(f"{p}/{path[length:]}" for p in prefixes)
        self._template_of = {
            path: (template, index)
            for template, paths in self.paths.items()
            for index, path in enumerate(paths)
        }

    def stack(self, model: Network) -> Any:
        """Returns the model with stacked blocks."""
        leaves = dict(zip(self.single.names, leaves_of(model), strict=True))
        return self.stacked.join(tuple(self._stacked_leaf(leaves, p) for p in self.stacked.names))

    def unstack(self, model: Network) -> Any:
        """Returns the model with single blocks, the inverse of `stack`."""
        leaves = dict(zip(self.stacked.names, leaves_of(model), strict=True))
        return self.single.join(tuple(self._single_leaf(leaves, p) for p in self.single.names))

    def stack_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the state of the model with stacked blocks."""
        for network, names in self.layers:
            state = _changed(state, network, functools.partial(_stack_entries, names))
        return dict(state)

    def unstack_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the state of the model with single blocks."""
        for network, names in self.layers:
            state = _changed(state, network, functools.partial(_unstack_entries, names))
        return dict(state)

    def stack_weights(self, tree: Tree) -> Any:
        """Returns a tree in which every dictionary of weights by path has stacked blocks.

        Raises:
            ValueError: for a dictionary with the weight of one block and without that of another, or
                with weights of different shapes.
        """

        def change(node: Tree) -> Any:
            if not self._is_by_path(node, self.single):
                return node
            paths = dict.fromkeys(self._stack_path(path) for path in node)
            return {path: self._stacked_leaf(node, path) for path in paths}

        return jax.tree.map(change, tree, is_leaf=lambda node: self._is_by_path(node, self.single))

    def unstack_weights(self, tree: Tree) -> Any:
        """Returns a tree in which every dictionary of weights by path has single blocks."""

        def change(node: Tree) -> Any:
            if not self._is_by_path(node, self.stacked):
                return node
            paths = [p for p in self.single.names if self._stack_path(p) in node]
            return {path: self._single_leaf(node, path) for path in paths}

        return jax.tree.map(change, tree, is_leaf=lambda node: self._is_by_path(node, self.stacked))

    def names_of_block(self, index: int) -> dict[str, str]:
        """Returns the path in one block of each stacked weight."""
        return {path: paths[index] for path, paths in self.paths.items() if index < len(paths)}

    def _stack_path(self, path: str) -> str:
        return self._template_of[path][0] if path in self._template_of else path

    def _is_by_path(self, node: Node, skeleton: Skeleton) -> bool:
        return isinstance(node, dict) and bool(node) and node.keys() <= skeleton.places.keys()

    def _stacked_leaf(self, leaves: Mapping[str, Any], path: str) -> Any:
        if path not in self.paths:
            return leaves[path]
        return _stacked([leaves.get(block_path) for block_path in self.paths[path]])

    def _single_leaf(self, leaves: Mapping[str, Any], path: str) -> Any:
        if path not in self._template_of:
            return leaves[path]
        template, index = self._template_of[path]
        return _row_of_tree(leaves[template], index)


def _stacked_layers(model: Any, path: Names) -> Iterator[tuple[Names, Names]]:
    """Yields the path of the network and the names of the layers that become one."""
    if not _runs_graph(model):
        return
    stacked_names: set[str] = set()
    repeats = [step for step in model.graph.steps if isinstance(step, Repeat)]
    for names in (names for repeat in repeats for names in repeat.layers):
        if len(set(names)) > 1 and not _is_constrained(model.layers[names[1]]):
            stacked_names.update(names)
            yield path, names
    for name, layer in model.layers.items():
        if name not in stacked_names:
            yield from _stacked_layers(layer, (*path, name))


def _runs_graph(layer: Layer) -> bool:
    # other classes may read the layers of single blocks in their own methods
    return (
        isinstance(layer, Network)
        and layer.graph is not None
        and type(layer).forward is Network.forward
        and type(layer).apply is Network.apply
    )


def _is_constrained(layer: Layer) -> bool:
    # the projection of a weight, such as a norm over an axis, is not that of its stack
    return any(next(iter(own_weights(owner, "constraint")), None) for _, owner in sublayers(layer))


def _without_blocks(model: Any, layers: tuple, path: Names) -> Any:
    """Returns the model with the second block alone in the place of repeated blocks."""
    inside = [entry for entry in layers if entry[0][: len(path)] == path]
    if not inside:
        return model
    dropped = {n for network, names in inside if network == path for n in names if n != names[1]}
    remaining = {
        name: _without_blocks(layer, layers, (*path, name))
        for name, layer in model.layers.items()
        if name not in dropped
    }
    if dropped:
        model = model.replace(graph=dataclasses.replace(model.graph, depth="stack"))
    return model.replace(layers=FrozenDict(remaining))


def _changed(state: Mapping[str, Any], path: Names, change: Callable) -> dict[str, Any]:
    """Returns the nested state with `change` applied to the entry of a network."""
    if not path:
        return change(state)
    if path[0] not in state:
        return dict(state)
    return {**state, path[0]: _changed(state[path[0]], path[1:], change)}


def _stack_entries(names: Names, state: Mapping[str, Any]) -> dict[str, Any]:
    if names[1] not in state:
        return dict(state)
    stack = _stacked([state[name] for name in names])
    others = {name: value for name, value in state.items() if name not in names}
    return {**others, names[1]: stack}


def _unstack_entries(names: Names, state: Mapping[str, Any]) -> dict[str, Any]:
    if names[1] not in state:
        return dict(state)
    rows = {name: _row_of_tree(state[names[1]], index) for index, name in enumerate(names)}
    return {**{name: value for name, value in state.items() if name not in names}, **rows}


def _stacked(trees: list) -> Any:
    structure, shape = jax.tree.structure(trees[0]), _specs(trees[0])
    if any(jax.tree.structure(t) != structure or _specs(t) != shape for t in trees):
        raise ValueError("The blocks have values of different shapes.")
    return jax.tree.map(_stack_arrays, *trees)


def _specs(tree: Tree) -> list:
    return [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in jax.tree.leaves(tree)]


def _row_of_tree(tree: Tree, index: int) -> Any:
    return jax.tree.map(lambda stack: _row(stack, index), tree)


# compiled once for each shape: outside of a program, each operation would be a program of its own
@jax.jit
def _stack_arrays(*arrays: Array) -> jax.Array:
    return jnp.stack(arrays)


@jax.jit
def _row(stack: jax.Array, index: int) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(stack, index, keepdims=False)
