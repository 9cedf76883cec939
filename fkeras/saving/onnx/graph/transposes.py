"""Moves transposes down the graph, so that those that cancel disappear.

ONNX's convolutions and pools have the channels on the second axis, and the layers of most models on
the last: each call emits a transpose before and after. This pass delays a transpose until a node
needs the order of the axes. Elementwise nodes do not need it: they compute on the tensor before the
transpose, and their result is transposed instead. Two transposes in a row become one, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fkeras.saving.onnx.graph.writer import Body, Node, Value, Writer

_ELEMENTWISE = frozenset(
    {
        "Abs",
        "Neg",
        "Exp",
        "Log",
        "Tanh",
        "Sqrt",
        "Sigmoid",
        "Sin",
        "Cos",
        "Tan",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Erf",
        "Reciprocal",
        "Relu",
        "Not",
        "Cast",
        "Identity",
        "Atan",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Max",
        "Min",
        "Mod",
        "Where",
        "And",
        "Or",
        "Xor",
        "Equal",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Clip",
        "Elu",
        "HardSigmoid",
        "LeakyRelu",
        "Softplus",
        "Selu",
        "HardSwish",
        "Gelu",
        "QuantizeLinear",
        "DequantizeLinear",
        "IsNaN",
        "IsInf",
    }
)
_REDUCTIONS = frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"})


class _Delayed(NamedTuple):
    """A tensor that is the transpose of another one."""

    source: str
    perm: tuple[int, ...]


def move_transposes(writer: Writer, outputs: Sequence[Value]) -> list[str]:
    """Rewrites the nodes of a writer.

    Returns:
        The names of the outputs in the new nodes.
    """
    return _Pass(writer).run(outputs)


class _Pass:
    def __init__(self, writer: Writer):
        self.writer = writer
        self.nodes: list[Node] = []
        self.delayed: dict[str, _Delayed] = {}
        self.aliases: dict[str, str] = {}
        self.done: dict[str, str] = {}

    def run(self, outputs: Sequence[Value]) -> list[str]:
        for node in self.writer.nodes:
            self._visit(node)
        names = [self._plain(self._resolved(value.name)) for value in outputs]
        self.writer.nodes = self.nodes
        return names

    def _resolved(self, name: str) -> str:
        return self.aliases.get(name, name)

    def _visit(self, node: Node) -> None:
        node.inputs = [self._resolved(name) for name in node.inputs]
        if node.op == "Transpose":
            self._delay(node)
            return
        if any(name in self.delayed for name in node.inputs) and self._absorbs(node):
            return
        for body in bodies(node):
            self._plain_body(body)
        node.inputs = [self._plain(name) for name in node.inputs]
        self.nodes.append(node)

    def _delay(self, node: Node) -> None:
        (name,), (output,) = node.inputs, node.outputs
        perm = tuple(node.attributes["perm"])
        before = self.delayed.get(name)
        if before is not None:
            name, perm = before.source, tuple(before.perm[axis] for axis in perm)
        if perm == tuple(range(len(perm))):
            self.aliases[output] = name
        else:
            self.delayed[output] = _Delayed(name, perm)

    def _plain(self, name: str) -> str:
        """Returns the name of a tensor that is computed; emits its transpose if it is delayed."""
        if name not in self.delayed:
            return name
        if name not in self.done:
            source, perm = self.delayed[name]
            self.nodes.append(Node("Transpose", [source], [name], {"perm": list(perm)}))
            self.done[name] = name
        return name

    def _plain_body(self, body: Body) -> None:
        for node in body.nodes:
            node.inputs = [self._plain(self._resolved(name)) for name in node.inputs]
            for inner in bodies(node):
                self._plain_body(inner)

    def _absorbs(self, node: Node) -> bool:
        """Emits the node on the tensors before their transposes, if the operator commutes with them."""
        perms = {self.delayed[name].perm for name in node.inputs if name in self.delayed}
        if len(perms) > 1 or len(node.outputs) != 1:
            return False
        (perm,) = perms
        inverse = [int(axis) for axis in np.argsort(perm)]
        if node.op in _ELEMENTWISE and not node.attributes.get("axis"):
            inputs = [self._aligned(name, inverse) for name in node.inputs]
        elif node.op == "Concat":
            inputs = [self.delayed[n].source if n in self.delayed else None for n in node.inputs]
            node.attributes = {**node.attributes, "axis": perm[node.attributes["axis"]]}
        elif node.op in _REDUCTIONS:
            return self._reduce(node, perm)
        elif node.op == "Pad":
            return self._pad(node, perm, inverse)
        else:
            return False
        if any(name is None for name in inputs):
            if node.op == "Concat":
                node.attributes["axis"] = inverse[node.attributes["axis"]]
            return False
        self._emit(node, [name for name in inputs if name is not None], perm)
        return True

    def _emit(self, node: Node, inputs: list[str], perm: tuple[int, ...]) -> None:
        (output,) = node.outputs
        inner = self.writer.unique(f"{output}/moved")
        self.nodes.append(Node(node.op, inputs, [inner], node.attributes, node.domain))
        if perm == tuple(range(len(perm))):
            self.aliases[output] = inner
        else:
            self.delayed[output] = _Delayed(inner, perm)

    def _aligned(self, name: str, inverse: list[int]) -> str | None:
        """Returns an operand in the order of axes before the transpose; None if there is none."""
        if name in self.delayed:
            return self.delayed[name].source
        if not name:
            return name
        array = self.writer.constants.get(name)
        if array is None:
            value = self.writer.values.get(name)
            return name if value is not None and value.ndim == 0 else None
        if array.ndim > len(inverse):
            return None
        if array.size == 1:
            return self.writer.name_of(array.reshape(()))
        wide = array.reshape((*(1,) * (len(inverse) - array.ndim), *array.shape))
        return self.writer.name_of(np.ascontiguousarray(np.transpose(wide, inverse)))

    def _reduce(self, node: Node, perm: tuple[int, ...]) -> bool:
        source = self.delayed[node.inputs[0]].source
        has_input = len(node.inputs) == 2
        axes = self.writer.constants[node.inputs[1]] if has_input else node.attributes["axes"]
        moved = sorted(perm[int(axis)] for axis in axes)
        attributes = dict(node.attributes)
        inputs = [source]
        if has_input:
            inputs.append(self.writer.name_of(np.array(moved, np.int64)))
        else:
            attributes["axes"] = moved
        if not attributes.get("keepdims", 1):
            left = [axis for axis in perm if axis not in moved]
            perm = tuple(sorted(left).index(axis) for axis in left)
        self._emit(Node(node.op, [], node.outputs, attributes), inputs, perm)
        return True

    def _pad(self, node: Node, perm: tuple[int, ...], inverse: list[int]) -> bool:
        pads = self.writer.constants.get(node.inputs[1])
        if node.inputs[0] not in self.delayed or pads is None:
            return False
        rank = len(perm)
        moved = np.array([*pads[:rank][inverse], *pads[rank:][inverse]], np.int64)
        inputs = [self.delayed[node.inputs[0]].source, self.writer.name_of(moved), *node.inputs[2:]]
        self._emit(node, inputs, perm)
        return True


def bodies(node: Node) -> Iterator[Body]:
    """Yields the graphs inside a node."""
    for value in node.attributes.values():
        if isinstance(value, Body):
            yield value
