"""Copies of donated arguments that a program still reads while it writes their new values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from fkeras.planning.program.operations import Operation, Program


def with_copies(program: Program, donated: Mapping[int, int]) -> Program:
    """Returns the program with copies of arguments whose memory a result takes too early.

    XLA runs operations at the same time on CPUs. A kernel that reads a weight, and does not have to
    finish before the new weight is computed, therefore reads a copy. The gradient of a layer's inputs
    is such a kernel: the update of the layer's own weight does not wait for this gradient.

    Args:
        program: a program of kernels.
        donated: the argument whose memory a result takes, by the value of the result.
    """
    operations = program.operations
    maker: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    # the kernels that have to finish before a kernel, as bits of an integer
    before: list[int] = []
    for i, operation in enumerate(operations):
        bits = 1 << i
        for number in operation.inputs:
            if number in maker:
                bits |= before[maker[number]]
            readers.setdefault(number, []).append(i)
        before.append(bits)
        maker.update(dict.fromkeys(operation.outputs, i))
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
