"""Masks that meet a call which takes none: refused where a model is written, lost in a file of Keras.

Keras drops such a mask in silence while the model runs. In a graph of ours a call that goes without
the mask of its inputs says so, `mask=None`; so reading a file writes that where Keras would drop it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from fkeras.engine import structure
from fkeras.engine.call_arguments import fill_tensors
from fkeras.engine.frozen import FrozenDict
from fkeras.engine.graph import Call, Graph
from fkeras.engine.input import symbolic
from fkeras.engine.layer import Layer
from fkeras.engine.network import Network
from fkeras.engine.network_inputs import match_inputs, match_masks
from fkeras.engine.node import Node, is_symbolic
from fkeras.engine.operators import KerasTensor
from fkeras.engine.spec import Spec
from fkeras.engine.structure import Branch


def mask_of(tensor: Any) -> Spec | None:
    """The spec of a symbolic tensor's mask; None for a tensor without one and for other values."""
    return tensor.node.masks[tensor.index] if is_symbolic(tensor) else None


def loses_mask(layer: Layer, masks: Sequence[Any]) -> bool:
    """Whether Keras's call of `layer` on inputs with these masks (or None) goes without them.

    Example:
        >>> import fkeras as fk
        >>> mask = fk.layers.Masking()(fk.Input((3, 2))).node.masks[0]
        >>> loses_mask(fk.layers.Flatten(), [mask]), loses_mask(fk.layers.Add(), [mask, mask])
        (True, False)
    """
    return any(mask is not None for mask in masks) and layer.loses_masks(masks)


def tolerant(network: Network, masks: Sequence[Spec | None]) -> Network:
    """The network as Keras runs it on inputs with these masks: calls that lose one say `mask=None`.

    Args:
        network: a network, or one inside another, that was recorded on inputs with other masks.
        masks: the spec of the mask of each of its inputs, or None.

    Returns:
        A network; the same object where no call loses a mask.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3, 2))
        >>> mask = fk.layers.Masking()(x).node.masks[0]
        >>> inner = fk.Sequential([fk.Input((3, 2)), fk.layers.Flatten()])
        >>> tolerant(inner, [None]) is inner, tolerant(inner, [mask]).graph.calls[1].options.keys
        (True, ('mask',))
    """
    graph = network.graph
    if graph is None or all(mask is None for mask in masks):
        return network
    slots: list[Any] = [None] * len(graph.specs)
    for slot, mask in zip(graph.input_slots, masks, strict=True):
        slots[slot] = _masked_input(network.layers[graph.coords[slot].layer], mask)
    layers, calls = dict(network.layers), list(graph.calls)
    for number, call in enumerate(graph.calls):
        if call.is_input:
            continue
        args = fill_tensors(call.args, slots)
        options = fill_tensors(call.options, slots)
        if options.get("mask", ()) is not None:
            layer, lost = tolerated(layers[call.layer], args, options.get("mask"))
            layers[call.layer] = layer
            if lost:
                options["mask"] = None
                calls[number] = dataclasses.replace(call, options=_without_mask(call.options))
        found = structure.match(
            call.value, layers[call.layer](*args, training=call.training, **options)
        )
        first = graph.first_slots[number]
        slots[first : first + len(call.outputs)] = found or []
    same = all(layers[name] is layer for name, layer in network.layers.items())
    if same and tuple(calls) == graph.calls:
        return network
    closed = dataclasses.replace(graph, calls=tuple(calls))
    return network.replace(graph=closed, layers=FrozenDict(layers))


def tolerated(layer: Layer, args: Sequence[Any], mask: Any = None) -> tuple[Layer, bool]:
    """`(layer, lost)`: the layer as Keras calls it on these arguments, and whether it loses masks.

    Args:
        layer: the layer that is called.
        args: the positional arguments, symbolic tensors among them.
        mask: the mask that the call is given; None where the tensors bring theirs.
    """
    if mask is None:
        masks = [mask_of(leaf) for leaf in structure.number(list(args))[1]]
        if loses_mask(layer, masks):
            return layer, True
    if isinstance(layer, Network) and layer.graph is not None:
        if mask is None:
            masks = [mask_of(tensor) for tensor in match_inputs(layer, tuple(args))]
        else:
            masks = [getattr(m, "spec", None) for m in match_masks(layer, mask)]
        return tolerant(layer, masks), False
    return layer, False


def keeps_masks(graph: Graph, layer: Any, call: Call) -> bool:
    """Whether a call is one of a network with masks of which Keras's would lose some."""
    if not isinstance(layer, Network) or layer.graph is None:
        return False
    options = structure.fill(call.options, graph.specs)
    if "mask" not in options:
        masks = match_inputs(layer, structure.fill(call.args, graph.masks))
    else:
        masks = match_masks(layer, options["mask"])
    return tolerant(layer, masks) is not layer


def _masked_input(layer: Any, mask: Spec | None) -> Any:
    tensor = symbolic(layer)
    node = Node(layer, value=tensor.node.value, outputs=tensor.node.outputs, masks=(mask,))
    return KerasTensor(node, 0)


def _without_mask(options: Branch) -> Branch:
    return dataclasses.replace(
        options, keys=(*options.keys, "mask"), children=(*options.children, None)
    )
