"""Instructions of a compiled program and their name stacks, from the program's text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][a-z0-9\-]*)\(")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.\-]+)")
_OPERANDS = re.compile(r"%([\w.\-]+)")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_LIMIT = re.compile(r"constant\((\d+)\)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
# a larger number is the compiler's mark of an unknown number
_MOST_CYCLES = 10**12
_ASYNCHRONOUS = re.compile(r" (?:dot|convolution)\(|kind=kCustom|custom-call\(")


class Instruction(NamedTuple):
    """An instruction of a compiled program.

    Attributes:
        computation: the computation that contains the instruction; "" for the program's own.
        name: the name of the instruction.
        is_root: whether the instruction computes the result of its computation.
        shape: the text of the shapes and layouts of the results.
        opcode: XLA's name of the operation.
        text: operands and attributes as text, without metadata.
        names: the instructions and computations that the text names; the operands come first.
        called: the computation that the instruction runs, or "".
        stack: the name stack, or "".
        trips: for a loop, the number of steps; 1 if unknown.
        cycles: the compiler's estimate of the cycles of the operation; 0 for an operation without an
            estimate, None for an unknown number.
    """

    computation: str
    name: str
    is_root: bool
    shape: str
    opcode: str
    text: str
    names: list[str]
    called: str
    stack: str
    trips: int
    cycles: int | None


def instructions(program: str) -> list[Instruction]:
    """Returns the instructions of a compiled program in running order.

    Args:
        program: the text of a compiled program, `compiled.as_text()`.
    """
    read, computation = [], ""
    for line in program.splitlines():
        header = _COMPUTATION.match(line)
        if header:
            computation = "" if header[1] else header[2]
            continue
        start = _INSTRUCTION.match(line)
        if not start:
            continue
        opcode = _OPCODE.search(line, start.end() - 1)
        place = opcode.start() if opcode else start.end()
        text = line[place:].partition("metadata=")[0]
        op_name, called, trips = _OP_NAME.search(line), _CALLED.search(line), _TRIPS.search(line)
        cycles = _CYCLES.search(line)
        read.append(
            Instruction(
                computation,
                start[2],
                bool(start[1]),
                line[start.end() : place],
                opcode[1] if opcode else "",
                text,
                _OPERANDS.findall(text),
                called[1] if called else "",
                # the last part is the primitive, which may have the name of a layer
                op_name[1].rpartition("/")[0] if op_name else "",
                int(trips[1]) if trips else 0,
                _known(int(cycles[1])) if cycles else 0,
            )
        )
    limits = _limits(read)
    return [each if each.trips else each._replace(trips=_trips(each, limits)) for each in read]


def _known(cycles: int) -> int | None:
    return cycles if cycles < _MOST_CYCLES else None


def _limits(program: Iterable[Instruction]) -> dict[str, list[int]]:
    """Returns the integers that each computation compares with, if its result is `number < integer`."""
    constants: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    for each in program:
        if each.opcode == "constant" and each.shape.startswith(("s32[]", "u32[]")):
            constants.setdefault(each.computation, []).extend(map(int, _LIMIT.findall(each.text)))
        if each.is_root and each.opcode == "compare" and "direction=LT" in each.text:
            ends[each.computation] = constants.get(each.computation, [])
    return ends


def _trips(loop: Instruction, limits: dict[str, list[int]]) -> int:
    """Returns the number of steps of a loop whose number the text does not state, as on TPUs."""
    condition = _CONDITION.search(loop.text)
    # JAX's loops of known length count from 0
    numbers = limits.get(condition[1], []) if condition else []
    return numbers[0] if len(numbers) == 1 else 1


def awaited(program: Iterable[Instruction]) -> dict[str, tuple[str, ...]]:
    """Returns the operands of each operation that a library may still compute when its call returns.

    Libraries compute matrix products and convolutions in threads of their own. A trace shows the call
    that starts a product. The operation that reads the product waits for the threads.

    Example:
        >>> text = '''  %dot.1 = f32[2,2]{1,0} dot(%x, %x)
        ...   ROOT %exp.1 = f32[2,2]{1,0} exponential(%dot.1)'''
        >>> awaited(instructions(text))
        {'exp.1': ('dot.1',)}
    """
    started: set[str] = set()
    waits: dict[str, tuple[str, ...]] = {}
    for each in program:
        operands = tuple(name for name in each.names if name in started)
        if operands:
            waits[each.name] = operands
        if _ASYNCHRONOUS.search(each.text):
            started.add(each.name)
    return waits


def scopes(program: Iterable[Instruction]) -> dict[str, str]:
    """Returns the name stack of each operation of a compiled program.

    The compiler adds operations without a name, such as copies and transposes. These operations have the
    name of an operation inside of them, otherwise that of an operation that reads their result.
    """
    program = list(program)
    names = {each.name: each.stack for each in program if each.stack}
    inside: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    for each in program:
        if each.stack:
            inside.setdefault(each.computation, each.stack)
        for operand in each.names:
            readers.setdefault(operand, []).append(each.name)
    for each in program:
        if each.name not in names and each.called in inside:
            names[each.name] = inside[each.called]
    origins: dict[str, str] = {}
    for each in program:
        near = [origins.get(name, "") for name in each.names]
        origins[each.name] = names.get(each.name) or _best(near)
    # the update of the weights reads a gradient whose product has lost its name
    for each in program:
        if not each.stack and _ASYNCHRONOUS.search(each.text):
            names.setdefault(each.name, origins[each.name])
    for each in reversed(program):
        if each.name not in names:
            stack = _best([names.get(reader, "") for reader in readers.get(each.name, ())])
            names[each.name] = stack if "jvp" in stack else origins[each.name] or stack
    return {each.name: names[each.name] for each in program}


def _best(stacks: list[str]) -> str:
    """Returns the stack of a gradient, otherwise of a call of the model, otherwise any."""
    ranked = sorted(stacks, key=lambda stack: ("transpose(" in stack, "jvp" in stack, bool(stack)))
    return ranked[-1] if ranked else ""
