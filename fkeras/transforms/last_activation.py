"""Networks without the softmax or sigmoid behind an output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from fkeras import activations, layers
from fkeras.engine import Layer, Network
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.repeats import Repeat
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.values.frozen import FrozenDict
from fkeras.nn.softmax import masked_softmax
from fkeras.transforms.intercepting import Intercepted

SOFTMAX = (activations.softmax, jax.nn.softmax)
SIGMOID = (activations.sigmoid, jax.nn.sigmoid)
# exactly these classes: a subclass may compute something behind the activation
_ACTIVATED = (
    layers.Activation,
    layers.Dense,
    layers.EinsumDense,
    layers.Conv1D,
    layers.Conv2D,
    layers.Conv3D,
    layers.Conv1DTranspose,
    layers.Conv2DTranspose,
    layers.Conv3DTranspose,
)


def without_activation(
    layer: Layer, output: int, fits: Callable[..., bool]
) -> tuple[Any, Callable] | None:
    """Returns a network without the activation behind one output, and the activation.

    Args:
        output: number of the output.
        fits: `(activation, axis=-1) -> bool`: whether to remove an activation.

    Returns:
        None for an output that another call or another output reads, too, and for a layer that computes
        more than an activation.
    """
    if isinstance(layer, Intercepted):
        found = without_activation(layer.layer, output, fits)
        return None if found is None else (layer.replace(layer=found[0]), found[1])
    if not isinstance(layer, Network) or _is_changed(type(layer)):
        return None
    graph = layer.graph
    slot = graph.output_slots[output]
    name, node, tensor = graph.coords[slot]
    number = graph.call_number(name, node)
    readers = [*graph.output_slots, *(n for call in graph.calls for n in call.inputs)]
    # the layers of a loop over blocks are one layer
    steps = [step for step in graph.steps if isinstance(step, Repeat)]
    looped = any(number in block for step in steps for block in step.blocks)
    if readers.count(slot) > 1 or len(graph.calls_of[name]) > 1 or looped:
        return None
    inner, call = layer.layers[name], graph.calls[number]
    if isinstance(inner, Network | Intercepted):
        found = without_activation(inner, tensor, fits)
    else:
        has_mask = any(graph.masks[n] is not None for n in call.inputs)
        found = None if call.is_input else _bare(inner, call, has_mask, fits)
    if found is None:
        return None
    return layer.replace(layers=FrozenDict({**layer.layers, name: found[0]})), found[1]


def _is_changed(kind: type[Network]) -> bool:
    return kind.forward is not Network.forward or kind.apply is not Network.apply


def _bare(
    layer: Any, call: Call, has_mask: bool, fits: Callable[..., bool]
) -> tuple[Any, Callable] | None:
    """Returns a layer without its activation, and the activation."""
    if type(layer) in _ACTIVATED:
        if getattr(layer, "activity_regularizer", None) is not None or not fits(layer.activation):
            return None
        return layer.replace(activation=activations.linear), layer.activation
    # options and further arguments, such as a mask, change the result
    if has_mask or len(call.args.children) != 1 or call.options.children:
        return None
    plain = layers.Activation("linear", name=layer.name, dtype=layer.dtype)
    if type(layer) is layers.Softmax and isinstance(layer.axis, int):
        if fits(activations.softmax, layer.axis):
            return plain, functools.partial(masked_softmax, axis=layer.axis)
    elif type(layer) is Operation and layer.op.builtin:
        function = getattr(activations, layer.op.name, None)
        if function is not None and fits(function):
            return plain, layer.op.function
    return None
