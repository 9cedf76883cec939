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

from fkeras.engine.call.caches import tokens_of
from fkeras.engine.call.mask_rules import masks_of
from fkeras.engine.call.network_inputs import in_order, match_masks
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values import cache_size, structure
from fkeras.engine.values.annotations import Network, Tree


def check_capacity(network: Network, state: Mapping[str, Any], inputs: tuple, mask: Tree) -> None:
    """Raises FKerasError if `state` lacks caches, or has no room for the tokens of a row."""
    _check_complete(network, state)
    capacities = dict(_capacities(network, state))
    if not capacities:
        return
    name = min(capacities, key=lambda path: capacities[path])
    for needed in _lengths(network, state, inputs, mask):
        cache_size.check_room(f"{network._where}, cache of {name!r}", capacities[name], needed)


def _check_complete(network: Network, state: Mapping[str, Any]) -> None:
    """Raises FKerasError if some layers have a cache in `state` and others have none."""
    held = dict(_caches(network, state))
    missing = [path for path, is_held in held.items() if not is_held]
    if missing and len(missing) < len(held):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FKerasError(
            f"{network._where}: expected the caches of all layers that keep tokens, received a state "
            f"without those of {', '.join(map(repr, missing[:3]))}{more}. Make the state with "
            "init_cache(batch, length) of this model.",
            layer=network._where,
        )


def _caches(network: Network, state: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yields the path of each layer that keeps tokens, and whether `state` has its cache."""
    graph = network.graph
    layer: Any
    for name, layer in network.layers.items():
        if getattr(layer, "graph", None) is not None:
            for path, is_held in _caches(layer, state.get(name, {})):
                yield f"{name}/{path}", is_held
            continue
        call = graph.calls[graph.call_number(name)]
        if not call.is_input and tokens_of(layer)._keeps_tokens(
            structure.thaw(call.args, lambda v: v)
        ):
            yield name, bool(state.get(name))


def _capacities(network: Network, state: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yields the path of each layer whose cache can become full, and the most tokens of a row."""
    for name, layer_state in state.items():
        layer: Any = network.layers.get(name)
        if layer is None:
            continue
        if getattr(layer, "graph", None) is not None:
            for path, capacity in _capacities(layer, layer_state):
                yield f"{name}/{path}", capacity
        else:
            capacity = tokens_of(layer)._capacity(layer_state)
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
        lengths = tokens_of(layer)._lengths_after(layer_state, args, call_mask)
        if lengths is not None and not isinstance(lengths, Tracer):
            yield lengths
