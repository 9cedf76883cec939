"""Graphs that begin or end with strings: what is for the host, and what is left for the device.

XLA has no strings. A graph may have inputs of the dtype "string", which only layers that read them
take (text, lookup and hashing layers): these calls run with NumPy, and everything after them is a
graph of numbers, one compiled program as any other. `split` is the cut between the two. What a
graph returns may be strings again, of lookups that are inverted: `split_after` cuts these off.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import jax
import numpy as np

from fkeras.engine.call.call_arguments import fill_tensors
from fkeras.engine.call.network_inputs import check_shape, match_inputs
from fkeras.engine.call.record import record
from fkeras.engine.graph.graph import Call
from fkeras.engine.graph.walk import new_slots, put_outputs, run_calls
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.symbolic.input import InputLayer, symbolic
from fkeras.engine.values import structure
from fkeras.engine.values.frozen import is_array
from fkeras.engine.values.spec import STRING, Spec, as_dims, as_spec
from fkeras.engine.values.structure import Ref

Make = Callable[[Any, Any, str | None], Any]


def on_host(network: Any) -> bool:
    """Whether every call of a network takes strings, so that nothing is left for the device."""
    return all(_stays(network, call) for call in network.graph.calls)


def _stays(network: Any, call: Call) -> bool:
    """Whether a call, or an input, is on the host as a whole."""
    if call.is_input:
        return True
    layer = network.layers[call.layer]
    whole = getattr(layer, "graph", None) is None or on_host(layer)
    return whole and _takes_strings(network.graph, call)


def _takes_strings(graph: Any, call: Call) -> bool:
    return any(graph.specs[slot].dtype == STRING for slot in call.inputs)


# -- the cut --------------------------------------------------------------------------------------


def split(network: Any, make: Make) -> tuple[Any, Any]:
    """`(host, device)`: a network as two, of which the second takes what the first one gives.

    An array alone is handed over as it is, several in a dictionary by the names of the layers and
    inputs that they come from.

    Args:
        network: a network with inputs of strings that does not end on the host.
        make: makes a network of symbolic inputs, outputs and a name.

    Raises:
        FKerasError: where a layer needs strings and, beside them, what the device computed.
    """
    cut = _Cut(network, make)
    outputs = run_calls(network.graph, cut.device, cut.record_call)
    return cut.halves(outputs)


def split_after(network: Any, make: Make) -> tuple[Any, Any]:
    """`(front, after)`: a network as two, of which the second makes the strings that it returns.

    Args:
        network: a network that returns strings.
        make: makes a network of symbolic inputs, outputs and a name.

    Raises:
        FKerasError: where a call takes strings that the network made.
    """
    graph, tensors = network.graph, network._open()
    border: dict[str, tuple[Any, Any]] = {}
    # only the calls that make strings, and what they take, get tensors in `slots`
    slots: list[Any] = [None] * len(graph.specs)

    def hand_over(slot: int) -> None:
        if slots[slot] is None:
            name = _free(graph.coords[slot].layer, border)
            spec = graph.specs[slot]
            slots[slot] = symbolic(InputLayer(spec.dims, dtype=spec.dtype, name=name))
            border[name] = (tensors[slot], slots[slot])

    strings: set[int] = set()

    def record_call(number: int, call: Call) -> Any:
        layer = network.layers[call.layer]
        if strings.intersection(call.inputs):
            raise FKerasError(
                f"{layer.where}: takes strings that the model made, which are "
                "on the host. Look them up outside of the model.",
                layer=call.layer,
            )
        if not layer.makes_strings:
            return None
        for slot in call.inputs:
            hand_over(slot)
        strings.update(graph.output_slots_of(number))
        return record(layer, fill_tensors(call.args, slots), {}, None, call.mask_rule)

    run_calls(graph, slots, record_call)
    for slot in graph.output_slots:
        hand_over(slot)
    given, taken = ({k: pair[i] for k, pair in border.items()} for i in (0, 1))
    front = make(network.inputs, given, network.name)
    name = None if network.name is None else f"{network.name}_after"
    return front, make(taken, structure.fill(graph.outputs, slots), name)


class _Cut:
    """Records the calls of a network in two graphs, with a border where arrays are handed over."""

    def __init__(self, network: Any, make: Make):
        self.network, self.graph, self.make = network, network.graph, make
        inputs = [symbolic(network.layers[name]) for name in self.graph.input_names]
        self.host = new_slots(self.graph, inputs)
        # an input of strings exists on the host only
        on_device = [None if tensor.dtype == STRING else tensor for tensor in inputs]
        self.device = new_slots(self.graph, on_device)
        self.border: dict[str, tuple[Any, Any]] = {}
        self.used = set(self.graph.output_slots)
        # names that an array at the border cannot have: of inputs, and of what is on the device
        self.taken = set(self.graph.input_names)
        self.taken |= {call.layer for call in self.graph.calls if not _stays(network, call)}

    def record_call(self, number: int, call: Call) -> Any:
        """Records a call where the call belongs; returns the outputs for the device."""
        if _takes_strings(self.graph, call):
            return self._call_on_host(number, call)
        self.used.update(call.inputs)
        options = fill_tensors(call.options, self.device)
        args = fill_tensors(call.args, self.device)
        return record(self._layer(call), args, options, call.training, call.mask_rule)

    def _call_on_host(self, number: int, call: Call) -> Any:
        layer = self._layer(call)
        lacking = next((s for s in call.inputs if self.host[s] is None), None)
        if lacking is not None:
            raise FKerasError(
                f"{layer.where}: takes strings, which are on the host, and beside them the output "
                f"of {self.graph.coords[lacking].layer!r}, which the device computes. Give it "
                "inputs of the model alone.",
                layer=layer.where,
            )
        args = fill_tensors(call.args, self.host)
        if _stays(self.network, call):
            value = layer(*args)
            put_outputs(self.graph, self.host, number, value)
            return self._hand_over(call.layer, value)
        host, device = split(layer, self.make)
        handed = self._hand_over(call.layer, host(*args))
        return record(device, (handed,), {}, call.training, call.mask_rule)

    def _layer(self, call: Call) -> Any:
        return self.network.layers[call.layer]

    def _hand_over(self, name: str, tree: Any) -> Any:
        """The tensors of the host as inputs of the device."""
        template, tensors = structure.number(tree)
        return structure.fill(template, [self._pass(name, tensor) for tensor in tensors])

    def _pass(self, name: str, tensor: Any) -> Any:
        free = _free(name, self.border.keys() | self.taken)
        taken = symbolic(InputLayer(tensor.spec.dims, dtype=tensor.dtype, name=free))
        self.border[free] = (tensor, taken)
        return taken

    def halves(self, outputs: Any) -> tuple[Any, Any]:
        graph, network = self.graph, self.network
        if any(self.device[slot] is None for slot in graph.output_slots):
            raise FKerasError(
                f"{network.where}: returns an input of strings as it is, which no device can. "
                "Leave it out of the outputs.",
                layer=network.where,
            )
        for slot in graph.input_slots:
            if slot in self.used and self.device[slot] is not None:
                self.border[graph.coords[slot].layer] = (self.host[slot], self.device[slot])
        given, taken = ({k: pair[i] for k, pair in self.border.items()} for i in (0, 1))
        if len(self.border) == 1:
            (given,), (taken,) = given.values(), taken.values()
        name = None if network.name is None else f"{network.name}_host"
        host = self.make(structure.fill(graph.inputs, self.host), given, name)
        return host, self.make(taken, outputs, network.name)


def _free(name: str, taken: Container[str]) -> str:
    """The name, or the first one after it that is free."""
    free, number = name, 1
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


# -- running --------------------------------------------------------------------------------------


def read_inputs(network: Any, given: tuple, mask: Any, options: Mapping[str, Any]) -> list[Any]:
    """The inputs of a call in the order of the graph's, with strings as NumPy arrays.

    Raises:
        TypeError: for a mask or options, which strings do not have.
        FKerasError: for inputs of another structure or shape, and numbers in the place of strings.
    """
    if mask is not None or options:
        names = ", ".join([*options, *(["mask"] if mask is not None else [])])
        raise TypeError(
            f"{network.where}: a model of strings takes its inputs by position alone, received "
            f"{names}. Leave it out."
        )
    graph = network.graph
    if isinstance(graph.inputs, Ref) and len(given) == 1 and _is_text(given[0]):
        given = (np.asarray(given[0]),)
    found = []
    for slot, value in zip(graph.input_slots, match_inputs(network, given), strict=True):
        if graph.specs[slot].dtype == STRING:
            value = _as_text(value, f"{network.where}, input {graph.coords[slot].layer!r}")
            check_shape(network, slot, Spec(as_dims(value.shape), STRING))
        elif is_array(value):  # what is none is told where the device's part is called
            check_shape(network, slot, as_spec(value))
        found.append(value)
    return found


def run_on_host(network: Any, arrays: list[Any]) -> Any:
    """The value of a network whose calls all take strings, computed with NumPy."""
    graph = network.graph
    slots = new_slots(graph, arrays)

    def compute(_: int, call: Call) -> Any:
        args = (_on_host(arg) for arg in fill_tensors(call.args, slots))
        return network.layers[call.layer].apply(*args).value

    return run_calls(graph, slots, compute)


def _on_host(tree: Any) -> Any:
    template, leaves = structure.number(tree)
    traced = (jax.core.Tracer,)  # which a layer of strings refuses in its own words
    leaves = [leaf if isinstance(leaf, traced) else np.asarray(leaf) for leaf in leaves]
    return structure.fill(template, leaves)


def _is_text(value: Any) -> bool:
    """Whether a value is a text, or lists of texts."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, str | bytes)


def _as_text(value: Any, place: str) -> np.ndarray:
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    if array.dtype.kind not in "OSUT":
        raise FKerasError(
            f"{place}: expected strings, received {array.dtype}. Give a list or a NumPy array of "
            "texts."
        )
    return array
