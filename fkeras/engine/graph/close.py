"""Closing: from the history of symbolic tensors to a `Graph` and its layers by name.

The walk uses an explicit stack, since graphs can be deeper than Python's recursion limit. Depths,
order and names follow from the graph alone, from the outputs backwards and from left to right: no
global counter numbers the layers, so two equal builds get equal names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from fkeras.engine.call.inference import infer
from fkeras.engine.call.input_spec import check_inputs
from fkeras.engine.call.node import Node, is_symbolic
from fkeras.engine.call.signature import input_signature
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.layer_dict import LayerDict
from fkeras.engine.messages.errors import DisconnectedGraphError, suggest
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.symbolic.input import InputLayer, is_input
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Layer, SymbolicTensor, Tree
from fkeras.engine.values.naming import snake_case

Key = tuple[int, int]


def close(inputs: Tree, outputs: Tree, where: str = "Model") -> tuple[Graph, LayerDict]:
    """Returns the graph that computes `outputs` from `inputs`, and its layers by name.

    Args:
        inputs: symbolic tensors in any nesting of lists, tuples and dictionaries. A tensor from the
            middle of a graph cuts the graph there.
        outputs: symbolic tensors in any nesting.
        where: the model, for messages.

    Raises:
        DisconnectedGraphError: if an output needs a tensor that is not among the inputs.
        TypeError: for a value that is not a symbolic tensor.
        ValueError: for an input that is listed twice, or two layers with the same name.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3,))
        >>> graph, layers = close(x, fk.layers.Dense(2)(x))
        >>> list(layers)
        ['input_layer', 'dense']
    """
    in_tree, in_tensors = _numbered(inputs, "inputs", where)
    out_tree, out_tensors = _numbered(outputs, "outputs", where)
    starts = _input_nodes([in_tensors[i] for i in structure.visits(in_tree)], where)
    order, seen_layers = _post_order(
        [out_tensors[i] for i in structure.visits(out_tree)], starts, where
    )
    for node in starts.values():
        if node not in order:  # an input that no output needs counts as an output, at depth 0
            order[node] = len(order)
            seen_layers.setdefault(id(node.layer), (-1, node.layer))
    # the history of an input tensor is no part of the graph: its input node has no producers
    edges = {node: _producers(node, starts) for node in order}
    depths, layer_depths = _depths(list(order), edges)
    calls = sorted(order, key=lambda node: (-depths[node], order[node]))
    ranked = sorted(seen_layers.items(), key=lambda item: (-layer_depths[item[0]], item[1][0]))
    names = layer_names([layer for _, (_, layer) in ranked], where)
    first_slot, total = {}, 0
    for node in calls:
        first_slot[node] = total
        total += len(node.outputs)

    def slot(tensor: SymbolicTensor) -> int:
        start = starts.get((id(tensor.node), tensor.index))
        return first_slot[start] if start is not None else first_slot[tensor.node] + tensor.index

    graph = Graph(
        calls=tuple(
            Call(names[id(node.layer)], node.signature, tuple(slot(t) for t in node.inputs))
            for node in calls
        ),
        inputs=structure.renumber(in_tree, [slot(t) for t in in_tensors]),
        outputs=structure.renumber(out_tree, [slot(t) for t in out_tensors]),
        depths=tuple(depths[node] for node in calls),
        layers=tuple(names[key] for key, _ in ranked),
    )
    # the first call settles the configuration that depends on shapes, as it will build the weights
    resolved: dict[int, Any] = {}
    for node in calls:
        resolved.setdefault(id(node.layer), node.resolved)
    layers = {
        names[key]: resolved[key]
        if resolved[key].name == names[key]
        else resolved[key].replace(name=names[key])
        for key, _ in ranked
    }
    _check_shared(graph, layers)
    return graph.bind(layers), LayerDict(layers)


def origins_of(graph: Graph, inputs: Tree) -> dict[int, Node]:
    """Returns the node of each `fk.Input` among the inputs of a graph, by slot."""
    pairs = zip(graph.input_slots, structure.number(inputs)[1], strict=True)
    return {slot: t.node.origin or t.node for slot, t in pairs if is_input(t)}


def _numbered(tree: Tree, noun: str, where: str) -> tuple[Any, list]:
    template, tensors = structure.number(tree)
    if not tensors:
        raise ValueError(
            f"{where}: expected at least one symbolic tensor as {noun}, received none. Write "
            "x = fk.Input((28, 28, 1)); fk.Model(x, layer(x))."
        )
    for tensor in tensors:
        if not is_symbolic(tensor):
            check_not_keras(tensor, f"{where}: {noun}")
            raise TypeError(
                f"{where}: expected symbolic tensors as {noun}, received "
                f"{type(tensor).__name__}. Start from fk.Input and call layers (or fk.ops) on it."
            )
    return template, tensors


def _input_nodes(tensors: list, where: str) -> dict[Key, Node]:
    """Returns the input node for each input tensor."""
    nodes: dict[Key, Node] = {}
    for tensor in tensors:
        key = (id(tensor.node), tensor.index)
        if key in nodes:
            raise ValueError(
                f"{where}: the input {tensor!r} is given twice. List every input once; the graph "
                "may use an input several times."
            )
        if is_input(tensor):
            nodes[key] = tensor.node
            # an input of `model.inputs` stands for the fk.Input of the model too
            if tensor.node.origin is not None:
                nodes[id(tensor.node.origin), 0] = tensor.node
        else:  # cut the graph: a new input replaces the tensor
            layer = InputLayer(batch_shape=tensor.spec.dims, dtype=tensor.dtype)
            nodes[key] = Node(layer, input_signature(tensor.spec))
    return nodes


def _producers(node: Node, starts: Mapping[Key, Node]) -> list[Node]:
    """Returns the nodes that produce a node's inputs, in the order of arguments and options."""
    input_indices = (*structure.visits(node.args), *structure.visits(node.options))
    return [
        starts.get((id(t.node), t.index), t.node) for t in (node.inputs[i] for i in input_indices)
    ]


