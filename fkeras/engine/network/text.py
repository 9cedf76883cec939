"""A network as lines: the calls with their layers, shapes and numbers of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fkeras.engine.config.configurable import describe
from fkeras.engine.graph.listing import Lines, listing
from fkeras.engine.layer.layer import Layer
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.tree.skeleton import leaves_of


def network_lines(network: Any) -> Lines:
    """Returns a network as a function: one line for each call, with the calls of nested networks below.

    Args:
        network: a network, built or not.
    """
    count = _count(network)
    title = f"{describe(network)}:" + (f"  # {count:,} weights" if count else "")
    return [(title, list(_body(network)))]


def _body(network: Any) -> Iterator[tuple[str, Lines]]:
    if network.graph is None:
        for name in network.layers:
            text, remark, below = _layer(network.layers[name])
            yield f"{name} = {text}{remark.replace(',', '  #', 1)}", below
        return

    def described(name: str, again: bool) -> tuple[str, str, Lines]:
        return (name, "", []) if again else _layer(network.layers[name])

    yield from listing(network.graph, described)


def _layer(layer: Any) -> tuple[str, str, Lines]:
    """Returns text, remark and nested lines of a layer."""
    count = _count(layer)
    frozen = "" if layer.trainable else ", frozen"
    remark = f", {count:,} weights{frozen}" if count else ""
    if isinstance(layer, Operation):
        return f"ops.{layer.op.name}", remark, []
    is_network = hasattr(layer, "graph")
    plain = is_network or type(layer).__repr__ is Layer.__repr__
    # the remark counts the weights, so the text has no shapes of weights
    shown = layer if is_network else layer._unbuilt()
    text = describe(shown, omitted=("name",)) if plain else repr(layer)
    return text, remark, list(_body(layer)) if is_network else []


def _count(layer: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in leaves_of(layer) if leaf is not None)
