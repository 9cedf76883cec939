"""Inputs and masks of a network's call: matched with the inputs of the graph, checked and cast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.config.policy import cast_floats
from fkeras.engine.messages.errors import FKerasError, suggest
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Graph, Network, Template, Tree
from fkeras.engine.values.arrays import is_array_like, read_array
from fkeras.engine.values.frozen import is_array
from fkeras.engine.values.spec import STRING, Spec, as_spec
from fkeras.engine.values.structure import Branch, Ref


def match_inputs(network: Network, arguments: tuple, noun: str = "inputs") -> list[Any]:
    """The inputs of a call in the order of the graph's inputs.

    Raises:
        FKerasError: for inputs in another structure.
    """
    template = network.graph.inputs
    tree = arguments[0] if len(arguments) == 1 else list(arguments)
    values = in_order(network.graph, tree)
    if values is None and not isinstance(tree, list | tuple | Mapping):
        values = structure.match(template, [tree])  # one array serves a list of one input
    if values is not None:
        return values
    if isinstance(tree, Mapping):
        is_dict = isinstance(template, Branch) and template.kind == "dict"
        _raise_keys(network, template.keys if is_dict else network.graph.input_names, tree, noun)
    names = network.graph.input_names
    expected = structure.draw(template, lambda slot: network.graph.coords[slot].layer)
    # JAX warns about an iterator as a leaf, unless `is_leaf` accepts the iterator
    leaves = jax.tree.leaves(
        arguments, is_leaf=lambda v: isinstance(v, Spec) or hasattr(v, "__next__")
    )
    count = len(leaves)
    is_list = len(arguments) == 1 and isinstance(tree, list | tuple)
    received = f"a {type(tree).__name__} of {count}" if is_list else count
    remedy = "Pass them in that structure."
    if hasattr(tree, "columns"):
        received, remedy = "a table", "Pass its columns: {name: x[[name]] for name in x}."
    if any(isinstance(value, Mapping) and "params" in value for value in arguments):
        remedy = "The model holds the weights: `model.apply(x, state=state)`."
    raise FKerasError(
        f"{network._where}: expected {len(names)} {noun} as {expected}, received {received}. {remedy}",
        layer=network._where,
    )


def in_order(graph: Graph, x: Tree) -> list[Any] | None:
    """The arrays of `x` in the order of the graph's inputs; None for another structure.

    As in Keras, a list of one array serves a single input, and a dictionary by the names of the inputs
    serves a single input or a list of inputs. Optional inputs may be left out, by position only the
    last ones; their place holds None.
    """
    template = graph.inputs
    is_dict = isinstance(template, Branch) and template.kind == "dict"
    if isinstance(x, Mapping) and not is_dict:
        names, slots = graph.input_names, graph.input_slots
        needed = {
            name
            for name, slot in zip(names, slots, strict=True)
            if slot not in graph.optional_slots
        }
        return [x.get(name) for name in names] if needed <= {*x} <= {*names} else None
    if isinstance(template, Ref):
        x = x[0] if isinstance(x, list | tuple) and len(x) == 1 else x
        return None if isinstance(x, list | tuple) else [x]
    values = structure.match(template, x)
    return _with_omitted(graph, x) if values is None and graph.optional_slots else values


def _omits(graph: Graph, template: Template) -> bool:
    """Returns whether a call may leave out this part of the inputs."""
    return isinstance(template, Ref) and template.index in graph.optional_slots


def _with_omitted(graph: Graph, x: Tree) -> list[Any] | None:
    """The arrays in the order of the graph's inputs, None for optional inputs that `x` leaves out."""
    template = graph.inputs
    if not isinstance(template, Branch):
        return None
    if template.kind == "dict":
        if not isinstance(x, Mapping):
            return None
        needed = {
            k for k, c in zip(template.keys, template.children, strict=True) if not _omits(graph, c)
        }
        complete = needed <= {*x} <= {*template.keys}
        return structure.match(template, {k: x.get(k) for k in template.keys}) if complete else None
    items = list(x) if isinstance(x, list | tuple) else [x]
    omitted = template.children[len(items) :]
    if not omitted or not all(_omits(graph, child) for child in omitted):
        return None
    return structure.match(template, [*items, *(None,) * len(omitted)])


def _raise_keys(network: Network, names: Sequence[Any], tree: Mapping, noun: str) -> None:
    missing_keys = [k for k in names if k not in tree]
    unknown_keys = [k for k in tree if k not in names]
    hint = suggest(str(unknown_keys[0]), map(str, names)) if unknown_keys else ""
    raise FKerasError(
        f"{network._where}: expected {noun} by the names {', '.join(map(str, names))}; "
        f"missing: {', '.join(map(str, missing_keys)) or 'none'}; unknown: "
        f"{', '.join(map(str, unknown_keys)) or 'none'}.{hint} Pass a dictionary with these names.",
        layer=network._where,
    )


