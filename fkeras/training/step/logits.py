"""Cross-entropies from the logits of a model that ends in a softmax or a sigmoid.

The logarithm of a computed probability costs about twice the logarithm of the softmax, rounds in the
precision of the model, and needs a clip, above which wrong predictions have no gradient. The logits have
none of this. Keras does the same on TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax

from fkeras import activations, layers, losses
from fkeras.engine import Layer, Network
from fkeras.engine.config.configurable import with_fields
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.repeats import Repeat
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.values.frozen import FrozenDict
from fkeras.nn.softmax import masked_softmax
from fkeras.training.step.outputs import Head
from fkeras.transforms.intercepting import Intercepted

_CATEGORICAL = (losses.CategoricalCrossentropy, losses.SparseCategoricalCrossentropy)
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
_SOFTMAX = (activations.softmax, jax.nn.softmax)
_SIGMOID = (activations.sigmoid, jax.nn.sigmoid)


def with_logits(
    model: Layer, all_heads: tuple[Head, ...]
) -> tuple[Any, tuple[Head, ...], tuple[Callable | None, ...]]:
    """Returns the model without the last activations that a cross-entropy can include.

    Args:
        all_heads: the outputs with their losses.

    Returns:
        `(model, heads, activations)`: the model with logits as outputs, the heads whose losses take
        logits, and the activation that each head's metrics need, or None. An output that another call
        or another output reads, too, stays; so does an output whose loss is not exactly a
        cross-entropy of probabilities along the axis of the softmax.
    """
    new_heads, last = [], []
    for number, head in enumerate(all_heads):
        found = _split(model, number, functools.partial(_fits, head))
        model, activation = (model, None) if found is None else found
        last.append(activation)
        if activation is not None:
            loss = with_fields(head.loss, {"from_logits": True})
            head = dataclasses.replace(head, loss=loss)
        new_heads.append(head)
    return model, tuple(new_heads), tuple(last)


def _fits(head: Head, activation: Callable, axis: int = -1) -> bool:
    """Returns whether the loss of a head includes an activation."""
    loss, ndim = head.loss, len(head.spec.dims)
    if type(loss) is losses.BinaryCrossentropy:
        return not loss.from_logits and activation in _SIGMOID
    if type(loss) not in _CATEGORICAL or loss.from_logits:
        return False
    return activation in _SOFTMAX and loss.axis % ndim == axis % ndim


def _split(layer: Layer, output: int, fits: Callable[..., bool]) -> tuple[Any, Callable] | None:
    """Returns a network without the activation behind one output, and the activation."""
    if isinstance(layer, Intercepted):
        found = _split(layer.layer, output, fits)
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
        found = _split(inner, tensor, fits)
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
