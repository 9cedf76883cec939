"""The table of names of a family: maps the tensors of a checkpoint to the weights of the graph.

A row maps a template of tensor names to weight paths, such as "model.layers.{i}.mlp.up_proj.weight" to
"block_{i}/up/kernel". The operation of the row converts the arrays. `write` is the exact inverse of
`read`, so that an unchanged checkpoint is written with the same bytes.
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
    """Converts tensors of a checkpoint to weights; the base class is the identity.

    A subclass defines `read` and `write` for one array, or `read_all` and `write_all` if one tensor holds
    several weights or one weight holds several tensors.
    """

    def read(self, tensor: np.ndarray) -> np.ndarray:
        """Converts a tensor to a weight, as a view if possible."""
        return tensor

    def write(self, weight: np.ndarray) -> np.ndarray:
        """Converts a weight to a tensor: the inverse of `read`."""
        return weight

    def read_all(self, tensors: Arrays) -> Arrays:
        """Converts the tensors of a row to weights."""
        return tuple(self.read(tensor) for tensor in tensors)

    def write_all(self, weights: Arrays) -> Arrays:
        """Converts the weights of a row to tensors."""
        return tuple(self.write(weight) for weight in weights)

    def tensor_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Returns the shapes of the tensors for the shapes of the weights.

        Raises:
            ValueError: for weights that the operation cannot write.
        """
        # arrays with zero strides take no memory; `Split` overrides this, since `concatenate` copies
        return tuple(self.write(np.broadcast_to(np.int8(0), shape)).shape for shape in shapes)


@dataclasses.dataclass(frozen=True)
class Same(Operation):
    """The identity."""


@dataclasses.dataclass(frozen=True)
class Transpose(Operation):
    """Kernel of a linear layer, or a stack of kernels: (..., out, in) in the file, (..., in, out) in the graph."""

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor.swapaxes(-1, -2)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight.swapaxes(-1, -2)


@dataclasses.dataclass(frozen=True)
class Heads(Operation):
    """Kernel of a projection to `heads` heads of `size`: (heads * size, d) <-> (d, heads, size)."""

    heads: int
    size: int

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor.reshape(self.heads, self.size, -1).transpose(2, 0, 1)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight.transpose(1, 2, 0).reshape(self.heads * self.size, -1)


@dataclasses.dataclass(frozen=True)
class HeadsIn(Operation):
    """Kernel of a projection from heads: (d, heads * size) <-> (heads, size, d)."""

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
    """Reshapes in C order, such as (1, 1, d) <-> (d,).

    Args:
        tensor: shape in the checkpoint.
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
    """Kernel of a convolution: (out, in, *sizes) in the file, (*sizes, in, out) in the graph."""

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return np.moveaxis(tensor, (0, 1), (-1, -2))

    def write(self, weight: np.ndarray) -> np.ndarray:
        return np.moveaxis(weight, (-1, -2), (0, 1))


@dataclasses.dataclass(frozen=True)
class Permuted(Operation):
    """Permutes the rows of each head: GGUF files of `llama` interleave the pairs of rotary channels.

    The graph and Hugging Face's checkpoints have the first channels of all pairs, then the second channels.

    Args:
        heads: number of heads, a divisor of the number of rows.
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
    """Subtracts `value` from a tensor, such as 1 from the norm scales of Gemma in GGUF files."""

    value: float

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor - np.asarray(self.value, tensor.dtype)

    def write(self, weight: np.ndarray) -> np.ndarray:
        return weight + np.asarray(self.value, weight.dtype)


@dataclasses.dataclass(frozen=True)
class Then(Operation):
    """Composes two operations; `read` applies `first` first."""

    first: Operation
    second: Operation

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return self.second.read(self.first.read(tensor))

    def write(self, weight: np.ndarray) -> np.ndarray:
        return self.first.write(self.second.write(weight))


