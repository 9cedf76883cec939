"""A network as text: the calls with their layers, shapes and numbers of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fkeras.engine.config.configurable import describe
from fkeras.engine.graph.listing import listing
from fkeras.engine.layer.layer import Layer
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.tree.skeleton import leaves_of


def network_text(network: Any) -> str:
    """Returns a network as a function: one line for each call, nested networks indented.

    Args:
        network: a network, built or not.
    """
    count = _count(network)
    title = f"{describe(network)}:" + (f"  # {count:,} weights" if count else "")
    return "\n".join([title, *(f"    {line}" for line in _body(network))])


def _body(network: Any) -> Iterator[str]:
    if network.graph is None:
        for name in network.layers:
            text, remark, below = _layer(network.layers[name])
            yield f"{name} = {text}{remark.replace(',', '  #', 1)}"
            yield from (f"    {line}" for line in below)
        return

    def described(name: str, again: bool) -> tuple[str, str, list[str]]:
        return (name, "", []) if again else _layer(network.layers[name])

    yield from listing(network.graph, described)


def _layer(layer: Any) -> tuple[str, str, list[str]]:
    """Returns text, remark and nested lines of a layer."""
    count = _count(layer)
    frozen = "" if layer.trainable else ", frozen"
    remark = f", {count:,} weights{frozen}" if count else ""
    if isinstance(layer, Operation):
        return f"ops.{layer.op.name}", remark, []
    is_network = hasattr(layer, "graph")
    plain = is_network or type(layer).__repr__ is Layer.__repr__
    text = describe(layer, omitted=("name",)) if plain else repr(layer)
    return text, remark, list(_body(layer)) if is_network else []


def _count(layer: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in leaves_of(layer) if leaf is not None)
