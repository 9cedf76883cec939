"""Waiting in programs whose kernels run at the same time: copies of donated arguments, combined sums."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping

from fkeras.planning.program.operations import Operation, Program


def with_copies(program: Program, donated: Mapping[int, int]) -> Program:
    """Returns the program with copies of arguments whose memory a result takes too early.

    XLA runs operations at the same time on CPUs. A kernel that reads a weight, and does not have to
    finish before the new weight is computed, therefore reads a copy. The gradient of a layer's inputs
    is such a kernel: the update of the layer's own weight does not wait for this gradient.
    """
    operations = program.operations
    if not donated:
        return program
    before = _earlier(operations)
    maker = {number: i for i, operation in enumerate(operations) for number in operation.outputs}
    readers: dict[int, list[int]] = {}
    for i, operation in enumerate(operations):
        for number in operation.inputs:
            readers.setdefault(number, []).append(i)
    copies = {}
    for result, argument in donated.items():
        if result not in maker:
            continue
        finished = before[maker[result]]
        if any(not finished >> i & 1 for i in readers.get(argument, ())):
            copies[argument] = len(program.sizes)
            program.sizes.append(program.sizes[argument])
            program.elements.append(program.elements[argument])
    made = [Operation("call", "copy", (old,), (new,)) for old, new in copies.items()]
    renamed = [
        dataclasses.replace(
            operation, inputs=tuple(copies.get(number, number) for number in operation.inputs)
        )
        if copies.keys() & set(operation.inputs)
        else operation
        for operation in operations
    ]
    return dataclasses.replace(program, operations=[*made, *renamed])


def _earlier(operations: list[Operation]) -> list[int]:
    """Returns the kernels that have to finish before each kernel, as bits of an integer."""
    maker: dict[int, int] = {}
    before: list[int] = []
    for i, operation in enumerate(operations):
        bits = 1 << i
        for number in operation.inputs:
            if number in maker:
                bits |= before[maker[number]]
        before.append(bits)
        maker.update(dict.fromkeys(operation.outputs, i))
    return before


def with_combined_sums(program: Program) -> Program:
    """Returns the program with one all-reduce in the place of those that no other all-reduce follows.

    XLA combines independent sums over devices. The gradients of all weights therefore exist together.
    """
    operations = program.operations
    sums = [i for i, operation in enumerate(operations) if operation.name == "all_reduce"]
    if len(sums) < 2:
        return program
    before = _earlier(operations)
    all_bits = sum(1 << i for i in sums)
    # kernels before another sum
    followed = 0
    for i in sums:
        followed |= before[i] & all_bits & ~(1 << i)
    last = [i for i in sums if not followed >> i & 1]
    combined = dataclasses.replace(
        operations[last[0]],
        inputs=tuple(number for i in last for number in operations[i].inputs),
        outputs=tuple(number for i in last for number in operations[i].outputs),
        traffic=sum(operations[i].traffic for i in last),
    )
    members = set(last)
    # readers of the sums come after all of their inputs: a stable order by dependence
    kept = [operation for i, operation in enumerate(operations) if i not in members]
    return dataclasses.replace(program, operations=_sorted([*kept, combined]))


def _sorted(operations: list[Operation]) -> list[Operation]:
    maker = {number: i for i, operation in enumerate(operations) for number in operation.outputs}
    needs = [{maker[n] for n in operation.inputs if n in maker} for operation in operations]
    readers: dict[int, list[int]] = {}
    for i, before in enumerate(needs):
        for j in before:
            readers.setdefault(j, []).append(i)
    missing = [len(before) for before in needs]
    ready = [i for i, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(operations[i])
        for j in readers.get(i, ()):
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready, j)
    return order
