"""Finds the calls of a model that compute each position separately.

Positions are the entries of axis 1 of the token ids. The final norm and the head of a language model
compute each position separately, so they run only at the positions whose logits are needed. Attention
mixes positions, and needs a KV cache to read one token at a time. The analysis traces the jaxpr of each
call for two sequence lengths: `fkeras.engine.rows` propagates the axis of the positions through both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from fkeras.authoring.engine import (
    WHOLE,
    RowProgram,
    Tree,
    Value,
    join_path,
    match_inputs,
    new_slots,
    rows,
    run_calls,
    skeleton_of,
    structure,
)
from fkeras.authoring.transforms import runs_graph
from fkeras.engine import Call, Context, Layer, Network
from fkeras.layers import Embedding, PositionEmbedding, Positions, TokenAndPositionEmbedding

#: two sequence lengths that are unlikely sizes of other axes
LENGTHS = (13, 11)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor in the jaxprs of both lengths.

    Attributes:
        value: the axis of the positions.
        large: shape and dtype for the larger length.
        small: shape and dtype for the smaller length.
    """

    value: Value
    large: Any
    small: Any


@dataclasses.dataclass(frozen=True)
class Uses:
    """The calls of a graph by their use of positions.

    Attributes:
        separate: the indices of the calls that compute each position separately, without state.
        mixing: the paths of the layers that mix positions and have no KV cache.
        axes: for each slot the axis of the positions; None for a tensor without positions.
    """

    separate: frozenset[int]
    mixing: tuple[str, ...]
    axes: tuple[int | None, ...]


def token_entry(dtype: Any) -> Entry:
    """Returns the entry of the token ids of two rows."""
    large, small = (jax.ShapeDtypeStruct((2, n), dtype) for n in LENGTHS)
    return Entry(rows(1), large, small)


def whole_entry(spec: Any) -> Entry:
    """Returns the entry of a tensor without positions, such as the output of an encoder."""
    return Entry(WHOLE, spec, spec)


def follow(
    network: Network,
    entries: list[Entry | None],
    state: Mapping[str, Any],
    cache: Mapping[str, Any],
) -> Uses:
    """Follows the positions through the calls of a network.

    Args:
        entries: an entry for each input; None for a missing optional input.
        state: specs of the state without caches.
        cache: specs of the state with caches.
    """
    follower = _Follower({}, [])
    separate: set[int] = set()
    slots = new_slots(network.graph, entries)
    follower.network(network, slots, state, cache, "", separate)
    axes = (e.value.axis if e is not None and e.value.is_rows else None for e in slots)
    return Uses(frozenset(separate), tuple(dict.fromkeys(follower.mixing)), tuple(axes))


def position_count(network: Network, ids: str) -> int | None:
    """Returns the number of positions of the smallest table of positions; None without a table.

    Args:
        ids: the name of the input of the token ids.
    """
    counts: list[int] = []
    _count_positions(
        network, [_TOKENS if n == ids else None for n in network.graph.input_names], counts
    )
    return min(counts, default=None)


# tensors with an entry for each token, and positions of tokens
_TOKENS, _PLACES = "tokens", "places"


def _count_positions(network: Network, marks: list[Any], counts: list[int]) -> list[Any]:
    """Returns the marks of the outputs, and adds the sizes of tables of positions to `counts`."""
    graph = network.graph
    slots = new_slots(graph, marks)

    def compute(number: int, call: Call) -> Tree:
        layer = network.layers[call.layer]
        inputs = [slots[slot] for slot in call.inputs]
        if isinstance(layer, Network) and layer.graph and not call.signature.options.children:
            given = match_inputs(layer, structure.fill(call.signature.args, inputs))
            return structure.fill(call.value, _count_positions(layer, [*given], counts))
        mark = next((mark for mark in (_PLACES, _TOKENS) if mark in inputs), None)
        if isinstance(layer, Positions):
            mark = _PLACES if mark else None
        elif isinstance(layer, PositionEmbedding | TokenAndPositionEmbedding):
            counts.extend([layer.sequence_length] if mark else [])
            mark = _TOKENS if mark else None
        elif isinstance(layer, Embedding):
            counts.extend([layer.input_dim] if mark == _PLACES else [])
            mark = _TOKENS if mark else None
        is_index = all(spec.dtype.startswith(("int", "uint")) for spec in call.outputs)
        mark = _TOKENS if mark == _PLACES and not is_index else mark
        return structure.fill(call.value, [mark] * len(call.outputs))

    run_calls(graph, slots, compute)
    return [slots[slot] for slot in graph.output_slots]


