"""Reductions that XLA's CPU compiler computes by functions of a library.

Such a function reads and writes arrays in memory. It also computes the elementwise operations directly
before the reduction, if nothing else reads their results, and directly after it.
"""

from __future__ import annotations

import dataclasses

from fkeras.engine.costs.counting import Costs
from fkeras.planning.program.operations import Operation, Program

_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min")
_SUPPORTED = frozenset(
    {
        *("abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "logistic", "neg"),
        *("round", "rsqrt", "sign", "sin", "sqrt", "tanh", "tan", "add", "div", "max", "min"),
        *("mul", "pow", "sub", "square", "add_any", "convert_element_type", "broadcast_in_dim"),
    }
)
# smaller operations are compiled like others
_SMALLEST = 4096


def with_library(program: Program) -> Program:
    """Returns the program with calls of the library in the place of reductions."""
    operations = program.operations
    producer = {number: i for i, o in enumerate(operations) for number in o.outputs}
    users: dict[int, set[int]] = {}
    for i, operation in enumerate(operations):
        for number in operation.inputs:
            users.setdefault(number, set()).add(i)
    results = {number for number in program.outputs if number is not None}
    taken: set[int] = set()
    groups: dict[int, list[int]] = {}

    def supported(i: int) -> bool:
        operation = operations[i]
        numbers = (*operation.inputs, *operation.outputs)
        large = any(program.elements[number] >= _SMALLEST for number in numbers)
        return (
            operation.name in _SUPPORTED
            and operation.floating
            and bool(operation.inputs)
            and (large or operation.kind == "broadcast")
            and all(operations[producer[n]].floating for n in operation.inputs if n in producer)
        )

    def grow(group: list[int], end: int) -> tuple[list[int], int]:
        members = set(group)
        pending = list(group)
        while pending:
            for number in operations[pending.pop()].inputs:
                i = producer.get(number)
                if i is None or i in taken or i in members or number in results:
                    continue
                if users[number] <= members and supported(i):
                    members.add(i)
                    pending.append(i)
        while True:
            (number,) = operations[end].outputs
            readers = users.get(number, set())
            if number in results or len(readers) != 1:
                break
            (reader,) = readers
            if reader in taken or reader in members or not supported(reader):
                break
            members.add(reader)
            end = reader
        return sorted(members), end

    for i in range(len(operations) - 1, -1, -1):
        operation = operations[i]
        if operation.name not in _REDUCTIONS or i in taken or not operation.floating:
            continue
        if not operation.inputs or program.elements[operation.inputs[0]] < _SMALLEST:
            continue
        group, end = [i], i
        while True:
            larger, end = grow(group, end)
            if len(larger) == len(group):
                break
            group = larger
        taken.update(group)
        groups[end] = group
    return dataclasses.replace(
        program,
        operations=[
            _merged(operations, groups[i], i) if i in groups else operation
            for i, operation in enumerate(operations)
            if i in groups or i not in taken
        ],
    )


def _merged(operations: list[Operation], group: list[int], end: int) -> Operation:
    inside = {number for i in group for number in operations[i].outputs}
    inputs = dict.fromkeys(
        number for i in group for number in operations[i].inputs if number not in inside
    )
    return dataclasses.replace(
        operations[end],
        kind="call",
        name=operations[group[0]].name if len(group) == 1 else operations[end].name,
        inputs=tuple(inputs),
        costs=sum((operations[i].costs for i in group), Costs()),
        in_place=False,
    )