def _post_order(
    outputs: list, starts: Mapping[Key, Node], where: str
) -> tuple[dict[Node, int], dict[int, tuple[int, Any]]]:
    """Returns nodes in topological order and layers in the order of their first visit."""
    order: dict[Node, int] = {}
    layers: dict[int, tuple[int, Any]] = {}
    visited_nodes: set[Node] = set()
    input_nodes = set(starts.values())
    roots = [starts.get((id(t.node), t.index), t.node) for t in outputs]
    for root in roots:
        stack: list[tuple[Node, Node | None, bool]] = [(root, None, False)]
        while stack:
            node, consumer, is_exit = stack.pop()
            if is_exit:
                order[node] = len(order)
                continue
            if node in visited_nodes:
                continue
            # marked on entry: a node that several consumers need is visited once
            visited_nodes.add(node)
            # a call on constants has no inputs either, but has arguments
            if node not in input_nodes and not node.inputs and node.args is None:
                _raise_disconnected(node, consumer, layers, input_nodes, where)
            layers.setdefault(id(node.layer), (len(layers), node.layer))
            stack.append((node, consumer, True))
            if node not in input_nodes:
                # reversed, since a stack pops the last entry first
                stack.extend((p, node, False) for p in reversed(_producers(node, starts)))
    return order, layers


def _raise_disconnected(
    node: Node, consumer: Node | None, layers: Mapping, input_nodes: set[Node], where: str
) -> None:
    if consumer is None:
        raise DisconnectedGraphError(
            f"{where}: the output {node.outputs[0]} is an fk.Input that is not among the inputs. Inputs "
            "come first: fk.Model(inputs, outputs).",
            layer=node.layer.name,
        )
    visited_names = [_label(layer) for _, layer in layers.values()]
    visited = ", ".join(visited_names[:8]) + (", ..." if len(visited_names) > 8 else "")
    spec = node.outputs[0]
    location = f" at {consumer.location}" if consumer.location else ""
    name = node.layer.name or "x"
    remedy = f"Add that tensor to the inputs: fk.Model([..., {name}], outputs)."
    if any(other.outputs[0] == spec for other in input_nodes):  # `fk.Model(m.inputs, head(h))`
        remedy = (
            "An input of this shape is given, but is another tensor: `model.inputs` of a built or changed "
            "model are new tensors, since other layers were recorded. "
            f"Pass the fk.Input that the outputs were computed from, fk.Model({name}, outputs), or compute "
            "the outputs from tensors of the model, such as model.tensor('dense')."
        )
    raise DisconnectedGraphError(
        f"{where}: the graph is disconnected. The call of {_label(consumer.layer)}{location} needs the "
        f"tensor {spec} of {_label(node.layer)}, which is not among the inputs. Layers visited from the outputs: "
        f"{visited or 'none'}. {remedy}",
        layer=node.layer.name,
    )


