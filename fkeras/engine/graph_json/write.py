"""Writes a graph as JSON data in Keras 3's form of functional models.

Keras's form loses some properties of a graph. Additional keys, which Keras ignores, hold them, so that a
model read from its own configuration equals the original.

| key | where | meaning |
|---|---|---|
| `training` | call | a pin that equals the value Keras writes for a call without a pin |
| `mask` | call | null: the call has an explicit `mask=None` |
| `mask_rule` | call, model | how masks reach calls, see `mask_rules`; the model's rule is the default |
| `containers` | call, model | tuples, which are lists in JSON, outputs that are a list of one, and values by call |
| `layout` | call | arguments of an operation by position and by name |
| `trainable` | layer | false for a frozen operation |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.call.mask_rules import RULES
from fkeras.engine.config.keras_form import keras_form
from fkeras.engine.config.serialization import serialize
from fkeras.engine.graph_json.arguments import write_tree
from fkeras.engine.graph_json.operation_calls import SplitCall, split
from fkeras.engine.graph_json.rule_keys import KEY, written_rule
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.symbolic.operation_forms import OperationForm, operation_form
from fkeras.engine.values.annotations import Call, Graph, Json, Layer, Network
from fkeras.engine.values.frozen import ArrayConstant
from fkeras.engine.values.structure import Branch, Ref, leaves, visits


def graph_config(network: Network) -> dict[str, Any]:
    """Returns the layers, calls, inputs and outputs of a network as JSON data."""
    graph, rule = network.graph, main_rule(network.graph)
    layers = [_layer_config(network, name, rule) for name in graph.layers]
    config: dict[str, Any] = {"layers": layers}
    containers: list = []
    for key, template in (("input_layers", graph.inputs), ("output_layers", graph.outputs)):
        config[key] = write_tree(template, lambda i: _end(network, i), key, (key,), containers)
    # Keras's models return a single output without its list
    if isinstance(graph.outputs, Branch) and graph.outputs.kind == "list":
        if len(graph.outputs.children) == 1:
            containers.append([["output_layers"], "list"])
    config = {**config, "containers": containers} if containers else config
    return {**config, **written_rule(config, rule)}


def main_rule(graph: Graph) -> str:
    """Returns the mask rule of most calls, which becomes the rule of the model."""
    rules = [call.mask_rule for call in graph.calls if not call.is_input]
    return max(RULES, key=rules.count)


def starts_at_one(layer: Layer) -> bool:
    """Returns whether `output_layers` counts the calls of a layer from 1, as Keras does for models."""
    return keras_form(layer).class_name == "Functional"


def _end(network: Network, slot: int) -> list[Any]:
    name, node, tensor = _history(network.graph, slot)
    return [name, node + 1 if starts_at_one(network.layers[name]) else node, tensor]


def _history(graph: Graph, slot: int) -> list[Any]:
    """Returns the layer, call and output of a tensor; Keras counts outputs by sorted keys."""
    coord = graph.coords[slot]
    value = graph.calls[graph.calls_of[coord.layer][coord.node]].value
    return [coord.layer, coord.node, visits(value).index(coord.tensor)]


def _layer_config(network: Network, name: str, rule: str) -> dict[str, Any]:
    graph, layer = network.graph, network.layers[name]
    calls = [graph.calls[n] for n in graph.calls_of[name] if not graph.calls[n].is_input]
    if isinstance(layer, Operation) and layer.op.builtin:
        item = _operation_config(graph, layer, name, calls, rule)
        if item is not None:
            return item
    nodes = []
    for number, call in enumerate(calls):
        where = f"{layer._where}, call {number}"
        options = dict(zip(call.options.keys, call.options.children, strict=True))
        args = call.args.children
        if getattr(layer, "graph", None) is not None and len(args) > 1:
            # Keras's models take one argument, and `training` after it
            args = (Branch("list", (), args),)
        node = _node_config(graph, layer, where, args, options, call, {})
        nodes.append({**node, **_rule_entry(call, rule)})
    return {**serialize(layer), "name": name, "inbound_nodes": nodes}


def _node_config(
    graph: Graph,
    layer: Layer,
    where: str,
    args: tuple,
    options: dict[str, Any],
    call: Call,
    fixed: Mapping[str, Any],
) -> dict[str, Any]:
    containers: list = []
    extra_entries: dict[str, Any] = {}

    def write(value: Json, *path: str | int) -> Json:
        location = f"{where}, option {path[1]!r}" if path[0] == "kwargs" else where
        return write_tree(value, lambda slot: _tensor(graph, slot), location, path, containers)

    # Keras reads an option `mask` of null as a mask that comes with the inputs
    if "mask" in options and options["mask"] is None and layer._masks_inputs(None):
        extra_entries["mask"] = options.pop("mask")
    kwargs = {str(k): write(v, "kwargs", str(k)) for k, v in options.items()}
    if call.training is not None:
        if not isinstance(layer, Operation):
            kwargs["training"] = call.training
        # Keras's operations take no `training`, and the default would read as no pin
        if isinstance(layer, Operation) or call.training == keras_form(layer).training_default:
            extra_entries["training"] = call.training
    node = {
        "args": [write(v, "args", i) for i, v in enumerate(args)],
        "kwargs": kwargs,
        **extra_entries,
    }
    for key, value in fixed.items():
        write(value, "config", key)
    return {**node, "containers": containers} if containers else node


def _rule_entry(call: Call, rule: str) -> dict[str, str]:
    """Returns the entry for a mask rule that differs from the model's rule."""
    return {} if call.mask_rule == rule else {KEY: call.mask_rule}


