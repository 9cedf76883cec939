"""One run of a network's graph on arrays: values, masks, state updates, losses and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.mask_rules import KERAS, AttachedMasks, call_mask
from fkeras.engine.call.network_inputs import check_input, match_inputs, match_masks
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.repeats import Repeat, Step
from fkeras.engine.graph.walk import new_slots, put_outputs, run_steps
from fkeras.engine.network.scanning import scan_blocks
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Layer, Leaf, Network, Tree
from fkeras.engine.values.structure import fill_arrays


class Execution:
    """Computes the calls of a network and collects updates, losses and metrics.

    An execution lives as long as one call of the network, which itself stays a value.

    Args:
        network: a built network.
        context: the context of the network's call.
        inputs: the inputs as they were passed.
    """

    def __init__(self, network: Network, context: Context, inputs: tuple):
        graph = network.graph
        self.network, self.graph, self.context = network, graph, context
        self.layers: Mapping[str, Layer] = network.layers
        self.state = context.state
        # for calls in a loop over blocks: salts and indices
        self.salts: dict[int, Any] = {}
        arrays = match_inputs(network, inputs)
        input_masks = match_masks(network, context.mask)
        # masks by slot under the rules "strict" and "drop", by array under Keras 3's rule
        self.attached: AttachedMasks | None = None
        if graph.attaches_masks:
            self.attached = AttachedMasks() if context.attached is None else context.attached
        pairs = zip(graph.input_slots, arrays, strict=True)
        self.slots = new_slots(graph, [self._checked(slot, array) for slot, array in pairs])
        self.masks = new_slots(graph, input_masks)
        for slot, mask in zip(graph.input_slots, input_masks, strict=True):
            if self.attached is not None and mask is not None:
                self.attached.attach(self.slots[slot], mask)
        self.updates: dict[str, Any] = {}
        self.losses: dict[int, tuple] = {}
        self.metrics: dict[str, Any] = {}

    def output(self) -> Output:
        """Runs all calls and returns the network's `Output`."""
        graph, state = self.graph, self.context.state
        self.run(graph.steps)
        value = structure.fill(graph.outputs, self.slots)
        masks = {slot: self.mask_of(slot) for slot in graph.output_slots}
        has_mask = any(mask is not None for mask in masks.values())
        return Output(
            value,
            updates={**state, **self.updates} if self.updates else {},
            # in the order of the graph's calls, which may differ from the running order
            losses=tuple(loss for number in sorted(self.losses) for loss in self.losses[number]),
            metrics=self.metrics,
            mask=structure.fill(graph.outputs, masks) if has_mask else None,
        )

    def _checked(self, slot: int, array: Leaf) -> Leaf:
        """Returns an input as the array that the graph takes."""
        return check_input(self.network, slot, array)

    def run(self, steps: Iterable[Step]) -> None:
        """Computes calls and repeated blocks of calls."""
        run_steps(self.graph, self.slots, steps, self._compute, self._repeat)

    def _repeat(self, repeat: Repeat) -> None:
        scan_blocks(self, repeat)

    def _compute(self, number: int, call: Call) -> Tree:
        out = self._call_layer(number, call)
        if out.updates:
            self.updates[call.layer] = out.updates
        self.losses[number] = out.losses
        self._add_metrics(call.layer, out.metrics)
        if self.attached is None:
            put_outputs(self.graph, self.masks, number, out.mask)
        elif call.mask_rule != KERAS:
            return self.attached.separate(out.value, out.mask)
        return out.value

    def _call_layer(self, number: int, call: Call) -> Output:
        layer = self.layers[call.layer]
        args = fill_arrays(call.args, self.slots)
        options = fill_arrays(call.options, self.slots)
        mask = call_mask(layer, call.mask_rule, call.args, options, self.mask_of)
        # a layer that is called again receives the state of its call before
        state = self.updates.get(call.layer, self.state.get(call.layer, {}))
        salt, index = self.salts.get(number, (None, self.graph.node_indices[number]))
        context = self.context.child(
            call.layer,
            index,
            state=state,
            training=self.context.training if call.training is None else call.training,
            mask=mask,
            salt=salt,
        )
        context.attached = self.attached if call.mask_rule == KERAS else None
        return context.run(layer, *args, **options)

    def mask_of(self, slot: int) -> Tree:
        """Returns the mask of a slot, which Keras 3's rule may have attached or detached."""
        if self.attached is None:
            return self.masks[slot]
        return self.attached.of_array(self.slots[slot])

    def entry(self, slot: int) -> tuple[Any, Any]:
        """Returns the array of a slot and its mask."""
        return self.slots[slot], self.mask_of(slot)

    def put(self, slot: int, array: Leaf, mask: Tree) -> None:
        """Puts an array and its mask into a slot."""
        self.slots[slot] = array
        if self.attached is None:
            self.masks[slot] = mask
        else:
            self.attached.attach(array, mask)

    def _add_metrics(self, layer: str, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            if name in self.metrics:
                raise ValueError(
                    f"{self.network._where}: two calls report the metric {name!r}, the second in "
                    f"{layer!r}. Give the metrics different names in the Output of the layers."
                )
            self.metrics[name] = value
