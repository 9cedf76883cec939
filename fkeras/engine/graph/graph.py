"""`Graph`: the closed form of recorded calls, a table of calls over slots and layer names.

A graph holds no layers and no tensors: a layer is a name, a tensor is the number of a slot. Two
equal builds therefore give equal graphs with equal hashes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from fkeras.engine.call.mask_rules import KERAS, STRICT
from fkeras.engine.call.signature import Effects, Signature, SignatureFields
from fkeras.engine.graph.effects import Shapes, effects_of, shapes_of_layers
from fkeras.engine.graph.listing import listing
from fkeras.engine.graph.repeats import Step, steps_with_repeats
from fkeras.engine.graph.views import Coord, LayerView
from fkeras.engine.messages.errors import suggest
from fkeras.engine.values import structure
from fkeras.engine.values.spec import STRING, Spec
from fkeras.engine.values.structure import Ref


@dataclasses.dataclass(frozen=True)
class Call(SignatureFields):
    """One call in a closed graph: the layer by name, the inputs by slots, and the signature.

    Attributes:
        layer: the layer's name.
        signature: arguments, mode and outputs; their fields are attributes of the call too.
        inputs: the slots of the input tensors, in the numbering of the signature.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3,))
        >>> model = fk.Model(x, fk.layers.Dense(2)(x))
        >>> [call.layer for call in model.graph.calls]
        ['input_layer', 'dense']
    """

    layer: str
    signature: Signature
    inputs: tuple[int, ...] = ()

    @property
    def is_input(self) -> bool:
        return self.signature.args is None

    @functools.cached_property
    def args(self) -> Any:
        """Frozen tree of the positional arguments, `Ref(slot)` for tensors; None for an input."""
        return self._with_slots(self.signature.args)

    @functools.cached_property
    def options(self) -> Any:
        """Frozen dictionary of the arguments by name, `Ref(slot)` for tensors."""
        return self._with_slots(self.signature.options)

    def _with_slots(self, template: Any) -> Any:
        if template is None:
            return None
        return structure.renumber(template, self.inputs)

    def as_input(self) -> Call:
        """Returns the call as an input of a graph, with the same outputs."""
        return Call(self.layer, dataclasses.replace(self.signature, args=None, options=None))

    def __getstate__(self) -> dict:
        # without the cached properties, which can be recomputed
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


@dataclasses.dataclass(frozen=True)
class Graph:
    """Calls by depth, and the slots of inputs and outputs.

    Attributes:
        calls: the calls, deepest first.
        inputs: frozen tree of the inputs' slots.
        outputs: frozen tree of the outputs' slots.
        depths: for each call, the number of calls between the call and the outputs.
        layers: names of the layers, deepest first.
        shapes: the layers as shapes, for queries about effects; see `effects`. Comparisons and
            hashes ignore the shapes.
        depth: how a network computes repeated blocks of calls: "unroll" call by call, "scan" in one
            loop, "stack" in one loop over layers that hold the stacked weights of all blocks; see
            `steps`.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> graph = fk.Model(x, fk.layers.Dense(2)(x)).graph
        >>> graph.layers, graph.layer("dense").input.coord
        (('x', 'dense'), Coord(layer='x', node=0, tensor=0))
    """

    calls: tuple[Call, ...]
    inputs: Any
    outputs: Any
    depths: tuple[int, ...]
    layers: tuple[str, ...]
    shapes: Shapes | None = dataclasses.field(default=None, compare=False, repr=False)
    depth: str = "unroll"

    @functools.cached_property
    def _hash(self) -> int:
        # JAX hashes static data at every dispatch; depths and layers follow from the calls
        return hash((self.calls, self.inputs, self.outputs, self.depth))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        lines = listing(self, lambda name, again: (name, "", ()))
        return "\n".join(["Graph:", *(f"    {line}" for line in lines)])

    def __getstate__(self) -> dict:
        # cached properties stay behind: the hash of a string differs between processes
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @functools.cached_property
    def first_slots(self) -> tuple[int, ...]:
        """The slot of each call's first output."""
        slots, total = [], 0
        for call in self.calls:
            slots.append(total)
            total += len(call.outputs)
        return tuple(slots)

    @functools.cached_property
    def coords(self) -> tuple[Coord, ...]:
        """The coordinates of each slot."""
        return tuple(
            Coord(call.layer, node, tensor)
            for call, node in zip(self.calls, self.node_indices, strict=True)
            for tensor in range(len(call.outputs))
        )

    @functools.cached_property
    def node_indices(self) -> tuple[int, ...]:
        """The index of each call among the calls of its layer."""
        # counts instead of calls_of, so that this runs once over the calls
        seen: dict[str, int] = {}
        indices = []
        for call in self.calls:
            indices.append(seen.get(call.layer, 0))
            seen[call.layer] = indices[-1] + 1
        return tuple(indices)

    @functools.cached_property
    def specs(self) -> tuple[Spec, ...]:
        """The spec of each slot."""
        return tuple(spec for call in self.calls for spec in call.outputs)

    @functools.cached_property
    def masks(self) -> tuple[Spec | None, ...]:
        """The spec of each slot's mask."""
        return tuple(mask for call in self.calls for mask in call.masks)

    @functools.cached_property
    def attaches_masks(self) -> bool:
        """Whether a call follows Keras 3's mask rule."""
        return any(call.mask_rule == KERAS for call in self.calls if not call.is_input)

    @functools.cached_property
    def run_order(self) -> tuple[int, ...]:
        """The numbers of the calls in running order, without inputs.

        The deepest calls run first. A shared layer with state updates the state call by call, so the
        order within a depth matters. In a graph made with this library, calls of one depth run in
        the order of `calls`, from left to right. In a graph from a file of Keras, recognizable by
        another mask rule than "strict", they run in Keras's order, that of a walk from the outputs.
        """
        computed = [n for n, call in enumerate(self.calls) if not call.is_input]
        if all(self.calls[n].mask_rule == STRICT for n in computed):
            return tuple(computed)
        # Keras's order: a depth-first walk from the outputs, then ranks from its end backwards
        input_slots = [
            (*structure.visits(c.args), *structure.visits(c.options)) for c in self.calls
        ]
        parents = [[self.producer(slot)[0] for slot in slots] for slots in input_slots]
        finished: list[int] = []
        visited_numbers: set[int] = set()
        for slot in structure.visits(self.outputs):
            stack = [(self.producer(slot)[0], False)]
            while stack:
                number, is_exit = stack.pop()
                if is_exit:
                    finished.append(number)
                elif number not in visited_numbers:
                    visited_numbers.add(number)
                    stack.append((number, True))
                    stack.extend((parent, False) for parent in reversed(parents[number]))
        ranks: dict[int, int] = {}
        for number in (*reversed(finished), *range(len(self.calls))):
            for visited in (number, *parents[number]):
                ranks.setdefault(visited, len(ranks))
        return tuple(sorted(computed, key=lambda n: (-self.depths[n], ranks[n])))

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        """The calls in running order; repeated blocks of calls are one step where they are scanned."""
        return self.run_order if self.depth == "unroll" else steps_with_repeats(self)

    @functools.cached_property
    def calls_of(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the calls of each layer."""
        by_layer: dict[str, list[int]] = {name: [] for name in self.layers}
        for number, call in enumerate(self.calls):
            by_layer.setdefault(call.layer, []).append(number)
        return {name: tuple(numbers) for name, numbers in by_layer.items()}

    @functools.cached_property
    def reads_strings(self) -> bool:
        """Whether an input of the graph holds strings."""
        return any(self.specs[slot].dtype == STRING for slot in self.input_slots)

    @functools.cached_property
    def takes_integers(self) -> bool:
        """Whether an input of the graph holds integers."""
        return any(self.specs[slot].dtype.startswith(("int", "uint")) for slot in self.input_slots)

    @functools.cached_property
    def makes_strings(self) -> bool:
        """Whether an output of the graph holds strings that a call made."""
        computed_slots = (s for s in self.output_slots if s not in self.input_slots)
        return any(self.specs[slot].dtype == STRING for slot in computed_slots)

    @functools.cached_property
    def input_slots(self) -> tuple[int, ...]:
        return tuple(r.index for r in structure.leaves(self.inputs) if isinstance(r, Ref))

    @functools.cached_property
    def output_slots(self) -> tuple[int, ...]:
        return tuple(r.index for r in structure.leaves(self.outputs) if isinstance(r, Ref))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The name of each input, in the order of the arguments."""
        return tuple(self.coords[slot].layer for slot in self.input_slots)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The name of the layer that makes each output."""
        return tuple(self.coords[slot].layer for slot in self.output_slots)

    @functools.cached_property
    def calls_by_depth(self) -> Mapping[int, tuple[int, ...]]:
        """The numbers of the calls at each depth; outputs have depth 0."""
        by_depth: dict[int, list[int]] = {}
        for number, depth in enumerate(self.depths):
            by_depth.setdefault(depth, []).append(number)
        return {depth: tuple(by_depth[depth]) for depth in sorted(by_depth)}

    @property
    def nodes_by_depth(self) -> dict[int, tuple[str, ...]]:
        """The keys of the calls at each depth, such as "dense_ib-0"."""
        return {
            depth: tuple(self.node_key(n) for n in numbers)
            for depth, numbers in self.calls_by_depth.items()
        }

    @functools.cached_property
    def layers_by_depth(self) -> Mapping[int, tuple[str, ...]]:
        """The names of the layers at each depth, that of their deepest call."""
        deepest = {
            name: max(self.depths[n] for n in numbers)
            for name, numbers in self.calls_of.items()
            if numbers
        }
        by_depth: dict[int, list[str]] = {}
        for name in self.layers:
            if name in deepest:
                by_depth.setdefault(deepest[name], []).append(name)
        return {depth: tuple(by_depth[depth]) for depth in sorted(by_depth)}

    def node_key(self, number: int) -> str:
        """Returns the key of a call: the layer and the index among that layer's calls."""
        return f"{self.calls[number].layer}_ib-{self.node_indices[number]}"

    @functools.cached_property
    def nodes(self) -> frozenset[str]:
        """The keys of all calls."""
        return frozenset(self.node_key(n) for n in range(len(self.calls)))

    def call_number(self, layer: str, node: int = 0) -> int:
        """Returns the number of call `node` of a layer.

        Raises:
            ValueError: for an unknown layer or call.
        """
        numbers = self.calls_of.get(layer)
        if numbers is None:
            raise ValueError(
                f"There is no layer {layer!r} in this graph.{suggest(layer, self.layers)} Existing "
                f"layers are: {', '.join(self.layers)}."
            )
        if not 0 <= node < len(numbers):
            raise ValueError(
                f"{layer!r}: asked for call {node}, but the layer has {len(numbers)} calls in this "
                f"graph. Give an index from 0 to {len(numbers) - 1}."
            )
        return numbers[node]

    def slot(self, layer: str, node: int = 0, tensor: int = 0) -> int:
        """Returns the slot of a tensor by its coordinates."""
        number = self.call_number(layer, node)
        count = len(self.calls[number].outputs)
        if not 0 <= tensor < count:
            raise ValueError(
                f"{layer!r}, call {node}: asked for output {tensor}, but the call has {count} "
                f"outputs. Give an index from 0 to {count - 1}."
            )
        return self.first_slots[number] + tensor

    def call_specs(self, number: int, specs: Any = None) -> tuple:
        """Returns the specs of a call's positional arguments, in their structure.

        Args:
            number: the number of the call.
            specs: spec of each slot; the graph's own by default.
        """
        specs = self.specs if specs is None else specs
        return structure.fill(self.calls[number].args, specs)

    def output_slots_of(self, number: int) -> range:
        """Returns the slots of the outputs of a call."""
        first = self.first_slots[number]
        return range(first, first + len(self.calls[number].outputs))

    def producer(self, slot: int) -> tuple[int, int]:
        """Returns `(call, output)` for a slot: number of the call, index of the output."""
        coord = self.coords[slot]
        return self.calls_of[coord.layer][coord.node], coord.tensor

    def consumers(self, layer: str, node: int = 0, tensor: int = 0) -> tuple[str, ...]:
        """Returns the keys of the calls that take a tensor, with one entry for each use."""
        slot = self.slot(layer, node, tensor)
        return tuple(
            self.node_key(n) for n, call in enumerate(self.calls) for s in call.inputs if s == slot
        )

    def ancestors(self, layer: str, node: int = 0) -> tuple[str, ...]:
        """Returns the keys of all calls that a call depends on, in running order."""
        # an explicit stack: graphs can be deeper than Python's recursion limit
        pending, seen = [self.call_number(layer, node)], set()
        while pending:
            for slot in self.calls[pending.pop()].inputs:
                number = self.producer(slot)[0]
                if number not in seen:
                    seen.add(number)
                    pending.append(number)
        return tuple(self.node_key(n) for n in sorted(seen))

    def descendants(self, layer: str, node: int = 0) -> tuple[str, ...]:
        """Returns the keys of all calls that depend on a call, in running order."""
        # one pass is enough, since producers come before consumers
        seen = {self.call_number(layer, node)}
        for number, call in enumerate(self.calls):
            if any(self.producer(slot)[0] in seen for slot in call.inputs):
                seen.add(number)
        seen.discard(self.call_number(layer, node))
        return tuple(self.node_key(n) for n in sorted(seen))

    def path(self, start: str, end: str) -> tuple[str, ...]:
        """Returns the keys of a shortest chain of calls between two layers; () if unconnected."""
        targets = set(self.calls_of[self.layer(end).name])
        chains: dict[int, tuple[int, ...]] = {
            n: (n,) for n in self.calls_of[self.layer(start).name]
        }
        # producers come before consumers, so each chain is final when a consumer reads it
        for number, call in enumerate(self.calls):
            input_chains = [chains[p] for s in call.inputs if (p := self.producer(s)[0]) in chains]
            if input_chains and number not in chains:
                chains[number] = (*min(input_chains, key=len), number)
        paths = [chains[n] for n in targets if n in chains]
        return tuple(self.node_key(n) for n in min(paths, key=len)) if paths else ()

    def bind(self, layers: Mapping[str, Any]) -> Graph:
        """Returns the graph with the layers of a network, from which `effects` are inferred.

        A graph of stacked blocks keeps its layers: the weights of one layer stand for all blocks.
        """
        if self.depth == "stack":
            return self
        return dataclasses.replace(self, shapes=shapes_of_layers(layers))

    @functools.cached_property
    def effects(self) -> tuple[Effects, ...]:
        """Losses, penalties, metrics and updates of each call in training, inferred when needed."""
        return effects_of(self)

    @property
    def losses(self) -> tuple[str, ...]:
        """Sources of losses, one entry for each loss: layers with penalties, then keys of calls."""
        views = [self.layer(name) for name in self.layers]
        fixed = [key for view in views for key in view.get_losses_for(None)]
        calls = [self.node_key(n) for n, e in enumerate(self.effects) for _ in range(e.losses)]
        return (*fixed, *calls)

    @property
    def updates(self) -> tuple[str, ...]:
        """The keys of the calls that change state in training."""
        return tuple(self.node_key(n) for n, effects in enumerate(self.effects) if effects.updates)

    def layer(self, name: str) -> LayerView:
        """Returns a view of a layer's calls; see `LayerView`."""
        self.call_number(name)  # raises for an unknown layer
        return LayerView(self, name)