def _tensor(graph: Graph, slot: int) -> dict[str, Any]:
    spec = graph.specs[slot]
    return {
        "class_name": "__keras_tensor__",
        "config": {
            "shape": list(spec.shape),
            "dtype": spec.dtype,
            "keras_history": _history(graph, slot),
        },
    }


def _operation_config(
    graph: Graph, layer: Operation, name: str, calls: list, rule: str
) -> dict[str, Any] | None:
    """Returns an operation in Keras's form; None for calls that Keras's form cannot hold."""
    if layer.op.name == "getitem":
        form = OperationForm("keras.src.ops.numpy", "GetItem", "getitem", (), ())
        possible_splits: list[SplitCall | None] = [_split_getitem(call) for call in calls]
    else:
        named_form = operation_form(op=layer.op.name)
        if named_form is None:
            return None
        form, possible_splits = (
            named_form,
            [split(named_form, call.args, call.options) for call in calls],
        )
    split_calls = [split_call for split_call in possible_splits if split_call is not None]
    # all calls of one layer share the arguments of its constructor
    if len(split_calls) < len(possible_splits) or any(
        split_call.fixed != split_calls[0].fixed for split_call in split_calls
    ):
        return None
    fixed = split_calls[0].fixed
    # a constructor's arguments are configuration: Keras cannot hold tensors there
    if any(isinstance(v, Ref | ArrayConstant) for value in fixed.values() for v in leaves(value)):
        return None
    nodes = []
    for number, (split_call, call) in enumerate(zip(split_calls, calls, strict=True)):
        where = f"{layer._where}, call {number}"
        node = _node_config(
            graph, layer, where, split_call.args, dict(split_call.kwargs), call, fixed
        )
        if split_call.layout is not None:
            node["layout"] = [list(names) for names in split_call.layout]
        nodes.append({**node, **_rule_entry(call, rule)})
    config = {k: write_tree(v, int, layer._where, ("config", k), []) for k, v in fixed.items()}
    item = {
        "module": form.module,
        "class_name": form.class_name,
        "config": {"name": name, **config},
        "registered_name": form.class_name,
        "name": name,
        "inbound_nodes": nodes,
    }
    return item if layer.trainable else {**item, "trainable": False}


def _split_getitem(call: Call) -> SplitCall | None:
    """Returns a call of `x[...]` with the entries in one list, as in Keras."""
    if not call.args.children or call.options.keys:
        return None
    x, *entries = call.args.children
    return SplitCall({}, (x, Branch("list", (), tuple(map(_key, entries)))), {}, None)


def _key(entry: Json) -> Json:
    """Returns an entry of a key in Keras's form; graphs hold slices as dictionaries."""
    if not isinstance(entry, Branch) or entry.kind != "dict":
        return entry
    if entry.keys == ("slice",):
        bounds = zip(("start", "stop", "step"), entry.children[0].children, strict=True)
        config = Branch("dict", ("start", "stop", "step"), tuple(value for _, value in bounds))
        return Branch("dict", ("class_name", "config"), ("__slice__", config))
    return Branch("dict", ("class_name", "config"), ("__ellipsis__", Branch("dict", (), ())))
