"""Which call of a model an operation or an array belongs to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from fkeras.authoring.engine import Repeat

#: parts of a step that no call of the model computes
LOSS, UPDATE = "(loss, metrics)", "(update)"
#: operations of the model outside of its calls, such as stacking the weights of repeated blocks
BETWEEN = "(between calls)"
#: the time in which no operation of a step runs
RUNTIME = "(runtime)"

_NAMES = re.compile(r"[^()/]+")
# an operation on an argument of the step has the argument as its name
_WEIGHT = re.compile(r"run\.model\[\\?'(.*)")


class Calls:
    """The calls of a model by the name stacks of operations.

    Args:
        model: a model with a graph, with its repeated blocks as the step computes them.
    """

    def __init__(self, model: Any):
        self.model = model
        # the name of the model in name stacks, and that of a rematerialized model
        self.roots = {model.name or type(model).__name__, "Intercepted"}
        #: paths of the calls in running order, and the classes of their layers
        self.classes: dict[str, str] = dict(_paths(model, ()))
        self._known: dict[str, str] = {}

    def of_scope(self, scope: str) -> str:
        """Returns the path of the call that an operation's name stack names.

        A stack such as "transpose(jvp(Model))/block/dense/dot_general" names the call "block/dense",
        whose forward and backward operations belong together.
        """
        if scope not in self._known:
            self._known[scope] = self._find(scope)
        return self._known[scope]

    def of_loop(self, scope: str) -> tuple[str, ...]:
        """Returns the paths of the calls that an operation inside of a loop computes.

        A loop over repeated blocks has the names of one block; each of its operations computes the calls
        of all blocks.
        """
        path = self.of_scope(scope)
        if path not in self.classes:
            return (path,)
        network, paths = self.model, [()]
        for name in path.split("/"):
            names = blocks_of(network).get(name, (name,))
            paths = [(*each, other) for each in paths for other in names]
            network = network.layers[name]
        found = tuple(dict.fromkeys("/".join(each) for each in paths))
        return tuple(each for each in found if each in self.classes) or (path,)

    def owners(self, scope: str) -> tuple[str, ...]:
        """Returns the paths of the calls that share an operation, by its name stack."""
        return self.of_loop(scope) if "/while/" in f"{scope}/" else (self.of_scope(scope),)

    def loops(self, paths: Collection[str]) -> tuple[tuple[tuple[str, ...], ...], ...]:
        """Returns the repeated blocks whose calls a program computes in a loop.

        Returns:
            For each loop the paths of the calls of each block.
        """
        return tuple(
            blocks
            for blocks in _repeated(self.model, ())
            if any(
                path == name or path.startswith(f"{name}/") for name in blocks[1] for path in paths
            )
        )

    def of_path(self, path: str) -> str:
        """Returns the path of the call that owns a weight or a state entry."""
        parts = path.split("/")
        for end in range(len(parts), 0, -1):
            name = "/".join(parts[:end])
            if name in self.classes:
                return name
        return UPDATE

    def _find(self, scope: str) -> str:
        weight = _WEIGHT.match(scope)
        if weight:
            return self.of_path(weight[1])
        layers, path, inside = self.model.layers, [], False
        for name in _NAMES.findall(scope):
            if not inside:
                # functions outside of the model may have the names of its layers
                inside = name in self.roots
            elif layers is not None and name in layers:
                path.append(name)
                layer = layers[name]
                layers = layer.layers if getattr(layer, "graph", None) is not None else None
        if path:
            return self.of_path("/".join(path))
        if inside:
            return BETWEEN
        return LOSS if "jvp" in scope else UPDATE


def blocks_of(network: Any) -> dict[str, tuple[str, ...]]:
    """Returns the layers of all blocks by the name of the layer in the block that a loop computes."""
    if getattr(network, "graph", None) is None:
        return {}
    blocks: dict[str, tuple[str, ...]] = {}
    _add_blocks(network.graph.steps, {}, blocks)
    return blocks


def _add_blocks(
    steps: Iterable[Any], outer: dict[str, tuple[str, ...]], blocks: dict[str, tuple[str, ...]]
) -> None:
    for repeat in steps:
        if isinstance(repeat, Repeat):
            own = {
                names[1]: tuple(dict.fromkeys(x for n in names for x in outer.get(n, (n,))))
                for names in repeat.layers
            }
            blocks.update(own)
            _add_blocks(repeat.steps, own, blocks)


def _repeated(network: Any, outer: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yields the paths of the calls of each block, for all repeated blocks of a network."""
    if getattr(network, "graph", None) is None:
        return
    calls = network.graph.calls
    for step in network.graph.steps:
        if isinstance(step, Repeat):
            names = [
                dict.fromkeys(calls[number].layer for number in block) for block in step.blocks
            ]
            yield tuple(tuple("/".join((*outer, name)) for name in block) for block in names)
    for name in network.graph.layers:
        yield from _repeated(network.layers[name], (*outer, name))


def _paths(network: Any, outer: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    inputs = {call.layer for call in network.graph.calls if call.is_input}
    for name in network.graph.layers:
        layer = network.layers[name]
        if name in inputs:
            continue
        if getattr(layer, "graph", None) is not None:
            yield from _paths(layer, (*outer, name))
        yield "/".join((*outer, name)), type(layer).__name__