@dataclasses.dataclass(frozen=True)
class Split(Operation):
    """Splits one tensor into several weights, such as query, key and value.

    Args:
        sizes: size of each part along the axis.
        axis: axis of the tensor.
        then: operation of each part; an empty tuple for the identity.
        groups: number of groups along the axis, each with its share of all parts, such as the rows of
            query, key and value of one head.
    """

    sizes: tuple[int, ...]
    axis: int = 0
    then: tuple[Operation, ...] = ()
    groups: int = 1

    @property
    def _parts(self) -> tuple[Operation, ...]:
        return self.then or (Same(),) * len(self.sizes)

    def read_all(self, tensors: Arrays) -> Arrays:
        (tensor,) = tensors
        ends = np.cumsum(self.sizes)[:-1] // self.groups
        parts = np.split(self._grouped(tensor), ends, axis=self.axis + 1)
        parts = [self._flat(part) for part in parts]
        return tuple(op.read(part) for op, part in zip(self._parts, parts, strict=True))

    def write_all(self, weights: Arrays) -> Arrays:
        parts = [op.write(weight) for op, weight in zip(self._parts, weights, strict=True)]
        grouped = [self._grouped(part) for part in parts]
        return (self._flat(np.concatenate(grouped, axis=self.axis + 1)),)

    def _grouped(self, array: np.ndarray) -> np.ndarray:
        before, after = array.shape[: self.axis], array.shape[self.axis + 1 :]
        return array.reshape(*before, self.groups, array.shape[self.axis] // self.groups, *after)

    def _flat(self, array: np.ndarray) -> np.ndarray:
        before, after = array.shape[: self.axis], array.shape[self.axis + 2 :]
        return array.reshape(*before, self.groups * array.shape[self.axis + 1], *after)

    def tensor_shapes(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        parts = [
            op.tensor_shapes([shape])[0] for op, shape in zip(self._parts, shapes, strict=True)
        ]
        whole = list(parts[0])
        whole[self.axis] = sum(part[self.axis] for part in parts)
        return (tuple(whole),)


@dataclasses.dataclass(frozen=True)
class Stack(Operation):
    """Stacks several tensors to one weight along a new first axis, such as the experts of a layer.

    Args:
        then: operation of each tensor before the stacking.

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
        tensors: template of the tensor names: "{i}" is the index of a block, "{e}" the index of an expert
            in a weight that stacks experts.
        weights: path of the weight in the graph, or the paths of the weights that the tensor holds.
        operation: converts between tensors and weights.
        blocks: indices that replace "{i}".
        experts: number of experts, or the names that replace "{e}".
        copy: whether the tensor is a copy of a weight that another row reads, such as a tied head. The
            tensor is optional, and must equal the weight.
        logits: whether the tensor holds the weights of the logits.
    """

    tensors: str
    weights: str | tuple[str, ...]
    operation: Operation = Same()
    blocks: Sequence[int] = ()
    experts: int | tuple[str, ...] = 0
    copy: bool = False
    logits: bool = False

    def matches(self) -> Iterator[Match]:
        """Yields a match for each block."""
        weights = (self.weights,) if isinstance(self.weights, str) else self.weights
        for i in self.blocks if "{i}" in self.tensors else (0,):
            block = self.tensors.replace("{i}", str(i))
            names = range(self.experts) if isinstance(self.experts, int) else self.experts
            experts = names if "{e}" in block else (0,)
            yield Match(
                tuple(block.replace("{e}", str(e)) for e in experts),
                tuple(weight.replace("{i}", str(i)) for weight in weights),
                self.operation,
                self.copy,
                self.logits,
            )


@dataclasses.dataclass(frozen=True)
class Match:
    """A row for one block, with the full names of tensors and weights."""

    tensors: tuple[str, ...]
    weights: tuple[str, ...]
    operation: Operation
    copy: bool = False
    logits: bool = False

    def tensor_shapes(self, shapes: dict[str, Any]) -> tuple[Shape, ...]:
        """Returns the shapes of the tensors, given the shapes of all weights by path."""
        return self.operation.tensor_shapes([shapes[weight] for weight in self.weights])


def in_blocks(blocks: Sequence[int], *rows: Row) -> tuple[Row, ...]:
    """Returns the rows with the indices of blocks."""
    return tuple(dataclasses.replace(row, blocks=blocks) for row in rows)
