"""The table of names of a family: tensors of a file, weights of a graph, and their conversion.

A row maps templates of names, exactly and both ways: "model.layers.{i}.mlp.up_proj.weight" to
"block_{i}/up/kernel". The operation of a row converts the arrays; `write` undoes `read` bit by bit,
so that a checkpoint that nobody changed is written as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

Arrays: TypeAlias = tuple[np.ndarray, ...]
Shape: TypeAlias = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Operation:
    """Converts tensors of a file to weights; the class itself changes nothing.

    A subclass defines `read` and `write` for one array, or `read_all` and `write_all` where one
    tensor holds several weights or one weight holds several tensors.
    """

    def read(self, tensor: np.ndarray) -> np.ndarray:
        """Returns the weight of a tensor; a view where possible."""
        return tensor

    def write(self, weight: np.ndarray) -> np.ndarray:
        """Returns the tensor of a weight; undoes `read`."""
        return weight

    def read_all(self, tensors: Arrays) -> Arrays:
        """Returns the weights of a row."""
        return tuple(self.read(tensor) for tensor in tensors)

    def write_all(self, weights: Arrays) -> Arrays:
        """Returns the tensors of a row."""
        return tuple(self.write(weight) for weight in weights)

    def tensor_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Returns the shapes of the tensors whose weights have these shapes.

        Raises:
            ValueError: for weights that the operation cannot write.
        """
        # arrays of zero strides: no memory, except in `concatenate`, which Split avoids
        return tuple(self.write(np.broadcast_to(np.int8(0), shape)).shape for shape in shapes)


@dataclasses.dataclass(frozen=True)
class Same(Operation):
    """The tensor is the weight."""


@dataclasses.dataclass(frozen=True)
class Transpose(Operation):
    """Kernel of a linear layer, or a stack of kernels: (..., out, in) in the file, (..., in, out) in the graph.

    Example:
        >>> Transpose().read(np.ones((2, 3))).shape, Transpose().read(np.ones((8, 2, 3))).shape
        ((3, 2), (8, 3, 2))
    """

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor.swapaxes(-1, -2)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight.swapaxes(-1, -2)


@dataclasses.dataclass(frozen=True)
class Heads(Operation):
    """Kernel of a projection to `heads` heads of `size`: (heads * size, d) <-> (d, heads, size).

    Example:
        >>> Heads(2, 4).read(np.ones((8, 3))).shape, Heads(2, 4).tensor_shapes([(3, 2, 4)])
        ((3, 2, 4), ((8, 3),))
    """

    heads: int
    size: int

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor.reshape(self.heads, self.size, -1).transpose(2, 0, 1)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight.transpose(1, 2, 0).reshape(self.heads * self.size, -1)


@dataclasses.dataclass(frozen=True)
class HeadsIn(Operation):
    """Kernel of a projection from heads: (d, heads * size) <-> (heads, size, d).

    Example:
        >>> HeadsIn(2, 4).read(np.ones((3, 8))).shape
        (2, 4, 3)
    """

    heads: int
    size: int

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor.T.reshape(self.heads, self.size, -1)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight.reshape(self.heads * self.size, -1).T


@dataclasses.dataclass(frozen=True)
class HeadBias(Operation):
    """Bias of a projection to heads: (heads * size,) <-> (heads, size)."""

    heads: int
    size: int

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor.reshape(self.heads, self.size)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight.reshape(self.heads * self.size)


@dataclasses.dataclass(frozen=True)
class Reshape(Operation):
    """A weight of another shape with the same order of numbers, such as (1, 1, d) <-> (d,).

    Args:
        tensor: shape in the file.
        weight: shape in the graph.
    """

    tensor: Shape
    weight: Shape

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor.reshape(self.weight)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight.reshape(self.tensor)


@dataclasses.dataclass(frozen=True)
class Convolution(Operation):
    """Kernel of a convolution: (out, in, *sizes) in the file, (*sizes, in, out) in the graph.

    Example:
        >>> Convolution().read(np.ones((8, 3, 5, 6))).shape, Convolution().read(np.ones((8, 3, 5))).shape
        ((5, 6, 3, 8), (5, 3, 8))
    """

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return np.moveaxis(tensor, (0, 1), (-1, -2))

    def write(self, weight: np.ndarray) -> np.ndarray:
        return np.moveaxis(weight, (-1, -2), (0, 1))


@dataclasses.dataclass(frozen=True)
class Permuted(Operation):
    """Rows of each head in the order of GGUF files of `llama`: interleaved pairs of channels.

    The graph, as Hugging Face, has the first channel of all pairs, then the second of all pairs.

    Args:
        heads: number of heads, which divides the rows.

    Example:
        >>> Permuted(1).read(np.arange(6))
        array([0, 2, 4, 1, 3, 5])
    """

    heads: int

    def read(self, tensor: np.ndarray) -> np.ndarray:
        pairs = tensor.reshape(self.heads, -1, 2, *tensor.shape[1:])
        return pairs.swapaxes(1, 2).reshape(tensor.shape)

    def write(self, weight: np.ndarray) -> np.ndarray:
        halves = weight.reshape(self.heads, 2, -1, *weight.shape[1:])
        return halves.swapaxes(1, 2).reshape(weight.shape)


