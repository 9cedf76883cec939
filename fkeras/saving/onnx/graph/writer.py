"""`Writer`: collects the nodes and constants of an ONNX graph.

The functions that emit nodes pass two kinds of operands: a `Value` is a tensor of the graph, and a
NumPy array is a constant. The writer turns constants into initializers where a node uses them. The
package onnx is not needed before the graph is complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fkeras.authoring.engine import Dimension, evaluate_expression, shorten
from fkeras.engine import FKerasError, Spec

# a size of an input: a word, or a multiple of a word
_MULTIPLE = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)")


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the graph.

    Attributes:
        name: the name in the ONNX graph.
        dims: the size of each axis; a string for an unknown size, as in `Spec`.
        dtype: the name of the dtype.
        narrow: for a value without a name, the tensor with axes of size 1 that broadcasts to the
            value: the broadcast is computed only for nodes that do not broadcast themselves.
    """

    name: str
    dims: tuple[Dimension, ...]
    dtype: str
    narrow: Operand | None = None

    @property
    def spec(self) -> Spec:
        return Spec(self.dims, self.dtype)

    @property
    def shape(self) -> tuple[Dimension, ...]:
        return self.dims

    @property
    def ndim(self) -> int:
        return len(self.dims)


Operand: TypeAlias = Value | np.ndarray


