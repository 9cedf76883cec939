"""The part of a network that the host computes: arrays of strings in, NumPy arrays out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.core import Tracer

from fkeras.engine.call.network_inputs import check_shape, match_inputs
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Leaf, Network, Tree
from fkeras.engine.values.frozen import is_array
from fkeras.engine.values.spec import STRING, Spec, as_dims, as_spec
from fkeras.engine.values.structure import Ref, fill_tensors
from fkeras.engine.values.texts import check_texts, listed_texts


def read_inputs(
    network: Network, inputs: tuple, mask: Tree, options: Mapping[str, Any]
) -> list[Any]:
    """Returns the inputs of a call in the order of the graph's inputs, with strings as NumPy arrays.

    Args:
        mask: the mask that was passed, which must be None.

    Raises:
        TypeError: for a mask or options.
        FKerasError: for inputs of another structure or shape, and for numbers instead of strings.
    """
    if mask is not None or options:
        names = ", ".join([*options, *(["mask"] if mask is not None else [])])
        raise TypeError(
            f"{network._where}: a model with string inputs takes inputs by position only, received "
            f"{names}. Leave {names} out."
        )
    graph = network.graph
    arrays = []
    for slot, value in zip(graph.input_slots, match_texts(network, inputs), strict=True):
        if graph.specs[slot].dtype == STRING:
            value = as_strings(value, f"{network._where}, input {graph.coords[slot].layer!r}")
            check_shape(network, slot, Spec(as_dims(value.shape), STRING))
        elif is_array(value):  # non-arrays are rejected later, when the device half runs
            check_shape(network, slot, as_spec(value))
        arrays.append(value)
    return arrays


def match_texts(network: Network, inputs: tuple) -> list[Any]:
    """Returns the inputs of a call as `match_inputs`; a list of strings is one array.

    Raises:
        FKerasError: for inputs in another structure.
    """
    if isinstance(network.graph.inputs, Ref) and len(inputs) == 1 and _is_listed(inputs[0]):
        inputs = (listed_texts(inputs[0], network._where),)
    return match_inputs(network, inputs)


def run_on_host(network: Network, arrays: list[Any]) -> Tree:
    """Computes the value of a network whose calls all run on the host.

    Args:
        arrays: an array for each input, in the order of the graph's inputs.
    """
    graph = network.graph
    slots = new_slots(graph, arrays)

    def compute(_: int, call: Call) -> Tree:
        args = (_on_host(arg) for arg in fill_tensors(call.args, slots))
        return network.layers[call.layer].apply(*args).value

    return run_calls(graph, slots, compute)


def _on_host(tree: Tree) -> Tree:
    template, leaves = structure.number(tree)
    kept_types = (Tracer,)  # a layer of strings rejects tracers with its own message
    leaves = [leaf if isinstance(leaf, kept_types) else np.asarray(leaf) for leaf in leaves]
    return structure.fill(template, leaves)


def _is_listed(value: Tree) -> bool:
    """Returns whether a value is a string, or a list of values and no list of arrays."""
    is_list = isinstance(value, list | tuple)
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, str | bytes) or (is_list and not hasattr(value, "shape"))


def as_strings(value: Leaf, where: str) -> np.ndarray:
    """Returns a list, an array or a column of strings as a NumPy array.

    Raises:
        FKerasError: for an array of other values.
        ValueError: for missing values.
        TypeError: for other elements that are not strings.
    """
    if isinstance(value, list | tuple | str | bytes):
        array = listed_texts(value, where)
    else:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    if array.dtype.kind not in "OSUT":
        raise FKerasError(
            f"{where}: expected strings, received {array.dtype}. Pass a list or a NumPy array of "
            "texts."
        )
    if array.dtype.kind not in "SU":
        check_texts(array.ravel().tolist(), array.shape, where)
    return array
