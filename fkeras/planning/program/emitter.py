"""Adds operations to a program, and equal operations only once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fkeras.engine.costs.counting import Costs
from fkeras.engine.costs.rules import primitive_count
from fkeras.planning.program.operations import Operation, Program


def primitive_costs(equation: Any) -> Costs:
    """Returns the operations of an equation that runs no other jaxpr."""
    count = primitive_count(equation)
    if count is None:
        return Costs(unknown=frozenset({equation.primitive.name}))
    return Costs(float(count.flops), float(count.transcendentals))


class Emitter(NamedTuple):
    """Adds the operations of one equation.

    Attributes:
        program: the program.
        seen: the outputs of operations by their keys.
        transposed: for the result of a transpose, its input, the input's shape and the permutation.
        scope: the name stack of the equation.
    """

    program: Program
    seen: dict[Any, tuple[int, ...]]
    transposed: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]]
    scope: str

    def add(
        self,
        kind: str,
        name: str,
        inputs: Sequence[int | None],
        avals: Sequence[Any],
        **fields: Any,
    ) -> tuple[int, ...]:
        """Adds an operation and returns the numbers of its outputs."""
        outputs = tuple(self.program.value(aval.shape, aval.dtype) for aval in avals)
        known = tuple(number for number in inputs if number is not None)
        self.program.operations.append(Operation(kind, name, known, outputs, self.scope, **fields))
        return outputs

    def once(self, kind: str, name: str, number: int, aval: Any, key: Any, **fields: Any) -> int:
        """Returns the output of an operation with one input, which is added if it is new."""
        whole_key = (name, tuple(aval.shape), str(aval.dtype), key, (number,))
        if whole_key not in self.seen:
            self.seen[whole_key] = self.add(kind, name, (number,), (aval,), **fields)
        return self.seen[whole_key][0]
