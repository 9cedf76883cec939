"""Which call of a model an operation or an array belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

#: parts of a step that no call of the model computes
LOSS, UPDATE = "(loss, metrics)", "(update)"
#: the time in which no operation of a step runs
RUNTIME = "(runtime)"

_NAMES = re.compile(r"[^()/]+")


class Calls:
    """The calls of a model by the name stacks of operations.

    Args:
        model: a model with a graph.
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

    def of_path(self, path: str) -> str:
        """Returns the path of the call that owns a weight or a state entry."""
        parts = path.split("/")
        for end in range(len(parts), 0, -1):
            name = "/".join(parts[:end])
            if name in self.classes:
                return name
        return UPDATE

    def _find(self, scope: str) -> str:
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
        return LOSS if "jvp" in scope else UPDATE


def _paths(network: Any, outer: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    inputs = {call.layer for call in network.graph.calls if call.is_input}
    for name in network.graph.layers:
        layer = network.layers[name]
        if name in inputs:
            continue
        if getattr(layer, "graph", None) is not None:
            yield from _paths(layer, (*outer, name))
        yield "/".join((*outer, name)), type(layer).__name__
