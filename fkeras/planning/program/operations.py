"""A program as one list of operations on numbered values: a jaxpr with its calls written out.

Values have sizes in bytes. Reshapes move no data, so the reshaped array is the same value. A loop is one
operation whose body is a program of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fkeras.engine.costs.counting import Costs

#: kinds of operations that a compiler computes element by element, inside of the loops that read them
FUSIBLE = frozenset({"elementwise", "broadcast", "reduce", "move"})


@dataclasses.dataclass(slots=True)
class Operation:
    """An operation of a program.

    Attributes:
        kind: "elementwise", "broadcast" (also `iota`), "move" (transposes, slices, gathers),
            "reduce", "loop", "barrier", or "call" for every other operation, which reads and writes
            arrays in memory.
        name: the name of the primitive.
        inputs: numbers of the values that the operation reads; constants are left out.
        outputs: numbers of the values that the operation computes.
        scope: the name stack of the operation.
        costs: operations of one execution, all steps of a loop.
        expensive: whether a compiler computes the value only once, for all readers.
        in_place: whether an output may take the memory of an input that is not read later.
        floating: whether the result has a floating-point type.
        body: for a loop, the bodies: of a condition the branches.
        steps: for a loop, the number of steps.
        stacks: for a scan, the number of stacked results. They are the last outputs, and their initial
            arrays the last inputs, as far as the backend initializes them.
        result_scopes: for a loop, the name stack of the operation in the body that computes each
            output.
        traffic: bytes that a device receives from others.
        looped: whether a loop repeats the operation, or the array has a part for each step.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scope: str = ""
    costs: Costs = Costs()
    expensive: bool = False
    in_place: bool = False
    floating: bool = False
    body: tuple[Program, ...] = ()
    steps: int = 1
    stacks: int = 0
    result_scopes: tuple[str, ...] = ()
    looped: bool = False
    traffic: int = 0

    def with_outputs(self, needed: set[int]) -> Operation:
        """Returns a loop without the stacked results that nothing reads."""
        results = zip(self.outputs, self.result_scopes, strict=True)
        kept_results = [each for each in results if each[0] in needed]
        outputs = tuple(number for number, _ in kept_results)
        scopes = tuple(scope for _, scope in kept_results)
        if not self.stacks:
            return dataclasses.replace(self, outputs=outputs, result_scopes=scopes)
        pairs = zip(self.inputs[-self.stacks :], self.outputs[-self.stacks :], strict=True)
        kept = tuple(start for start, result in pairs if result in needed)
        inputs = (*self.inputs[: -self.stacks], *kept)
        return dataclasses.replace(
            self, inputs=inputs, outputs=outputs, stacks=len(kept), result_scopes=scopes
        )


@dataclasses.dataclass(slots=True)
class Program:
    """A list of operations on numbered values.

    Attributes:
        operations: the operations in the order of the program.
        sizes: bytes of each value.
        elements: number of elements of each value.
        inputs: the values of the arguments.
        outputs: the values of the results; None for a constant.
        splits: for each result, the mesh axes that divide each axis.
    """

    operations: list[Operation] = dataclasses.field(default_factory=list)
    sizes: list[int] = dataclasses.field(default_factory=list)
    elements: list[int] = dataclasses.field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int | None, ...] = ()
    splits: tuple[tuple[tuple[str, ...], ...], ...] = ()

    def value(self, shape: Sequence[int], dtype: Any) -> int:
        """Adds a value and returns its number."""
        count = math.prod(shape)
        self.elements.append(count)
        self.sizes.append(count * item_bytes(dtype))
        return len(self.sizes) - 1

    def result_scopes(self) -> list[str]:
        """Returns the name stack of the operation that computes each result."""
        makers = {number: each for each in self.operations for number in each.outputs}
        scopes = []
        for number in self.outputs:
            maker = makers.get(number) if number is not None else None
            if maker is not None and maker.name == "dynamic_update_slice" and not maker.scope:
                # the write of a stacked result
                maker = makers.get(maker.inputs[0])
            scopes.append("" if maker is None else maker.scope)
        return scopes

    def flat(self) -> Iterator[tuple[Operation, int]]:
        """Yields all operations with the number of their executions, those of loops' bodies included.

        Of a condition, the most expensive branch counts.
        """
        for operation in self.operations:
            if not operation.body:
                yield operation, 1
                continue
            body = max(operation.body, key=lambda program: program.costs().flops)
            for inner, times in body.flat():
                scope = f"{operation.scope}/{inner.scope}"
                looped = operation.steps > 1
                yield (
                    dataclasses.replace(inner, scope=scope, looped=looped),
                    times * operation.steps,
                )

    def costs(self) -> Costs:
        """Returns the sum of the operations' costs."""
        return sum((operation.costs for operation in self.operations), Costs())

    def without_unused(self) -> Program:
        """Returns the program without operations whose results nothing reads."""
        needed = {number for number in self.outputs if number is not None}
        kept = []
        for operation in reversed(self.operations):
            if needed.intersection(operation.outputs) or operation.name in _EFFECTS:
                if operation.kind == "loop":
                    operation = operation.with_outputs(needed)
                needed.update(operation.inputs)
                kept.append(operation)
        return dataclasses.replace(self, operations=kept[::-1])


_EFFECTS = frozenset({"debug_callback", "io_callback", "debug_print"})


def item_bytes(dtype: Any) -> int:
    """Returns the bytes of one element; a typed PRNG key has two words of four bytes.

    Example:
        >>> item_bytes("bfloat16"), item_bytes("float32")
        (2, 4)
    """
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return getattr(dtype, "itemsize", 8)
