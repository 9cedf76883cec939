"""Kernels of a program: operations that a compiler computes in one loop, without arrays in between.

The rules are those of XLA: an elementwise operation, a broadcast or a movement is computed inside of the
loops that read it. A cheap one is computed again in every such loop. An expensive one, such as `exp`
or a reduction, has to be computed once: it is part of a loop only if this loop is its only reader and
reads no element twice.
"""

from __future__ import annotations

import dataclasses

from fkeras.engine.costs.counting import Costs
from fkeras.planning.program.operations import FUSIBLE, Operation, Program


def fused(program: Program) -> Program:
    """Returns the program with kernels in the place of operations; its other values do not exist.

    Args:
        program: a program; its operations are not changed.
    """
    operations = program.operations
    producer = {number: i for i, o in enumerate(operations) for number in o.outputs}
    users: list[list[int]] = [[] for _ in operations]
    for i, operation in enumerate(operations):
        for number in set(operation.inputs):
            if number in producer:
                users[producer[number]].append(i)
    results = {producer[number] for number in program.outputs if number in producer}
    # the operations at the end of the kernels that compute an operation; users come first
    roots: list[set[int]] = [set() for _ in operations]
    reused = [False] * len(operations)
    stored = [False] * len(operations)
    repeated = [True] * len(operations)
    for i in range(len(operations) - 1, -1, -1):
        operation = operations[i]
        readers = users[i]
        stays = i in results or any(operations[j].kind not in FUSIBLE for j in readers)
        if operation.kind not in FUSIBLE or not readers:
            roots[i], stored[i], repeated[i] = {i}, True, False
            continue
        kernels: set[int] = set()
        for j in readers:
            if operations[j].kind in FUSIBLE:
                kernels |= roots[j]
        again = any(_repeats(program, operations[j]) or reused[j] for j in readers)
        alone = len(kernels) + stays == 1
        if (operation.expensive and (again or not alone)) or (
            stays and _reads_more(program, operation, producer)
        ):
            roots[i], stored[i], repeated[i] = {i}, True, False
            continue
        stored[i] = stays
        roots[i] = kernels | {i} if stays else kernels
        reused[i] = again
    return _kernels(program, producer, stored, repeated)


def _repeats(program: Program, operation: Operation) -> bool:
    if operation.kind != "broadcast" or not operation.inputs:
        return False
    return program.elements[operation.outputs[0]] > program.elements[operation.inputs[0]]


def _reads_more(program: Program, operation: Operation, producer: dict[int, int]) -> bool:
    """Returns whether computing the operation in several kernels reads more than storing its result."""
    out = program.elements[operation.outputs[0]]
    inputs = set(operation.inputs)
    large = [
        number
        for number in inputs
        if program.elements[number] >= out
        and (number not in producer or program.operations[producer[number]].kind != "broadcast")
    ]
    return len(large) > 1 and sum(program.elements[number] for number in inputs) > out


def _kernels(
    program: Program, producer: dict[int, int], stored: list[bool], repeated: list[bool]
) -> Program:
    operations = program.operations
    kernels = []
    claimed = [False] * len(operations)
    for i, operation in enumerate(operations):
        if not stored[i]:
            continue
        if operation.kind not in FUSIBLE:
            kernels.append(operation)
            continue
        inputs: dict[int, None] = {}
        in_place, costs = operation.kind == "elementwise", Costs()
        pending, inside = [i], set()
        while pending:
            j = pending.pop()
            if j in inside:
                continue
            inside.add(j)
            inner = operations[j]
            if not claimed[j]:
                claimed[j] = True
                costs = costs + inner.costs
            for number in inner.inputs:
                source = producer.get(number)
                if source is None or not repeated[source]:
                    inputs[number] = None
                else:
                    pending.append(source)
        kernels.append(
            dataclasses.replace(operation, inputs=tuple(inputs), costs=costs, in_place=in_place)
        )
    return dataclasses.replace(program, operations=kernels)
