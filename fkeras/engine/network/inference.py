"""Inference of a network's call from the inferences of the calls in its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from fkeras.engine.call.inference import Inference
from fkeras.engine.call.mask_rules import take_mask
from fkeras.engine.call.network_inputs import match_inputs, match_masks
from fkeras.engine.call.node import Node, record
from fkeras.engine.call.signature import Effects, RecordedCall, Signature, input_signature
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.tree.weights import weight_losses
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Network, Tree
from fkeras.engine.values.spec import Spec, as_spec


def infer_by_calls(
    network: Network, call: RecordedCall, specs: Sequence[Spec], masks: Sequence[Spec | None]
) -> Inference:
    """Returns the inference of a network's call: records the calls of the graph on other inputs.

    Each call may fix an unknown axis to a size of its own, which a trace of the whole network does not
    find. The names of unknown axes are less exact.

    Args:
        network: a network with weights, or with their shapes.
        masks: spec of each input's mask, or None.
    """
    graph, nodes = network.graph, []
    tensors = [_input(spec, mask) for spec, mask in zip(specs, masks, strict=True)]
    args, options = (structure.fill_tensors(t, tensors) for t in (call.args, call.options))
    inputs = match_inputs(network, args)
    explicit, mask = take_mask(network, options)
    input_masks = match_masks(network, mask) if explicit else map(_mask, inputs)
    triples = zip(graph.input_slots, inputs, input_masks, strict=True)
    # an input has the dtype of the graph, as `check_input` casts
    slots = new_slots(
        graph,
        [
            None if x is None else _input(Spec(as_spec(x).dims, graph.specs[slot].dtype), m)
            for slot, x, m in triples
        ],
    )

    def record_call(number: int, inner: Call) -> Tree:
        layer, mode = network.layers[inner.layer], inner.training
        value = record(
            layer,
            structure.fill_tensors(inner.args, slots),
            structure.fill_tensors(inner.options, slots),
            call.training if mode is None else mode,
            inner.mask_rule,
            KerasTensor,
        )
        nodes.append(jax.tree.leaves(value)[0].node)
        return value

    value, outputs = structure.number(run_calls(graph, slots, record_call))
    signature = Signature(
        *call,
        value,
        tuple(as_spec(y) for y in outputs),
        tuple(y.node.signature.masks[y.index] for y in outputs),
        max((node.signature.largest_bytes for node in nodes), default=0),
    )
    effects = [node.effects for node in nodes]
    return signature, Effects(
        losses=sum(each.losses for each in effects),
        penalties=len(jax.eval_shape(weight_losses, network)),
        metrics=tuple(name for each in effects for name in each.metrics),
        updates=any(each.updates for each in effects),
    )


def _input(spec: Spec, mask: Any) -> Any:
    layer = InputLayer(batch_shape=spec.dims, dtype=spec.dtype)
    # a call may pass the mask of its only input in a list
    masks = [as_spec(leaf) for leaf in jax.tree.leaves(mask)]
    return KerasTensor(Node(layer, input_signature(spec, masks[0] if masks else None)), 0)


def _mask(value: object) -> Spec | None:
    """Returns the spec of the mask of an input; None for constants."""
    return value.node.signature.masks[0] if isinstance(value, KerasTensor) else None
