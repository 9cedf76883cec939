"""A graph as JSON data, in the form that Keras 3 writes functional models in, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine.errors import FKerasError
from fkeras.engine.input import InputLayer, symbolic
from fkeras.engine.serialization import decode, deserialize, encode, serialize
from fkeras.engine.structure import Branch, Ref


def graph_config(network: Any) -> dict[str, Any]:
    """Layers, calls, inputs and outputs of a network."""
    graph = network.graph
    layers = []
    for name in graph.layers:
        numbers = graph.calls_of[name]
        nodes = [_node_config(graph, graph.calls[n]) for n in numbers]
        layers.append(
            {
                **serialize(network.layers[name]),
                "name": name,
                "inbound_nodes": [node for node in nodes if node is not None],
            }
        )
    return {
        "layers": layers,
        "input_layers": _ends(graph, graph.inputs),
        "output_layers": _ends(graph, graph.outputs),
    }


def _ends(graph: Any, template: Any) -> Any:
    if isinstance(template, Ref):
        return list(graph.coords[template.index])
    if isinstance(template, Branch):
        children = [_ends(graph, child) for child in template.children]
        if template.kind == "dict":
            return dict(zip(template.keys, children, strict=True))
        return (
            {"class_name": "__tuple__", "items": children}
            if template.kind == "tuple"
            else (children)
        )
    return template


def _node_config(graph: Any, call: Any) -> dict[str, Any] | None:
    if call.is_input:
        return None
    args = _tree_config(graph, call.args, call.layer)
    kwargs = _tree_config(graph, call.options, call.layer)
    if call.training is not None:
        kwargs["training"] = call.training
    return {"args": args["items"], "kwargs": kwargs}


def _tree_config(graph: Any, template: Any, where: str) -> Any:
    if isinstance(template, Ref):
        spec = graph.specs[template.index]
        return {
            "class_name": "__keras_tensor__",
            "config": {
                "shape": list(spec.shape),
                "dtype": spec.dtype,
                "keras_history": list(graph.coords[template.index]),
            },
        }
    if isinstance(template, Branch):
        if template.kind == "dict":
            pairs = zip(template.keys, template.children, strict=True)
            return {str(k): _tree_config(graph, v, f"{where}, option {k!r}") for k, v in pairs}
        items = [_tree_config(graph, child, where) for child in template.children]
        return items if template.kind == "list" else {"class_name": "__tuple__", "items": items}
    return encode(template, where)


def graph_from_config(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> tuple[Any, Any]:
    """`(inputs, outputs)`: the calls of a configuration, recorded again.

    Raises:
        FKerasError: for calls that wait for one another in a circle, or for a tensor that nothing
            makes.
    """
    tensors: dict[tuple[str, int, int], Any] = {}
    pending: list[tuple[str, Any, int, Mapping]] = []
    for item in config["layers"]:
        layer = deserialize(item, custom_objects)
        name = item.get("name") or item["config"]["name"]
        if layer.name != name:
            layer = layer.replace(name=name)
        if isinstance(layer, InputLayer):
            tensors[name, 0, 0] = symbolic(layer)
        pending.extend((name, layer, i, n) for i, n in enumerate(item.get("inbound_nodes", [])))
    while pending:
        waiting = []
        for entry in pending:
            name, layer, index, node = entry
            needed = [c for c in _coords([node["args"], node["kwargs"]]) if c not in tensors]
            if needed:
                waiting.append(entry)
                continue
            args = [_read_tree(a, tensors, custom_objects) for a in node["args"]]
            kwargs = {k: _read_tree(v, tensors, custom_objects) for k, v in node["kwargs"].items()}
            value = layer(*args, **kwargs)
            for output in _flat(value):
                tensors[name, index, output.index] = output
        if len(waiting) == len(pending):
            _raise_stuck(waiting, tensors)
        pending = waiting
    return _read_ends(config["input_layers"], tensors), _read_ends(config["output_layers"], tensors)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in _flat(v)]
    return [t for v in value for t in _flat(v)] if isinstance(value, list | tuple) else [value]


def _raise_stuck(waiting: list, tensors: Mapping) -> None:
    name, _, index, node = waiting[0]
    missing = [c for c in _coords([node["args"], node["kwargs"]]) if c not in tensors]
    makers = {entry[0] for entry in waiting}
    if all(c[0] in makers for c in missing):
        chain = ", ".join(dict.fromkeys(entry[0] for entry in waiting))
        raise FKerasError(
            f"{name!r}, call {index}: the calls of {chain} wait for one another, so the tensor "
            f"{missing[0]} is part of a cycle. A graph has none: correct the inbound_nodes.",
            layer=name,
            node=index,
        )
    raise FKerasError(
        f"{name!r}, call {index}: needs the tensor {missing[0]}, which no layer of the "
        "configuration makes. Correct its inbound_nodes.",
        layer=name,
        node=index,
    )


def _coords(tree: Any) -> list[tuple[str, int, int]]:
    if isinstance(tree, Mapping):
        if tree.get("class_name") == "__keras_tensor__":
            return [tuple(tree["config"]["keras_history"])]
        return [c for v in tree.values() for c in _coords(v)]
    return [c for v in tree for c in _coords(v)] if isinstance(tree, list | tuple) else []


def _read_tree(tree: Any, tensors: Mapping, custom_objects: Any) -> Any:
    if isinstance(tree, Mapping):
        kind = tree.get("class_name")
        if kind == "__keras_tensor__":
            return tensors[tuple(tree["config"]["keras_history"])]
        if kind == "__tuple__":
            return tuple(_read_tree(v, tensors, custom_objects) for v in tree["items"])
        if kind is not None:
            return decode(tree, custom_objects)
        return {k: _read_tree(v, tensors, custom_objects) for k, v in tree.items()}
    if isinstance(tree, list):
        return [_read_tree(v, tensors, custom_objects) for v in tree]
    return tree


def _read_ends(tree: Any, tensors: Mapping) -> Any:
    if isinstance(tree, Mapping):
        if tree.get("class_name") == "__tuple__":
            return tuple(_read_ends(v, tensors) for v in tree["items"])
        return {k: _read_ends(v, tensors) for k, v in tree.items()}
    if len(tree) == 3 and isinstance(tree[0], str):
        if tuple(tree) not in tensors:
            raise FKerasError(
                f"The configuration names {tuple(tree)} as an input or output, which no layer "
                "makes. Correct its input_layers and output_layers."
            )
        return tensors[tuple(tree)]
    return [_read_ends(v, tensors) for v in tree]
