"""`CallTable`: the data of a closed graph, a table of calls over slots and layer names.

A table holds no layers and no tensors: a layer is a name, a tensor is the number of a slot. Two
equal builds therefore give equal tables with equal hashes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from fkeras.engine.call.mask_rules import KERAS
from fkeras.engine.call.signature import Signature, SignatureFields
from fkeras.engine.graph.effects import Shapes, shapes_of_layers
from fkeras.engine.graph.repeats import Step, steps_with_repeats
from fkeras.engine.graph.running_order import running_order
from fkeras.engine.messages.errors import suggest
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Skeleton, Template, Tree
from fkeras.engine.values.spec import Spec
from fkeras.engine.values.structure import Ref


class Coord(NamedTuple):
    """The origin of a tensor: output number `tensor` of call number `node` of `layer`.

    Example:
        >>> from fkeras.engine import Coord
        >>> Coord("lstm", 1, 0)
        Coord(layer='lstm', node=1, tensor=0)
    """

    layer: str
    node: int
    tensor: int


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
    def args(self) -> Template:
        """Frozen tree of the positional arguments, `Ref(slot)` for tensors; None for an input."""
        return self._with_slots(self.signature.args)

    @functools.cached_property
    def options(self) -> Template:
        """Frozen dictionary of the arguments by name, `Ref(slot)` for tensors."""
        return self._with_slots(self.signature.options)

    def _with_slots(self, template: Template) -> Template:
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
class CallTable:
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
            loop, "stack" in one loop over layers that hold the stacked weights of all blocks, "share" by
            calls of one traced block; see `steps`.
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
    def input_dtypes(self) -> frozenset[str]:
        """The dtypes of the inputs."""
        return frozenset(self.specs[slot].dtype for slot in self.input_slots)

    @functools.cached_property
    def computed_dtypes(self) -> frozenset[str]:
        """The dtypes of the outputs that calls made."""
        computed_slots = set(self.output_slots) - set(self.input_slots)
        return frozenset(self.specs[slot].dtype for slot in computed_slots)

    @functools.cached_property
    def takes_integers(self) -> bool:
        """Whether an input of the graph holds integers."""
        return any(dtype.startswith(("int", "uint")) for dtype in self.input_dtypes)

    @functools.cached_property
    def calls_of(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the calls of each layer."""
        by_layer: dict[str, list[int]] = {name: [] for name in self.layers}
        for number, call in enumerate(self.calls):
            by_layer.setdefault(call.layer, []).append(number)
        return {name: tuple(numbers) for name, numbers in by_layer.items()}

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

    def node_key(self, number: int) -> str:
        """Returns the key of a call: the layer and the index among that layer's calls."""
        return f"{self.calls[number].layer}_ib-{self.node_indices[number]}"

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

    def call_specs(self, number: int, specs: Tree = None) -> tuple:
        """Returns the specs of a call's positional arguments, in their structure; None for other values.

        Args:
            number: the number of the call.
            specs: spec of each slot; the graph's own by default.
        """
        specs = self.specs if specs is None else specs
        return structure.fill_specs(self.calls[number].args, specs)

    def input_specs(self, number: int) -> tuple[tuple[Spec, ...], tuple[Spec | None, ...]]:
        """Returns the specs of a call's input tensors, and the specs of their masks."""
        slots = self.calls[number].inputs
        return tuple(self.specs[s] for s in slots), tuple(self.masks[s] for s in slots)

    def output_slots_of(self, number: int) -> range:
        """Returns the slots of the outputs of a call."""
        first = self.first_slots[number]
        return range(first, first + len(self.calls[number].outputs))

    def producer(self, slot: int) -> tuple[int, int]:
        """Returns `(call, output)` for a slot: number of the call, index of the output."""
        coord = self.coords[slot]
        return self.calls_of[coord.layer][coord.node], coord.tensor

    def shape_of(self, layer: str) -> tuple[Skeleton, tuple | None]:
        """Returns the static half of a bound layer, and its leaves as shapes if the layer is built."""
        assert self.shapes is not None
        return self.shapes[layer]

    @functools.cached_property
    def optional_slots(self) -> frozenset[int]:
        """The slots of the inputs that a call may leave out."""
        if self.shapes is None:
            return frozenset()
        statics = {
            slot: self.shape_of(self.coords[slot].layer)[0].static for slot in self.input_slots
        }
        return frozenset(slot for slot, static in statics.items() if static.get("optional"))

    @functools.cached_property
    def run_order(self) -> tuple[int, ...]:
        """The numbers of the calls in running order, without inputs; see `running_order`."""
        return running_order(self)

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        """The calls in running order; repeated blocks of calls are one step where they are scanned."""
        return self.run_order if self.depth == "unroll" else steps_with_repeats(self)

    def bind(self, layers: Mapping[str, Any]) -> Self:
        """Returns the graph with the layers of a network, from which `effects` are inferred.

        A graph of stacked blocks keeps its layers: the weights of one layer stand for all blocks.
        """
        if self.depth == "stack":
            return self
        return dataclasses.replace(self, shapes=shapes_of_layers(layers))
