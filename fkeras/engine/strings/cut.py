"""Graphs with strings: split into a part on the host and a part on the device.

XLA has no strings. Inputs of the dtype "string" go only to text, lookup and hashing layers. The calls
of these layers run on the host with NumPy; all other calls are a graph of numbers, which JAX compiles.
`split` separates the two. Inverted lookups return strings: `split_after` cuts them off behind the
compiled part.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, cast

from fkeras.engine.call.node import record
from fkeras.engine.call.strings import makes_strings
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.walk import new_slots, put_outputs, run_calls
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.symbolic.input import InputLayer, symbolic
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Graph, Layer, Network, SymbolicTensor, Tree
from fkeras.engine.values.spec import STRING
from fkeras.engine.values.structure import fill_tensors

Make = Callable[[Any, Any, str | None], Any]


def on_host(network: Network) -> bool:
    """Returns whether every call of a network takes strings, so the device has nothing to compute."""
    return all(_runs_on_host(network, call) for call in network.graph.calls)


def _runs_on_host(network: Network, call: Call) -> bool:
    """Returns whether a call, or an input, is entirely on the host."""
    if call.is_input:
        return True
    layer = network.layers[call.layer]
    is_whole = getattr(layer, "graph", None) is None or on_host(cast("Network", layer))
    return is_whole and _takes_strings(network.graph, call)


def _takes_strings(graph: Graph, call: Call) -> bool:
    return any(graph.specs[slot].dtype == STRING for slot in call.inputs)


# -- the cut --------------------------------------------------------------------------------------


def split(network: Network, make: Make) -> tuple[Any, Any]:
    """Returns `(host, device)`: two networks of which the second takes the outputs of the first.

    A single array is passed directly, several arrays in a dictionary by the names of the layers and
    inputs that they come from.

    Raises:
        FKerasError: for a layer that takes both strings and arrays computed on the device.
    """
    splitter = _Cut(network, make)
    outputs = run_calls(network.graph, splitter.device, splitter.record_call)
    return splitter.halves(outputs)


def split_after(network: Network, make: Make) -> tuple[Any, Any]:
    """Returns `(front, after)`: two networks of which the second makes the returned strings.

    Raises:
        FKerasError: for a call that takes strings made inside the network.
    """
    graph, tensors = network.graph, network._open()
    crossing_tensors: dict[str, tuple[Any, Any]] = {}
    # only calls that make strings, and their inputs, get tensors in `slots`
    slots: list[Any] = [None] * len(graph.specs)

    def cross(slot: int) -> None:
        if slots[slot] is None:
            name = _free(graph.coords[slot].layer, crossing_tensors)
            spec = graph.specs[slot]
            slots[slot] = symbolic(InputLayer(batch_shape=spec.dims, dtype=spec.dtype, name=name))
            crossing_tensors[name] = (tensors[slot], slots[slot])

    strings: set[int] = set()

    def record_call(number: int, call: Call) -> Tree:
        layer = network.layers[call.layer]
        if strings.intersection(call.inputs):
            raise FKerasError(
                f"{layer._where}: takes strings computed by the model, which exist only on the host "
                "after the device part. Call this layer outside the model.",
                layer=call.layer,
            )
        if not makes_strings(layer):
            return None
        for slot in call.inputs:
            cross(slot)
        strings.update(graph.output_slots_of(number))
        return record(layer, fill_tensors(call.args, slots), {}, None, call.mask_rule)

    run_calls(graph, slots, record_call)
    # outputs without strings pass through the second network unchanged
    for slot in graph.output_slots:
        cross(slot)
    first_outputs, second_inputs = (
        {k: pair[i] for k, pair in crossing_tensors.items()} for i in (0, 1)
    )
    first_part = make(network.inputs, first_outputs, network.name)
    name = None if network.name is None else f"{network.name}_after"
    return first_part, make(second_inputs, structure.fill(graph.outputs, slots), name)


class _Cut:
    """Records the calls of a network in two graphs and collects the tensors at the border.

    Attributes:
        host: the tensor of each slot in the graph for the host; None for a slot of the device.
        device: the tensor of each slot in the graph for the device; None for strings.
        border: by name the tensor that the host returns and the tensor that the device takes.
        used: the slots that the device needs.
        taken: names that a tensor at the border cannot have.
    """

    def __init__(self, network: Network, make: Make):
        self.network, self.graph, self.make = network, network.graph, make
        inputs = [
            symbolic(cast(InputLayer, network.layers[name])) for name in self.graph.input_names
        ]
        self.host = new_slots(self.graph, inputs)
        # an input of strings exists on the host only
        on_device = [None if tensor.dtype == STRING else tensor for tensor in inputs]
        self.device = new_slots(self.graph, on_device)
        self.border: dict[str, tuple[Any, Any]] = {}
        self.used = set(self.graph.output_slots)
        # layers of the device keep their names, so that states and weights keep their paths
        self.taken = set(self.graph.input_names)
        self.taken |= {call.layer for call in self.graph.calls if not _runs_on_host(network, call)}

    def record_call(self, number: int, call: Call) -> Tree:
        """Records a call on the host or the device; returns the outputs for the device."""
        if _takes_strings(self.graph, call):
            return self._call_on_host(number, call)
        self.used.update(call.inputs)
        options = fill_tensors(call.options, self.device)
        args = fill_tensors(call.args, self.device)
        return record(self._layer(call), args, options, call.training, call.mask_rule)

    def _call_on_host(self, number: int, call: Call) -> Tree:
        layer = self._layer(call)
        device_slot = next((s for s in call.inputs if self.host[s] is None), None)
        if device_slot is not None:
            raise FKerasError(
                f"{layer._where}: takes strings from the host together with the output of "
                f"{self.graph.coords[device_slot].layer!r} from the device. Call the layer on model "
                "inputs only.",
                layer=layer._where,
            )
        args = fill_tensors(call.args, self.host)
        if _runs_on_host(self.network, call):
            value = layer(*args)
            put_outputs(self.graph, self.host, number, value)
            return self._pass_tree(call.layer, value)
        host, device = split(cast("Network", layer), self.make)
        arrays = self._pass_tree(call.layer, host(*args))
        return record(device, (arrays,), {}, call.training, call.mask_rule)

    def _layer(self, call: Call) -> Layer:
        return self.network.layers[call.layer]

    def _pass_tree(self, name: str, tree: Tree) -> Tree:
        """Returns inputs of the device for the tensors that the host returns."""
        template, tensors = structure.number(tree)
        return structure.fill(template, [self._pass(name, tensor) for tensor in tensors])

    def _pass(self, name: str, tensor: SymbolicTensor) -> Tree:
        input_name = _free(name, self.border.keys() | self.taken)
        device_input = symbolic(
            InputLayer(batch_shape=tensor.spec.dims, dtype=tensor.dtype, name=input_name)
        )
        self.border[input_name] = (tensor, device_input)
        return device_input

    def halves(self, outputs: Tree) -> tuple[Any, Any]:
        graph, network = self.graph, self.network
        if any(self.device[slot] is None for slot in graph.output_slots):
            raise FKerasError(
                f"{network._where}: a string input is also an output; devices hold no strings. "
                "Leave the input out of the outputs.",
                layer=network._where,
            )
        for slot in graph.input_slots:
            if slot in self.used and self.device[slot] is not None:
                self.border[graph.coords[slot].layer] = (self.host[slot], self.device[slot])
        host_outputs, device_inputs = (
            {k: pair[i] for k, pair in self.border.items()} for i in (0, 1)
        )
        if len(self.border) == 1:
            (host_outputs,), (device_inputs,) = host_outputs.values(), device_inputs.values()
        name = None if network.name is None else f"{network.name}_host"
        host = self.make(structure.fill(graph.inputs, self.host), host_outputs, name)
        return host, self.make(device_inputs, outputs, network.name)


def _free(name: str, used_names: Container[str]) -> str:
    """Returns the name, or the name with the first number that makes it free."""
    candidate, number = name, 1
    while candidate in used_names:
        candidate, number = f"{name}_{number}", number + 1
    return candidate