@dataclasses.dataclass(frozen=True)
class Add(Operation):
    """A weight that the file holds plus `value`, such as the norms of Gemma in GGUF files."""

    value: float

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor - np.asarray(self.value, tensor.dtype)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight + np.asarray(self.value, weight.dtype)


@dataclasses.dataclass(frozen=True)
class Then(Operation):
    """Two operations in a row; `read` begins with `first`."""

    first: Operation
    second: Operation

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return self.second.read(self.first.read(tensor))

    def write(self, weight: np.ndarray) -> np.ndarray:
        return self.first.write(self.second.write(weight))


@dataclasses.dataclass(frozen=True)
class Split(Operation):
    """One tensor that holds several weights along an axis, such as query, key and value.

    Args:
        sizes: size of each part along the axis.
        axis: axis of the tensor.
        then: operation of each part; an empty tuple changes nothing.

    Example:
        >>> fused = Split((4, 2), then=(Transpose(), Transpose()))
        >>> [part.shape for part in fused.read_all((np.ones((6, 3)),))]
        [(3, 4), (3, 2)]
    """

    sizes: tuple[int, ...]
    axis: int = 0
    then: tuple[Operation, ...] = ()

    @property
    def _parts(self) -> tuple[Operation, ...]:
        return self.then or (Same(),) * len(self.sizes)

    def read_all(self, tensors: Arrays) -> Arrays:
        (tensor,) = tensors
        parts = np.split(tensor, np.cumsum(self.sizes)[:-1], axis=self.axis)
        return tuple(op.read(part) for op, part in zip(self._parts, parts, strict=True))

    def write_all(self, weights: Arrays) -> Arrays:
        parts = [op.write(weight) for op, weight in zip(self._parts, weights, strict=True)]
        return (np.concatenate(parts, axis=self.axis),)

    def tensor_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        parts = [
            op.tensor_shapes([shape])[0] for op, shape in zip(self._parts, shapes, strict=True)
        ]
        whole = list(parts[0])
        whole[self.axis] = sum(part[self.axis] for part in parts)
        return (tuple(whole),)


@dataclasses.dataclass(frozen=True)
class Stack(Operation):
    """One weight of several tensors, such as the experts of a layer, along a new first axis.

    Args:
        then: operation of each tensor, before they are stacked.

    Example:
        >>> Stack(Transpose()).read_all((np.ones((2, 3)), np.ones((2, 3))))[0].shape
        (2, 3, 2)
    """

    then: Operation = Same()

    def read_all(self, tensors: Arrays) -> Arrays:
        return (np.stack([self.then.read(tensor) for tensor in tensors]),)

    def write_all(self, weights: Arrays) -> Arrays:
        (weight,) = weights
        return tuple(self.then.write(part) for part in weight)

    def tensor_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        ((count, *shape),) = shapes
        return self.then.tensor_shapes([tuple(shape)]) * count


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a table of names.

    Args:
        tensors: name of a tensor. "{i}" stands for the number of a block; "{e}" for the number of
            an expert, whose tensors one weight holds.
        weights: path of the weight in the graph, or the paths of the weights that the tensor holds.
        operation: converts between tensors and weights.
        blocks: numbers that replace "{i}".
        experts: number of experts, which replace "{e}".
        copy: whether the tensor repeats a weight that another row reads, such as a tied head. A
            file may leave the tensor out; where the file has the tensor, its bytes must be equal.

    Example:
        >>> row = Row("layers.{i}.up.weight", "block_{i}/up/kernel", Transpose(), range(2))
        >>> [(match.tensors, match.weights) for match in row.matches()]
        [(('layers.0.up.weight',), ('block_0/up/kernel',)), (('layers.1.up.weight',), ('block_1/up/kernel',))]
    """

    tensors: str
    weights: str | tuple[str, ...]
    operation: Operation = Same()
    blocks: Sequence[int] = ()
    experts: int = 0
    copy: bool = False

    def matches(self) -> Iterator[Match]:
        """Yields the row once for each block."""
        weights = (self.weights,) if isinstance(self.weights, str) else self.weights
        for i in self.blocks if "{i}" in self.tensors else (0,):
            block = self.tensors.replace("{i}", str(i))
            experts = range(self.experts) if "{e}" in block else (0,)
            yield Match(
                tuple(block.replace("{e}", str(e)) for e in experts),
                tuple(weight.replace("{i}", str(i)) for weight in weights),
                self.operation,
                self.copy,
            )


@dataclasses.dataclass(frozen=True)
class Match:
    """A row with numbers in the place of its letters."""

    tensors: tuple[str, ...]
    weights: tuple[str, ...]
    operation: Operation
    copy: bool = False

    def tensor_shapes(self, shapes: dict[str, Any]) -> tuple[Shape, ...]:
        """Returns the shape of each tensor for the shapes of all weights by path."""
        return self.operation.tensor_shapes([shapes[weight] for weight in self.weights])


def in_blocks(blocks: Sequence[int], *rows: Row) -> tuple[Row, ...]:
    """Returns rows that are repeated for each number of `blocks`.

    Example:
        >>> [row.blocks for row in in_blocks(range(2), Row("a.{i}", "b_{i}/kernel"))]
        [range(0, 2)]
    """
    return tuple(dataclasses.replace(row, blocks=blocks) for row in rows)
