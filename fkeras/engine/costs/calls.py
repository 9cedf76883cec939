"""Operations of the calls of a graph, for a batch of one sample where the batch size is open."""

from __future__ import annotations

import functools
from typing import Any

import jax

from fkeras.engine.call.inference import key_spec, run_call
from fkeras.engine.call.signature import RecordedCall
from fkeras.engine.costs.counting import Costs, count_jaxpr
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Leaf, Network, Tree
from fkeras.engine.values.spec import STRING, Spec, as_probes, as_spec, name_axis

_BATCH = name_axis(0)


def call_costs(network: Network, number: int) -> Costs | None:
    """Returns the operations of one call of a graph in inference.

    Args:
        network: a built network with a graph; its weights may be shapes.

    Returns:
        The operations for each sample if the graph leaves the batch size open; None for a call on
        strings, on other sizes that the graph leaves open, or with a primitive without a rule.
    """
    if network.graph.calls[number].is_input:
        return Costs()
    program = call_program(network, number)
    costs = None if program is None else count_jaxpr(program)
    return None if costs is None or costs.unknown else costs


def call_program(network: Network, number: int) -> Any:
    """Returns the jaxpr of one call of a graph in inference, for one sample.

    Args:
        network: a built network with a graph; its weights may be shapes.

    Returns:
        The jaxpr for one sample if the graph leaves the batch size open; None for a call on strings
        or on other sizes that the graph leaves open.
    """
    graph = network.graph
    call = graph.calls[number]
    specs, masks = graph.input_specs(number)
    layer = network.layers[call.layer]
    used = [spec for spec in (*specs, *masks, *call.outputs) if spec is not None]
    arrays = leaves_of(layer)
    # labels and other values that jax.tree.map put in the places of arrays have no shape
    countable = layer.built and all(leaf is None or hasattr(leaf, "shape") for leaf in arrays)
    if not countable or any(
        spec.dtype == STRING or any(word != _BATCH for word in spec.words) for spec in used
    ):
        return None
    # layers that differ only in name share one count
    skeleton = skeleton_of(layer if layer.name is None else layer.replace(name=None))
    leaves = tuple(None if leaf is None else as_spec(leaf) for leaf in arrays)
    recorded = call.signature.recorded._replace(training=bool(call.training))
    return _program(skeleton, leaves, recorded, specs, masks)


# A memo of a pure function of hashable values, as for inference: networks repeat their calls.
@functools.lru_cache(maxsize=1024)
def _program(
    skeleton: Skeleton,
    leaves: tuple[Spec | None, ...],
    recorded: RecordedCall,
    specs: tuple[Spec, ...],
    masks: tuple[Spec | None, ...],
) -> Any:
    tensors, tensor_masks = _single(specs), _single(masks)
    shapes = structure.fill_specs(recorded.args, tuple(map(as_spec, tensors)))

    def value(key: Leaf, leaves: tuple, tensors: tuple, tensor_masks: tuple) -> Tree:
        layer = skeleton.join(leaves)
        return run_call(layer, recorded, shapes, key, tensors, tensor_masks).value

    try:
        return jax.make_jaxpr(value)(key_spec(), _single(leaves), tensors, tensor_masks).jaxpr
    # a count is an addition to a table: a layer of a user may reject a batch of one sample
    except Exception:
        return None


def _single(specs: tuple[Spec | None, ...]) -> tuple[jax.ShapeDtypeStruct | None, ...]:
    """Returns the shapes for a batch of one sample."""
    return tuple(as_probes(specs, 1))