def match_masks(network: Network, mask: Tree) -> list[Any]:
    """The masks of a call's inputs in the order of the graph's inputs.

    Raises:
        FKerasError: for masks in another structure.
    """
    count = len(network.graph.input_slots)
    if mask is None:
        return [None] * count
    if hasattr(mask, "shape"):
        # one mask serves the only input that a call cannot leave out
        required = [slot not in network.graph.optional_slots for slot in network.graph.input_slots]
        alone = sum(required) == 1
        masks = [mask if r else None for r in required] if alone else [mask] if count == 1 else None
    else:
        masks = structure.match(network.graph.inputs, mask)
        if masks is None and isinstance(mask, list | tuple) and len(mask) == count:
            masks = list(mask)
    if masks is None:
        raise FKerasError(
            f"{network._where}: expected a mask (or None) for each of {count} inputs, received "
            f"{type(mask).__name__}. Pass them in the structure of the inputs.",
            layer=network._where,
        )
    return masks


def check_input(network: Network, slot: int, value: Tree) -> jax.Array | None:
    """An input as the array that the graph takes; None for a missing optional input.

    Casts that lose no information happen silently: between floats, and from integers to floats.

    Raises:
        FKerasError: for another shape, or a dtype whose values the graph's dtype cannot hold.
    """
    spec = network.graph.specs[slot]
    name = network.graph.coords[slot].layer
    location = f"{network._where}, input {name!r}"
    if value is None:
        if slot in network.graph.optional_slots:
            return None
        raise FKerasError(
            f"{location}: expected an array of shape {spec}, received None. Pass an array, or declare "
            "the input with fk.Input(..., optional=True).",
            layer=network._where,
        )
    if spec.dtype == STRING:
        raise FKerasError(
            f"{location}: strings exist on the host only, and this call is part of a compiled program. "
            "Split the model, `host, model = fk.split_host(model)`, and map the data: host(texts).",
            layer=network._where,
        )
    received = as_spec(value)
    check_shape(network, slot, received)
    receives_floats = jnp.issubdtype(received.dtype, jnp.floating)
    if receives_floats and jnp.issubdtype(spec.dtype, jnp.integer):
        raise FKerasError(
            f"{location}: expected {spec.dtype}, received {received.dtype}, and fractions would be "
            f"cut off. To cut them off, write x.astype({spec.dtype!r}).",
            layer=network._where,
        )
    is_complex = jnp.issubdtype(received.dtype, jnp.complexfloating)
    if is_complex and not jnp.issubdtype(spec.dtype, jnp.complexfloating):
        raise FKerasError(
            f"{location}: expected {spec.dtype}, received {received.dtype}, and the imaginary parts would "
            "be lost. Pass the parts as real numbers: np.stack([x.real, x.imag], axis=-1).",
            layer=network._where,
        )
    if receives_floats and jnp.issubdtype(spec.dtype, jnp.floating):
        return cast_floats(value, spec.dtype)
    return jnp.asarray(value, dtype=spec.dtype)


def inputs_of(graph: Graph, x: Tree) -> tuple:
    """The arrays of `x` in the order of the graph's inputs; empty for another structure."""
    return tuple(in_order(graph, x) or ())


def check_ranges(network: Network, x: Tree, where: str) -> None:
    """Checks that integers fit the dtype of an integer input, since a cast would wrap them around.

    Args:
        x: arrays in the structure of the inputs; traced arrays are not checked.

    Raises:
        FKerasError: names the input, the row and the number.
    """
    graph = network.graph
    for slot, array in zip(graph.input_slots, inputs_of(graph, x), strict=False):
        dtype = graph.specs[slot].dtype
        if is_array_like(array) and not is_array(array):  # a table of pandas, for example
            array = read_array(array, where)
        received = getattr(array, "dtype", None)
        if received == dtype or dtype == STRING or isinstance(array, Tracer):
            continue
        if not isinstance(received, np.dtype) or received.kind not in "iu" or array.size == 0:
            continue
        expected = np.dtype(dtype)
        if expected.kind not in "iu" or np.can_cast(received, expected):
            continue
        limits = np.iinfo(expected)
        if limits.min <= int(array.min()) and int(array.max()) <= limits.max:
            continue
        numbers = np.asarray(array)
        index = tuple(map(int, np.argwhere((numbers < limits.min) | (numbers > limits.max))[0]))
        row = f", row {index[0]}" if index else ""
        raise FKerasError(
            f"{where}{row}: input {graph.coords[slot].layer!r} expected {dtype}, integers from "
            f"{limits.min} to {limits.max}, received {numbers[index].item()} at {list(index)}. Map "
            "the numbers into the range, or give the input a wider dtype.",
            layer=network._where,
        )


def check_shape(network: Network, slot: int, received: Spec) -> None:
    """Checks an input against the shape in the graph; raises FKerasError for another shape."""
    spec = network.graph.specs[slot]
    location = f"{network._where}, input {network.graph.coords[slot].layer!r}"
    matches = len(spec.dims) == len(received.dims) and all(
        not isinstance(a, int) or not isinstance(b, int) or a == b
        for a, b in zip(spec.dims, received.dims, strict=True)
    )
    if not matches:
        remedy = "Reshape the input, or make the model for this shape."
        if spec.ndim == received.ndim + 1:
            if spec.dims[-1] == 1:
                remedy = "A channel axis is missing: pass x[..., None]."
                if spec.ndim == 2:
                    remedy = "The last axis is missing: pass x[:, None], or x[[name]] of a table."
            if spec.dims[1:] == received.dims:
                remedy = "The batch axis is missing: pass x[None]."
        raise FKerasError(
            f"{location}: expected shape {spec}, received {received}. {remedy}",
            layer=network._where,
        )
