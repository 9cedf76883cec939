"""Queries on a closed graph, named like the attributes of Keras's layers.

`graph.layer("lstm")` has `input`, `output_shape`, `get_output_at(1)` and so on. All answers come from
the graph: a layer stores nothing about its calls.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from fkeras.engine.graph.call_table import Coord
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values.annotations import Tree
from fkeras.engine.values.spec import Spec


class GraphTensor(NamedTuple):
    """A tensor of a closed graph: its coordinates, spec and the spec of its mask.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3,))
        >>> model = fk.Model(x, fk.layers.Dense(2)(x))
        >>> model.graph.layer("dense").output.shape
        (None, 2)
    """

    coord: Coord
    spec: Spec
    mask: Spec | None

    @property
    def shape(self) -> tuple[int | None, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> str:
        return self.spec.dtype


# as in Keras, a layer with one input has a tensor as its `input`, not a list
def _single(values: list) -> Any:
    return values[0] if len(values) == 1 else values


@dataclasses.dataclass(frozen=True)
class NodeView:
    """One call in a closed graph, with the field names of Keras's nodes."""

    outbound_layer: str
    inbound_layers: tuple[str, ...]
    node_indices: tuple[int, ...]
    tensor_indices: tuple[int, ...]
    input_tensors: tuple[GraphTensor, ...]
    output_tensors: tuple[GraphTensor, ...]
    arguments: dict

    @property
    def input_masks(self) -> tuple[Spec | None, ...]:
        return tuple(t.mask for t in self.input_tensors)

    @property
    def output_masks(self) -> tuple[Spec | None, ...]:
        return tuple(t.mask for t in self.output_tensors)

    @property
    def input_shapes(self) -> tuple:
        return tuple(t.shape for t in self.input_tensors)

    @property
    def output_shapes(self) -> tuple:
        return tuple(t.shape for t in self.output_tensors)


