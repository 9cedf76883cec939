"""The summary of a network as a text table, before and after building."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fkeras.engine.tree.skeleton import leaves_of, skeleton_of

_HEADINGS = ("Layer (type)", "Output shape", "Params", "State", "Connected to")


def summary(network: Any, *, nested: bool = True) -> str:
    """Returns a table with a row for each layer: output shapes, parameters, state and connections.

    Names are never truncated. Without a graph the table has only names and classes.

    Args:
        network: a network, built or not.
        nested: whether the table lists the layers of nested networks.
    """
    abstract = _abstract(network)
    rows = list(_rows(abstract, nested, 0))
    widths = [max(len(row[i]) for row in [_HEADINGS, *rows]) for i in range(len(_HEADINGS))]
    line = "  ".join("─" * width for width in widths)
    title = f"{type(network).__name__} {network.name!r}" if network.name else type(network).__name__
    body = [
        title,
        line,
        _join(_HEADINGS, widths),
        line,
        *(_join(row, widths) for row in rows),
        line,
    ]
    return "\n".join([*body, *_totals(network, abstract)])


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.rjust(width) if i in (2, 3) else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


def _abstract(network: Any) -> Any:
    """Returns the network with shapes in the place of weights, without allocating weights."""
    if network.graph is None or network.built:
        return network
    # a summary must be cheap for a model that does not fit into memory
    key = jax.eval_shape(jax.random.key, jax.ShapeDtypeStruct((), "uint32"))
    return jax.eval_shape(network.build, key)


def _rows(network: Any, nested: bool, level: int) -> Iterator[tuple[str, ...]]:
    indent = "  " * level
    graph = network.graph
    state = {} if graph is None else network.state_spec()
    for name in graph.layers if graph is not None else network.layers:
        layer = network.layers[name]
        frozen = "" if layer.trainable or not leaves_of(layer) else ", frozen"
        shapes, connections = "?", ""
        if graph is not None:
            calls = [graph.calls[n] for n in graph.calls_of[name]]
            outputs = dict.fromkeys(str(s.shape) for call in calls for s in call.outputs)
            shapes = ", ".join(outputs)
            coords = [graph.coords[s] for call in calls if not call.is_input for s in call.inputs]
            connections = ", ".join(f"{c.layer}[{c.node}][{c.tensor}]" for c in coords)
        count = _count(leaves_of(layer))
        yield (
            f"{indent}{name} ({type(layer).__name__}{frozen})",
            shapes,
            f"{count:,}" if layer.built or not _may_have_weights(layer) else "not built",
            f"{_count(jax.tree.leaves(state.get(name, {}))):,}",
            connections,
        )
        if nested and hasattr(layer, "graph"):
            yield from _rows(layer, nested, level + 1)


def _may_have_weights(layer: Any) -> bool:
    skeleton = skeleton_of(layer)
    return bool(skeleton.weights or skeleton.children)


def _count(leaves: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in leaves if leaf is not None)


def _bytes(leaves: Any) -> int:
    return sum(
        int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize
        for leaf in leaves
        if leaf is not None
    )


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _totals(network: Any, abstract: Any) -> list[str]:
    if abstract.graph is None:
        return ["Shapes need known inputs: build the network, or start with fk.Input."]
    leaves = leaves_of(abstract)
    flags = skeleton_of(abstract).trainable
    trained = [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]
    frozen = [leaf for leaf, flag in zip(leaves, flags, strict=True) if not flag]
    state: Mapping[str, Any] = abstract.state_spec()
    state_arrays = jax.tree.leaves(state)
    total = _bytes(leaves) + _bytes(state_arrays)
    return [
        f"Trainable: {_count(trained):,} ({_size(_bytes(trained))})   "
        f"frozen: {_count(frozen):,} ({_size(_bytes(frozen))})   "
        f"state: {_count(state_arrays):,} ({_size(_bytes(state_arrays))})   total: {_size(total)}",
        "built" if network.built else "not built yet: model = model.build(jax.random.key(0))",
    ]