def _label(layer: Layer) -> str:
    return repr(layer.name) if layer.name else f"an unnamed {type(layer).__name__}"


def _depths(
    order: list[Node], edges: Mapping[Node, list[Node]]
) -> tuple[dict[Node, int], dict[int, int]]:
    """Returns the depth of each node and layer: the longest distance from the outputs.

    As in Keras, each call of a shared layer is at least as deep as its calls nearer to the outputs.
    """
    depths: dict[Node, int] = {}
    layer_depths: dict[int, int] = {}
    # consumers come first, so the depth of a node is final when its producers are visited
    for node in reversed(order):
        key = id(node.layer)
        depth = max(depths.get(node, 0), layer_depths.get(key, 0))
        depths[node] = layer_depths[key] = depth
        for producer in edges[node]:
            depths[producer] = max(depth + 1, depths.get(producer, 0))
    return depths, layer_depths


def layer_names(layers: list[Any], where: str) -> dict[int, str]:
    """Returns a name for each layer, by id: the user's name, or the class name with a number."""
    # names that users chose come first: automatic names avoid all of them
    layers_by_name: dict[str, Any] = {}
    for layer in layers:
        if layer.name is None:
            continue
        if layer.name in layers_by_name:
            raise ValueError(
                f"{where}: two layers are named {layer.name!r} ({type(layers_by_name[layer.name]).__name__} "
                f"and {type(layer).__name__}), and names must differ in a model. Rename one: "
                f"layer.replace(name={layer.name + '_1'!r}); to share one layer, call the same "
                "object twice; whole models may be called as layers, which keeps their names apart."
            )
        layers_by_name[layer.name] = layer
    names: dict[int, str] = {}
    # the next number of each class name: counting from 0 for each layer would be quadratic
    next_number: dict[str, int] = {}
    for layer in layers:
        name = layer.name
        if name is None:
            base = getattr(layer, "_default_name", None) or snake_case(type(layer).__name__)
            number = next_number.get(base, 0)
            name = base if number == 0 else f"{base}_{number}"
            while name in layers_by_name:
                number += 1
                name = f"{base}_{number}"
            next_number[base] = number + 1
            layers_by_name[name] = layer
        names[id(layer)] = name
    return names


def exchanged(graph: Graph, layers: LayerDict, where: str) -> Mapping[str, Any]:
    """Returns the layers of `model.layers | {...}`, resolved and checked on the recorded shapes.

    Raises:
        ValueError: for an unknown name, and for a layer with other outputs.
    """
    for name in layers.changed:
        if name not in graph.calls_of:
            raise ValueError(
                f"{where}: layers: there is no layer {name!r}.{suggest(name, graph.calls_of)} Its layers are: "
                f"{', '.join(list(graph.calls_of)[:12])}. For another graph write fk.transforms.insert."
            )
    resolved = dict(layers.items())
    for name in layers.changed:
        for number in graph.calls_of[name]:
            call = graph.calls[number]
            resolved[name] = resolved[name]._resolve(*graph.call_specs(number))
            signature, _ = infer(
                resolved[name], call.signature.recorded, *graph.input_specs(number)
            )
            if signature.outputs != call.outputs:
                received, expected = (
                    ", ".join(f"{spec} {spec.dtype}" for spec in specs)
                    for specs in (signature.outputs, call.outputs)
                )
                raise ValueError(
                    f"{where}: layers[{name!r}]: expected a layer that returns {expected}, received "
                    f"{layers[name]!r}, which returns {received}. For another result write "
                    f"fk.transforms.replace(model, {{{name!r}: layer}}), which records the graph again."
                )
    return resolved


def _check_shared(graph: Graph, layers: Mapping[str, Any]) -> None:
    """Checks that the weights built for a layer's first call fit its other calls.

    Recording cannot check this: each call was inferred with the weights that it would build.
    """
    for name, numbers in graph.calls_of.items():
        layer = layers[name]
        specs = [graph.call_specs(n) for n in numbers] if len(numbers) > 1 else []
        if layer.built or all(s == specs[0] for s in specs):
            continue
        # shapes only: no weight is drawn or allocated
        built = jax.eval_shape(lambda: layer.build(jax.random.key(0), *specs[0]))  # noqa: B023
        for index, number in enumerate(numbers):
            if specs[index] == specs[0]:
                continue
            check_inputs(built, specs[index], index)
            infer(built, graph.calls[number].signature.recorded, *graph.input_specs(number))
