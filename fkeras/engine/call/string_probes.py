"""Inference for calls on strings, by computing on sample texts: JAX cannot trace strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from fkeras.engine.call.context import Output
from fkeras.engine.call.network_inputs import check_shape, match_inputs
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values import structure
from fkeras.engine.values.spec import STRING, Spec
from fkeras.engine.values.structure import fill_tensors


def probe(layer: Any, args: Any, specs: tuple[Spec, ...], sizes: tuple[int, int]) -> list[Output]:
    """The outputs of a layer that reads or makes strings, for two sizes of the unknown axes.

    Raises:
        FKerasError: for strings at a layer that reads no strings.
    """
    if any(spec.dtype == STRING for spec in specs) and not layer.reads_strings:
        raise FKerasError(
            f"{layer.where}: expected numbers, received strings. Convert them with "
            "TextVectorization, StringLookup, Hashing or HashedCrossing.",
            layer=layer.where,
        )
    if getattr(layer, "graph", None) is not None:
        return [_output_specs(layer, structure.fill(args, specs))] * 2
    outputs = []
    for size, text in zip(sizes, layer.sample_texts, strict=True):
        arrays = [_array(spec, size, text) for spec in specs]
        outputs.append(layer.apply(*fill_tensors(args, arrays)))
    return outputs


def _array(spec: Spec, size: int, text: str) -> np.ndarray:
    shape = [size if isinstance(dim, str) else dim for dim in spec.dims]
    return np.full(shape, text if spec.dtype == STRING else np.zeros((), spec.dtype))


def _output_specs(network: Any, args: tuple) -> Output:
    """The `Output` of a network as specs, with the sizes of these inputs."""
    graph = network.graph
    for slot, spec in zip(graph.input_slots, match_inputs(network, args), strict=True):
        check_shape(network, slot, spec)
    slots = network.bound_specs(args)
    masks = [graph.masks[slot] for slot in graph.output_slots]
    metrics = {name: None for effects in graph.effects for name in effects.metrics}
    return Output(
        structure.fill(graph.outputs, slots),
        updates={"some": None} if any(effects.updates for effects in graph.effects) else {},
        losses=tuple(None for effects in graph.effects for _ in range(effects.losses)),
        metrics=metrics,
        mask=structure.fill(graph.outputs, graph.masks) if any(masks) else None,
    )
