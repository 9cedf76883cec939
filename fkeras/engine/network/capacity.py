"""Whether the caches of a network have room for the tokens of a call, on concrete arrays.

A compiled program cannot raise an error, so attention returns NaN for a token without a slot. Before a
call on concrete arrays the tokens can be counted: the layers that count positions know the lengths of
the rows, and the attention layers know how many tokens their caches hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jax.core import Tracer

from fkeras.engine.call.mask_rules import masks_of
from fkeras.engine.call.network_inputs import in_order, match_masks
from fkeras.engine.values import cache_size, structure
from fkeras.engine.values.annotations import Layer, Network, Tree


def check_capacity(network: Network, state: Mapping[str, Any], inputs: tuple, mask: Tree) -> None:
    """Raises FKerasError if a row needs more tokens than the caches in `state` have room for."""
    capacities = dict(_capacities(network, state))
    if not capacities:
        return
    name = min(capacities, key=lambda path: capacities[path])
    for needed in _lengths(network, state, inputs, mask):
        cache_size.check_room(f"{network._where}, cache of {name!r}", capacities[name], needed)


def _capacities(network: Network, state: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yields the path of each layer whose cache can become full, and the most tokens of a row."""
    for name, layer_state in state.items():
        layer: Layer | None = network.layers.get(name)
        if layer is None:
            continue
        if getattr(layer, "graph", None) is not None:
            for path, capacity in _capacities(layer, layer_state):
                yield f"{name}/{path}", capacity
        else:
            capacity = layer._capacity(layer_state)
            if capacity is not None:
                yield name, capacity


def _lengths(
    network: Network, state: Mapping[str, Any], inputs: tuple, mask: Tree
) -> Iterator[np.ndarray]:
    """Yields the lengths of the rows after the call, from each layer that counts tokens.

    Only layers whose tokens are inputs of the network can be asked before the call.
    """
    graph = network.graph
    arrays = in_order(graph, inputs[0] if len(inputs) == 1 else list(inputs))
    if arrays is None:
        return
    slots = dict(zip(graph.input_slots, arrays, strict=True))
    masks = dict(zip(graph.input_slots, match_masks(network, mask), strict=True))
    for name, layer_state in state.items():
        layer = network.layers.get(name)
        if layer is None:
            continue
        call = graph.calls[graph.call_number(name)]
        args = structure.thaw(
            call.args, lambda v: slots.get(v.index) if isinstance(v, structure.Ref) else v
        )
        call_mask = masks_of(call.args, masks.get)
        if getattr(layer, "graph", None) is not None:
            yield from _lengths(layer, layer_state, args, call_mask)
            continue
        lengths = layer._lengths_after(layer_state, args, call_mask)
        if lengths is not None and not isinstance(lengths, Tracer):
            yield lengths