@dataclasses.dataclass
class Node:
    """A node of the graph: operator, names of inputs and outputs, attributes.

    An attribute is a number, a text, a list of these, or the body of a loop as a `Body`.
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]
    domain: str = ""


@dataclasses.dataclass
class Body:
    """A graph inside a node, such as the body of a loop; takes tensors around the node by name."""

    name: str
    nodes: list[Node]
    inputs: list[Value]
    outputs: list[Value]


class Writer:
    """Collects nodes, constants and the names of tensors.

    Args:
        opset: the version of ONNX's operators.

    Example:
        >>> import numpy as np
        >>> writer = Writer(17)
        >>> x = writer.input("x", ("b", 3), "float32")
        >>> y = writer.emit("Add", x, np.float32(1), dims=("b", 3))
        >>> y.name, writer.nodes[0].inputs
        ('Add', ['x', 'constant'])
    """

    def __init__(self, opset: int):
        self.opset = opset
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[Value] = []
        self.values: dict[str, Value] = {}
        self._transposed: set[str] = set()
        self.path: tuple[str, ...] = ()
        self._used: dict[str, int] = {}
        self._by_content: dict[Any, str] = {}
        self._sizes: dict[str, Value] = {}
        self._expanded: dict[int, tuple[Value, Value]] = {}
        # for each unknown size: a tensor and its axis whose size is a multiple, and the factor
        self._words: dict[str, tuple[Value, int, int]] = {}

    # -- names --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Puts a name before the names of the tensors that are emitted inside; "" is no name."""
        outer, self.path = self.path, (*self.path, name) if name else self.path
        try:
            yield
        finally:
            self.path = outer

    def unique(self, name: str) -> str:
        """Returns a name that no other tensor has."""
        count = self._used.get(name, 0)
        self._used[name] = count + 1
        return name if count == 0 else self.unique(f"{name}_{count}")

    # -- tensors ------------------------------------------------------------------------------

    def input(self, name: str, dims: Sequence[Dimension], dtype: str) -> Value:
        """Declares an input of the graph."""
        value = Value(self.unique(name), tuple(dims), dtype)
        self.inputs.append(value)
        for axis, dim in enumerate(value.dims):
            found = _MULTIPLE.fullmatch(dim) if isinstance(dim, str) else None
            if found:
                self._words.setdefault(found[2], (value, axis, int(found[1] or 1)))
        return value

    def name_of(self, operand: Operand) -> str:
        """Returns the name of an operand; a constant becomes an initializer."""
        if isinstance(operand, Value):
            return operand.name or self._broadcast(operand).name
        array = np.asarray(operand)
        # equal constants of any size are stored once; the bytes of large arrays are not copied
        key: Any = (array.shape, str(array.dtype), array.tobytes() if array.size < 64 else None)
        if array.size >= 64:
            key = (*key, id(operand))
        if key not in self._by_content:
            name = self.unique("/".join((*self.path, "constant")))
            self._by_content[key] = name
            self.constants[name] = array
        return self._by_content[key]

    def _broadcast(self, value: Value) -> Value:
        """Returns a value whose broadcast is computed; computed once for each value."""
        if id(value) not in self._expanded:
            assert value.narrow is not None
            expanded = self.emit(
                "Expand", value.narrow, self.shape(value.dims), dims=value.dims, dtype=value.dtype
            )
            # the value stays referenced, since Python reuses the id of a freed object
            self._expanded[id(value)] = (value, expanded)
        return self._expanded[id(value)][1]

    def emit(
        self,
        op: str,
        *operands: Operand | None,
        dims: Sequence[Dimension],
        dtype: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Value:
        """Emits a node with one output.

        Args:
            operands: the inputs; None for an omitted optional input.
            dims: the sizes of the output.
            dtype: the dtype of the output; that of the first operand by default.
            attributes: the attributes of the node; None for an absent attribute.
        """
        first = next(x for x in operands if x is not None)
        kind = dtype or str(first.dtype)
        outputs = self.emit_several(op, *operands, outputs=[(dims, kind)], **attributes)
        if domain:
            self.nodes[-1].domain = domain
        return outputs[0]

    def emit_several(
        self,
        op: str,
        *operands: Operand | None,
        outputs: Sequence[tuple[Sequence[Dimension], str] | None],
        **attributes: Any,
    ) -> list[Any]:
        """Emits a node with several outputs; None in place of an output that nobody needs."""
        names = ["" if x is None else self.name_of(x) for x in operands]
        while names and not names[-1]:  # ONNX Runtime crashes on an empty last input
            del names[-1]
        values = [
            None
            if output is None
            else Value(self.unique("/".join((*self.path, op))), tuple(output[0]), output[1])
            for output in outputs
        ]
        attributes = {k: v for k, v in attributes.items() if v is not None}
        output_names = ["" if v is None else v.name for v in values]
        self.values.update((v.name, v) for v in values if v is not None)
        if op == "Transpose":
            self._transposed.add(output_names[0])
        self.nodes.append(Node(op, names, output_names, attributes))
        return values

    @contextlib.contextmanager
    def body(self, name: str) -> Iterator[list[Node]]:
        """Collects the nodes that are emitted inside in a list of their own."""
        outer, self.nodes = self.nodes, []
        # tensors that are computed inside of the body have no meaning outside
        outer_sizes, self._sizes = self._sizes, dict(self._sizes)
        outer_expanded, self._expanded = self._expanded, dict(self._expanded)
        try:
            yield self.nodes
        finally:
            self.nodes, self._sizes, self._expanded = outer, outer_sizes, outer_expanded

    # -- common nodes -------------------------------------------------------------------------

    def cast(self, x: Operand, dtype: str) -> Operand:
        """Converts an operand to a dtype."""
        if str(x.dtype) == dtype:
            return x
        if isinstance(x, np.ndarray):
            return np.asarray(x).astype(dtype)
        return self.emit("Cast", x, dims=x.dims, dtype=dtype, to=dtype)

    def transpose(self, x: Operand, axes: Sequence[int]) -> Operand:
        """Reorders the axes of an operand."""
        axes = [int(axis) for axis in axes]
        if axes == list(range(len(axes))):
            return x
        if isinstance(x, np.ndarray):
            return np.ascontiguousarray(np.transpose(x, axes))
        return self.emit("Transpose", x, dims=[x.dims[a] for a in axes], perm=axes)

    def reshape(self, x: Operand, dims: Sequence[Dimension]) -> Operand:
        """Changes the shape; unknown sizes are copied, inferred or computed."""
        dims = tuple(dims)
        if tuple(x.shape) == dims:
            return x
        if isinstance(x, np.ndarray):
            return np.reshape(x, [int(dim) for dim in dims])
        unknown = [axis for axis, dim in enumerate(dims) if isinstance(dim, str)]
        sizes: list[int] = [dim if isinstance(dim, int) else 0 for dim in dims]
        # 0 copies the size of the same axis, -1 is inferred
        left = [a for a in unknown if a >= x.ndim or x.dims[a] != dims[a]]
        if len(left) == 1 and 0 not in [d for d in dims if isinstance(d, int)]:
            sizes[left[0]], left = -1, []
        if not left and 0 not in [dims[a] for a in range(len(dims)) if a not in unknown]:
            return self.emit("Reshape", x, np.array(sizes, np.int64), dims=dims)
        return self.emit("Reshape", x, self.shape(dims), dims=dims, allowzero=1)

    def is_transposed(self, x: Operand) -> bool:
        """Returns whether a tensor is a transpose, or computed from one, element by element."""
        return isinstance(x, Value) and x.name in self._transposed

    def squeeze(self, x: Value, axis: int) -> Value:
        """Removes an axis of size 1."""
        dims = [dim for a, dim in enumerate(x.dims) if a != axis]
        return self.emit("Squeeze", x, np.array([axis], np.int64), dims=dims)

    def slice(self, x: Value, axis: int, start: int, stop: int, dims: Sequence[Any]) -> Value:
        """Returns the cells from `start` to `stop` of one axis."""
        bounds = [np.array([n], np.int64) for n in (start, stop, axis)]
        return self.emit("Slice", x, *bounds, dims=dims)

    def reduce(self, kind: str, x: Operand, axes: Sequence[int], keep: bool) -> Value:
        """Reduces axes; `kind` is "Sum", "Max", "Min", "Prod" or "Mean"."""
        axes = sorted(int(axis) % len(x.shape) for axis in axes)
        if keep:
            dims = [1 if a in axes else dim for a, dim in enumerate(x.shape)]
        else:
            dims = [dim for a, dim in enumerate(x.shape) if a not in axes]
        # the axes of sums became an input in opset 13, those of the others in opset 18
        if kind == "Sum" or self.opset >= 18:
            axes_input = np.array(axes, np.int64)
            return self.emit(f"Reduce{kind}", x, axes_input, dims=dims, keepdims=int(keep))
        return self.emit(f"Reduce{kind}", x, dims=dims, axes=axes, keepdims=int(keep))

    # -- sizes --------------------------------------------------------------------------------

    def size(self, dim: Dimension) -> Operand:
        """Returns a size as an integer scalar; unknown sizes are computed when the graph runs."""
        if isinstance(dim, int):
            return np.array(dim, np.int64)
        if dim not in self._sizes:
            found: Any = evaluate_expression(dim, _Words(self))
            self._sizes[dim] = found.value
        return self._sizes[dim]

    def shape(self, dims: Sequence[Dimension]) -> Operand:
        """Returns sizes as a vector of integers."""
        if all(isinstance(dim, int) for dim in dims):
            return np.array(dims, np.int64)
        parts = [
            np.array([dim], np.int64)
            if isinstance(dim, int)
            else self.reshape(self.size(dim), (1,))
            for dim in dims
        ]
        return (
            parts[0] if len(parts) == 1 else self.emit("Concat", *parts, dims=(len(parts),), axis=0)
        )

    def shortened(self, value: Value) -> Value:
        """Returns a value whose complicated sizes are replaced by new names.

        The sizes of a deep network would otherwise become longer from layer to layer.
        """
        dims = []
        for axis, dim in enumerate(value.dims):
            short = shorten(dim) if isinstance(dim, str) else dim
            if short != dim:
                self._words.setdefault(str(short), (value, axis, 1))
            dims.append(short)
        return value if tuple(dims) == value.dims else dataclasses.replace(value, dims=tuple(dims))

    def word(self, name: str) -> Value:
        """Returns the size of an unknown axis of the inputs."""
        if name not in self._words:
            raise FKerasError(
                f"export, {'/'.join(self.path)}: the size {name!r} is not the size of an axis of an "
                "input. Fix the sizes of the inputs, shapes=(None, 16, 8)."
            )
        if name not in self._sizes:
            value, axis, multiple = self._words[name]
            shape = self.emit("Shape", value, dims=(value.ndim,), dtype="int64")
            index = np.array(axis, np.int64)
            size = self.emit("Gather", shape, index, dims=(), axis=0)
            if multiple > 1:
                size = self.emit("Div", size, np.array(multiple, np.int64), dims=())
            self._sizes[name] = size
        return self._sizes[name]


class _Words(Mapping):
    """The unknown axes of a writer as numbers that record their arithmetic as nodes."""

    def __init__(self, writer: Writer):
        self.writer = writer

    def __getitem__(self, name: str) -> _Number:
        return _Number(self.writer, self.writer.word(name))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Number:
    """An integer scalar that is computed when the graph runs."""

    def __init__(self, writer: Writer, value: Any):
        self.writer, self.value = writer, value

    def _compute(self, op: str, left: Any, right: Any, **attributes: Any) -> _Number:
        a, b = (x.value if isinstance(x, _Number) else np.array(x, np.int64) for x in (left, right))
        return _Number(self.writer, self.writer.emit(op, a, b, dims=(), **attributes))

    def __add__(self, other: Any) -> _Number:
        return self._compute("Add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> _Number:
        return self._compute("Sub", self, other)

    def __rsub__(self, other: Any) -> _Number:
        return self._compute("Sub", other, self)

    def __mul__(self, other: Any) -> _Number:
        return self._compute("Mul", self, other)

    __rmul__ = __mul__

    def __neg__(self) -> _Number:
        return self._compute("Sub", 0, self)

    def __pow__(self, exponent: int) -> _Number:
        return self if exponent == 1 else self * self ** (exponent - 1)

    def __mod__(self, other: Any) -> _Number:
        # the sign of the divisor, as in Python
        return self._compute("Mod", self, other)

    def __floordiv__(self, other: Any) -> _Number:
        # exact for all signs: ONNX truncates the quotient
        return self._compute("Div", self - self % other, other)

    # the methods of JAX's symbolic sizes
    def max(self, other: Any) -> _Number:
        return self._compute("Max", self, other)

    def min(self, other: Any) -> _Number:
        return self._compute("Min", self, other)

    rmax, rmin = max, min


def safe_name(text: str) -> str:
    """Returns a text with only those characters that names of ONNX tools allow."""
    return re.sub(r"[^\w./:-]", "_", text)
