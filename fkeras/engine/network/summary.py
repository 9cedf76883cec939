"""The summary of a network as a text table, before and after building."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from fkeras.engine.costs.calls import call_costs
from fkeras.engine.costs.counting import Costs
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.values.annotations import Layer, Network, Tree

HEADINGS = ("Layer (type)", "Output shape", "Params", "State", "FLOPs", "Connected to")
NUMBERS = (2, 3, 4)  # columns that are aligned to the right
_WIDTH = 100
_GAP = 2


@dataclasses.dataclass(frozen=True)
class Table:
    """Contents of a summary.

    Attributes:
        title: class and name of the network.
        rows: a row of texts for each layer, in the order of `HEADINGS`.
        totals: lines with the sums.
    """

    title: str
    rows: tuple[tuple[str, ...], ...]
    totals: tuple[str, ...]


def summary(network: Network, *, nested: bool = True) -> str:
    """Returns a table with a row for each layer: shapes, parameters, state, FLOPs and connections.

    The table has at most 100 columns. Long texts continue in the next line and are never truncated.
    Without a graph the table has only names and classes.

    Args:
        network: a network, built or not.
        nested: whether the table lists the layers of nested networks.
    """
    contents = table(network, nested=nested)
    rows = [HEADINGS, *contents.rows]
    widths = _widths([max(len(row[i]) for row in rows) for i in range(len(HEADINGS))])
    line = (" " * _GAP).join("─" * width for width in widths)
    body = [
        contents.title,
        line,
        *_join(HEADINGS, widths),
        line,
        *(part for row in contents.rows for part in _join(row, widths)),
        line,
    ]
    return "\n".join([*body, *contents.totals])


def table(network: Network, *, nested: bool = True) -> Table:
    """Returns the contents of a summary.

    Args:
        network: a network, built or not.
        nested: whether the table lists the layers of nested networks.
    """
    abstract = _abstract(network)
    name = f" {network.name!r}" if network.name else ""
    return Table(
        f"{type(network).__name__}{name}",
        tuple(_rows(abstract, nested, 0)),
        tuple(_totals(network, abstract)),
    )


def _widths(natural: Sequence[int]) -> list[int]:
    """Returns the widths of the columns, the widest text columns narrowed until the table fits."""
    widths = list(natural)
    while sum(widths) + _GAP * (len(widths) - 1) > _WIDTH:
        widest = max((i for i in range(len(widths)) if i not in NUMBERS), key=lambda i: widths[i])
        if widths[widest] <= len(HEADINGS[widest]):
            break
        widths[widest] -= 1
    return widths


def _join(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Returns the lines of a row."""
    columns = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, columns))):
        texts = [column[number] if number < len(column) else "" for column in columns]
        aligned = [
            text.rjust(width) if i in NUMBERS else text.ljust(width)
            for i, (text, width) in enumerate(zip(texts, widths, strict=True))
        ]
        yield (" " * _GAP).join(aligned).rstrip()


def _wrapped(cell: str, width: int) -> list[str]:
    text = cell.lstrip()
    # deeply nested names keep room for their letters
    indent = cell[: min(len(cell) - len(text), width // 2)]
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ) or [""]


def _abstract(network: Network) -> Network:
    """Returns the network with shapes in the place of weights, without allocating weights."""
    if network.graph is None or network.built:
        return network
    # a summary must be cheap for a model that does not fit into memory
    key = jax.eval_shape(jax.random.key, jax.ShapeDtypeStruct((), "uint32"))
    return jax.eval_shape(network.build, key)


def _rows(network: Network, nested: bool, level: int) -> Iterator[tuple[str, ...]]:
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
        count = count_numbers(leaves_of(layer))
        yield (
            f"{indent}{name} ({type(layer).__name__}{frozen})",
            shapes,
            f"{count:,}" if layer.built or not _may_have_weights(layer) else "not built",
            f"{count_numbers(jax.tree.leaves(state.get(name, {}))):,}",
            _flops(layer_costs(network, name)),
            connections,
        )
        if nested and hasattr(layer, "graph"):
            yield from _rows(cast("Network", layer), nested, level + 1)


def layer_costs(network: Network, name: str) -> Costs | None:
    """Returns the operations of all calls of a layer; None if a call's operations are unknown."""
    graph = network.graph
    if graph is None:
        return None
    costs = [call_costs(network, number) for number in graph.calls_of[name]]
    known_costs = [each for each in costs if each is not None]
    return sum(known_costs, Costs()) if len(known_costs) == len(costs) else None


def _flops(costs: Costs | None) -> str:
    return "?" if costs is None else number_text(costs.flops)


def number_text(number: float) -> str:
    """Returns a number with three digits and a unit.

    Example:
        >>> number_text(870), number_text(7449417263)
        ('870', '7.45 G')
    """
    value, units = float(number), ["", " k", " M", " G", " T", " P"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    digits = f"{value:.0f}" if value >= 99.95 or not units[0] else f"{value:.3g}"
    return f"{digits}{units[0]}"


def _may_have_weights(layer: Layer) -> bool:
    skeleton = skeleton_of(layer)
    return bool(skeleton.weights or skeleton.children)


def count_numbers(leaves: Tree) -> int:
    """Returns how many numbers the arrays among some leaves hold."""
    return sum(int(np.prod(leaf.shape)) for leaf in leaves if leaf is not None)


def _bytes(leaves: Tree) -> int:
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


def _totals(network: Network, abstract: Network) -> list[str]:
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
        f"Trainable: {count_numbers(trained):,} ({_size(_bytes(trained))})   "
        f"frozen: {count_numbers(frozen):,} ({_size(_bytes(frozen))})   "
        f"state: {count_numbers(state_arrays):,} ({_size(_bytes(state_arrays))})   total: {_size(total)}",
        _flops_line(abstract),
        "built" if network.built else "not built yet: model = model.build(jax.random.key(0))",
    ]


def _flops_line(network: Network) -> str:
    costs = {name: layer_costs(network, name) for name in network.graph.layers}
    total = number_text(sum(known.flops for known in costs.values() if known is not None))
    slots = network.graph.input_slots
    open_batch = any("b" in network.graph.specs[slot].words for slot in slots)
    text = f"FLOPs per {'sample' if open_batch else 'call'} in inference: "
    unknown = sum(known is None for known in costs.values())
    return text + (
        f"at least {total} (unknown for {unknown} of {len(costs)} layers)" if unknown else total
    )
