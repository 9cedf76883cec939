"""The last passes over a graph: names of the outputs, nodes and constants without use."""

from __future__ import annotations

from collections.abc import Sequence

from fkeras.saving.onnx.graph.transposes import bodies
from fkeras.saving.onnx.graph.writer import Node, Value, Writer


def name_outputs(
    writer: Writer, values: Sequence[Value], computed: Sequence[str], names: Sequence[str]
) -> list[Value]:
    """Gives the outputs of the graph their names.

    Args:
        values: shape and dtype of each output.
        computed: the name of the tensor that is the output.
        names: the wanted names, without repetition.
    """
    produced = {name for node in writer.nodes for name in node.outputs}
    renamed: dict[str, str] = {}
    outputs = []
    for value, name, wanted in zip(values, computed, names, strict=True):
        final = writer.unique(wanted)
        if name in produced and name not in renamed:
            renamed[name] = final
        else:
            # an input or constant that is an output, or a tensor that is two outputs
            writer.nodes.append(Node("Identity", [name], [final], {}))
        outputs.append(Value(final, value.dims, value.dtype))
    _rename(writer.nodes, renamed)
    return outputs


def _rename(nodes: Sequence[Node], renamed: dict[str, str]) -> None:
    for node in nodes:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
        node.outputs = [renamed.get(name, name) for name in node.outputs]
        for body in bodies(node):
            _rename(body.nodes, renamed)


def remove_unused(writer: Writer, outputs: Sequence[Value]) -> None:
    """Removes the nodes and constants that no output depends on."""
    needed = {value.name for value in outputs}
    kept = []
    for node in reversed(writer.nodes):
        if any(name in needed for name in node.outputs):
            kept.append(node)
            needed |= _reads(node)
    writer.nodes = kept[::-1]
    writer.constants = {name: a for name, a in writer.constants.items() if name in needed}


def _reads(node: Node) -> set[str]:
    names = set(node.inputs)
    for body in bodies(node):
        names |= {value.name for value in body.outputs}
        for inner in body.nodes:
            names |= _reads(inner)
    return names
