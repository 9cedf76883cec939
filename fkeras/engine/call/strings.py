"""`HandlesStrings`: layers that take or return strings, which exist on the host only.

For other layers, `reads_strings` and `makes_strings` return False. A call with
strings does not compile, so `probe` infers shapes from calls on two samples.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np

from fkeras.engine.call.context import Output
from fkeras.engine.call.network_inputs import check_shape, match_inputs
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Layer, Network, Tree
from fkeras.engine.values.spec import STRING, Spec
from fkeras.engine.values.structure import fill_tensors


class HandlesStrings:
    """Base class, beside `Layer`, of layers and networks that can take or return strings."""

    #: whether the layer takes strings
    _reads_strings: ClassVar[bool] = True
    #: whether the layer returns strings
    _makes_strings: ClassVar[bool] = False

    @property
    def _sample_texts(self) -> tuple[str, str]:
        """Two texts that the layer takes; their lengths show which axes depend on the text."""
        return ("", "a b c")


def reads_strings(layer: object) -> bool:
    """Returns whether a layer takes strings."""
    return isinstance(layer, HandlesStrings) and layer._reads_strings


def makes_strings(layer: object) -> bool:
    """Returns whether a layer returns strings."""
    return isinstance(layer, HandlesStrings) and layer._makes_strings


def has_strings(layer: object) -> bool:
    """Returns whether a layer takes or returns strings."""
    return reads_strings(layer) or makes_strings(layer)


def takes_part(layer: Layer, specs: tuple[Spec, ...]) -> bool:
    """Returns whether strings are among the inputs or the outputs of a call."""
    return makes_strings(layer) or any(spec.dtype == STRING for spec in specs)


def probe(
    layer: Layer, args: Tree, specs: tuple[Spec, ...], sizes: tuple[int, int]
) -> list[Output]:
    """The outputs of a layer that reads or makes strings, for two sizes of the unknown axes.

    Raises:
        FKerasError: for strings at a layer that reads no strings.
    """
    if any(spec.dtype == STRING for spec in specs) and not reads_strings(layer):
        raise FKerasError(
            f"{layer._where}: expected numbers, received strings. Convert them with "
            "TextVectorization, StringLookup, Hashing or HashedCrossing.",
            layer=layer._where,
        )
    if getattr(layer, "graph", None) is not None:
        return [_output_specs(cast("Network", layer), structure.fill(args, specs))] * 2
    outputs = []
    for size, text in zip(sizes, cast("Any", layer)._sample_texts, strict=True):
        arrays = [_array(spec, size, text) for spec in specs]
        outputs.append(layer.apply(*fill_tensors(args, arrays)))
    return outputs


def _array(spec: Spec, size: int, text: str) -> np.ndarray:
    value = text if spec.dtype == STRING else np.zeros((), spec.dtype)
    return np.full(sample_shape(spec, size), value)


def sample_shape(spec: Spec, size: int) -> tuple[int, ...]:
    """Returns the shape of a spec with `size` for each unknown axis."""
    return tuple(size if isinstance(dim, str) else dim for dim in spec.dims)


def _output_specs(network: Network, args: tuple) -> Output:
    """The `Output` of a network as specs, with the sizes of these inputs."""
    graph = network.graph
    for slot, spec in zip(graph.input_slots, match_inputs(network, args), strict=True):
        check_shape(network, slot, spec)
    slots = network._bound_specs(args)
    masks = [graph.masks[slot] for slot in graph.output_slots]
    metrics = {name: None for effects in graph.effects for name in effects.metrics}
    return Output(
        structure.fill(graph.outputs, slots),
        updates={"some": None} if any(effects.updates for effects in graph.effects) else {},
        losses=tuple(None for effects in graph.effects for _ in range(effects.losses)),
        metrics=metrics,
        mask=structure.fill(graph.outputs, graph.masks) if any(masks) else None,
    )