@dataclasses.dataclass(frozen=True)
class _Follower:
    """Follows calls; traces equal calls of equal layers, as in repeated blocks, once."""

    traced: dict[Any, Any]
    mixing: list[str]

    def network(
        self,
        network: Network,
        slots: list[Any],
        state: Mapping[str, Any],
        cache: Mapping[str, Any],
        path: str,
        separate: set[int],
    ) -> Tree:
        graph = network.graph

        def compute(number: int, call: Call) -> Tree:
            name, layer = call.layer, network.layers[call.layer]
            tensors = [slots[slot] for slot in call.inputs]
            own_state, own_cache = state.get(name, {}), cache.get(name, {})
            nested = _nested_entries(layer, call, tensors)
            if nested is not None and isinstance(layer, Network):
                before, inner = len(self.mixing), set[int]()
                at = join_path(path, name)
                table = new_slots(layer.graph, nested)
                value = self.network(layer, table, own_state, own_cache, at, inner)
                if len(self.mixing) == before and len(inner) == len(layer.graph.run_order):
                    separate.add(number)
                return value
            found = self.call(layer, call, tensors, own_state)
            if not all(entry.value.kind in ("rows", "whole") for entry in found):
                # a layer such as a router declares that each token is computed separately
                declared = getattr(type(layer), "separate_positions", False)
                if declared:
                    separate.add(number)
                elif own_cache == own_state:
                    self.mixing.append(join_path(path, name))
                found = [_by_shape(entry) for entry in found]
            elif own_cache == {}:
                separate.add(number)
            return structure.fill(call.value, found)

        return run_calls(graph, slots, compute)

    def call(self, layer: Layer, call: Call, tensors: list[Any], state: Tree) -> list[Entry]:
        """Returns the entries of the outputs of a call; their kind is "mixed" if positions mix."""
        anonymous = layer.replace(name=None) if layer.name else layer
        weights = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(layer))
        template = structure.freeze(state, lambda spec: (spec.shape, spec.dtype))
        asked = (skeleton_of(anonymous), weights, call.signature, tuple(tensors), template)
        if asked not in self.traced:
            self.traced[asked] = _trace(layer, call, tensors, state)
        return self.traced[asked]


def _nested_entries(layer: Layer, call: Call, tensors: list[Any]) -> list[Any] | None:
    """Returns the entries of the inputs of a nested network; None for other calls."""
    if not isinstance(layer, Network) or layer.graph is None or not runs_graph(layer):
        return None
    if call.signature.options.children:
        return None
    entries = match_inputs(layer, structure.fill(call.signature.args, tensors))
    specs = [layer.graph.specs[slot] for slot in layer.graph.input_slots]
    # a network casts its inputs
    same = all(
        entry is None or spec.dtype == str(entry.large.dtype)
        for spec, entry in zip(specs, entries, strict=True)
    )
    return entries if same else None


def _trace(layer: Layer, call: Call, tensors: list[Any], state: Tree) -> list[Entry]:
    specs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), layer)

    def compute(layer: Layer, state: Tree, arrays: list[Any]) -> Any:
        args, options = (
            structure.fill_arrays(part, arrays)
            for part in (call.signature.args, call.signature.options)
        )
        context = Context(state=state, where=layer.name or type(layer).__name__)
        return context.run(layer, *args, **options).value

    programs, results = [], list[list[Any]]()
    for size in ("large", "small"):
        arrays = [None if tensor is None else getattr(tensor, size) for tensor in tensors]
        program, result = jax.make_jaxpr(compute, return_shape=True)(specs, state, arrays)
        programs.append(program)
        results.append(structure.match(call.value, result) or [])
    fixed = [WHOLE] * len(jax.tree.leaves((specs, state)))
    values = [tensor.value for tensor in tensors if tensor is not None]
    # not ordered: a sum over earlier positions also mixes positions
    found = RowProgram(ordered=False).results(programs[0], programs[1], [*fixed, *values])
    return [Entry(*parts) for parts in zip(found, results[0], results[1], strict=True)]


def _by_shape(entry: Entry) -> Entry:
    """Returns the entry of an output that mixes positions: their axis is the axis whose size changes."""
    pairs = zip(entry.large.shape, entry.small.shape, strict=True)
    axes = [axis for axis, (large, small) in enumerate(pairs) if large != small]
    return dataclasses.replace(entry, value=rows(axes[0]) if len(axes) == 1 else WHOLE)