@dataclasses.dataclass(frozen=True)
class LayerView:
    """The calls of one layer in a graph.

    `input` and `output` exist for a layer with one call. For a layer with several calls, use
    `get_input_at(i)` and `get_output_at(i)`.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> shared = fk.layers.Dense(2, name="shared")
        >>> model = fk.Model(x, [shared(x), shared(x)])
        >>> model.graph.layer("shared").get_output_at(1).coord
        Coord(layer='shared', node=1, tensor=0)
    """

    graph: Any
    name: str

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """The layer's calls."""
        return tuple(self._node(i) for i in range(len(self._numbers)))

    @property
    def _numbers(self) -> tuple[int, ...]:
        return self.graph.calls_of.get(self.name, ())

    def _tensor(self, slot: int) -> GraphTensor:
        return GraphTensor(self.graph.coords[slot], self.graph.specs[slot], self.graph.masks[slot])

    def _node(self, index: int) -> NodeView:
        number = self._numbers[index]
        call, first = self.graph.calls[number], self.graph.first_slots[number]
        outputs = tuple(self._tensor(first + i) for i in range(len(call.outputs)))
        # an input of the graph is its own output
        inputs = outputs if call.is_input else tuple(self._tensor(s) for s in call.inputs)
        coords = [] if call.is_input else [t.coord for t in inputs]
        options = {} if call.is_input else dict(zip(call.options.keys, call.options.children))  # noqa: B905
        if call.training is not None:
            options["training"] = call.training
        return NodeView(
            outbound_layer=self.name,
            inbound_layers=tuple(c.layer for c in coords),
            node_indices=tuple(c.node for c in coords),
            tensor_indices=tuple(c.tensor for c in coords),
            input_tensors=inputs,
            output_tensors=outputs,
            arguments=options,
        )

    def _at(self, index: int, attribute: str, noun: str) -> Any:
        count = len(self._numbers)
        if not 0 <= index < count:
            raise FKerasError(
                f"{self.name!r}: asked for the {noun} of call {index}, but the layer has {count} "
                f"call{'s' if count != 1 else ''} in this graph. Give an index from 0 to "
                f"{count - 1}.",
                layer=self.name,
                node=index,
            )
        return _single(list(getattr(self._node(index), attribute)))

    def _only(self, attribute: str, noun: str) -> Any:
        count = len(self._numbers)
        if count != 1:
            raise FKerasError(
                f"{self.name!r}: is called {count} times in this graph, so it has no single "
                f"{noun}. Name the call: get_{noun.replace(' ', '_')}_at(0).",
                layer=self.name,
            )
        return self._at(0, attribute, noun)

    def _agreed(self, attribute: str, noun: str) -> Any:
        values = [self._at(i, attribute, noun) for i in range(len(self._numbers))]
        # Keras's `output_shape` too exists for a shared layer only if its calls agree
        if any(v != values[0] for v in values):
            value_texts = ", ".join(map(str, values[:4]))
            raise FKerasError(
                f"{self.name!r}: its calls have different {noun}s: {value_texts}. Name the call: "
                f"get_{noun.replace(' ', '_')}_at(0).",
                layer=self.name,
            )
        return values[0]

    def get_losses_for(self, inputs: Tree) -> tuple[str, ...]:
        """Returns the sources of losses for these inputs, with one entry for each loss.

        Args:
            inputs: a tensor of this graph, its coordinates, or a list of them: selects the calls on
                exactly these tensors. None selects the layer itself, whose penalties on weights do
                not depend on inputs.
        """
        if inputs is None:
            return (self.name,) * self.graph.effects[self._numbers[0]].penalties
        return tuple(
            self.graph.node_key(n)
            for n in self._calls_on(inputs)
            for _ in range(self.graph.effects[n].losses)
        )

    def get_updates_for(self, inputs: Tree) -> tuple[str, ...]:
        """Returns the calls on exactly these inputs that change the layer's state in training.

        Args:
            inputs: tensors or coordinates as in `get_losses_for`; None selects no calls.
        """
        calls = () if inputs is None else self._calls_on(inputs)
        return tuple(self.graph.node_key(n) for n in calls if self.graph.effects[n].updates)

    def _calls_on(self, inputs: Tree) -> list[int]:
        is_single = isinstance(inputs, Coord | GraphTensor)
        tensors = [inputs] if is_single else list(inputs)
        slots = tuple(
            self.graph.slot(*(t.coord if isinstance(t, GraphTensor) else t)) for t in tensors
        )
        return [n for n in self._numbers if self.graph.calls[n].inputs == slots]

    @property
    def input(self) -> Any:
        """The input tensor, or list of input tensors, of the only call."""
        return self._only("input_tensors", "input")

    @property
    def output(self) -> Any:
        """The output tensor, or list of output tensors, of the only call."""
        return self._only("output_tensors", "output")

    @property
    def input_mask(self) -> Any:
        """The spec of the input's mask in the only call."""
        return self._only("input_masks", "input mask")

    @property
    def output_mask(self) -> Any:
        """The spec of the output's mask in the only call."""
        return self._only("output_masks", "output mask")

    @property
    def input_shape(self) -> Any:
        """The input's shape, if all calls have the same."""
        return self._agreed("input_shapes", "input shape")

    @property
    def output_shape(self) -> Any:
        """The output's shape, if all calls have the same."""
        return self._agreed("output_shapes", "output shape")

    def get_input_at(self, index: int) -> Any:
        """Returns the input tensor, or list of input tensors, of call `index`."""
        return self._at(index, "input_tensors", "input")

    def get_output_at(self, index: int) -> Any:
        """Returns the output tensor, or list of output tensors, of call `index`."""
        return self._at(index, "output_tensors", "output")

    def get_input_shape_at(self, index: int) -> Any:
        """Returns the input's shape in call `index`."""
        return self._at(index, "input_shapes", "input shape")

    def get_output_shape_at(self, index: int) -> Any:
        """Returns the output's shape in call `index`."""
        return self._at(index, "output_shapes", "output shape")

    def get_input_mask_at(self, index: int) -> Any:
        """Returns the spec of the input's mask in call `index`."""
        return self._at(index, "input_masks", "input mask")

    def get_output_mask_at(self, index: int) -> Any:
        """Returns the spec of the output's mask in call `index`."""
        return self._at(index, "output_masks", "output mask")
