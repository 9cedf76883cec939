"""The kernel that computes each attention call of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fkeras.authoring.engine import fill
from fkeras.engine import Network
from fkeras.layers import DotProductAttention


def attention_kernels(model: Any, backend: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the path of each attention layer of a model, and its kernel in a training step."""
    if not isinstance(model, Network) or model.graph is None:
        return
    graph = model.graph
    for name, layer in model.layers.items():
        if isinstance(layer, Network):
            yield from attention_kernels(layer, backend, f"{path}{name}/")
        elif isinstance(layer, DotProductAttention):
            number = graph.call_number(name)
            query, _, value, *rest = graph.call_specs(number)
            given = fill(graph.calls[number].options, graph.specs)
            options = {name: given[name] for name in ("bias", "attention_mask") if name in given}
            options["positions"] = rest[0] if rest else None
            kernel = layer.kernel_for(query, value, backend, training=True, **options)
            yield f"{path}{name}", kernel
