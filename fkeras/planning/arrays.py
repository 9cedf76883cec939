"""Arrays of a compiled program: which exist at the moment of the largest memory, and which are received."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fkeras.planning.scopes import Instruction

_ARRAY = re.compile(r"\b([a-z]+)(\d*)\w*\[([\d,]*)\]")
_INDEX = re.compile(r"index=(\d+)")
# instructions whose results have the memory of their operands
_VIEWS = frozenset({"bitcast", "get-tuple-element", "tuple", "opt-barrier"})
_IN_PLACE = frozenset({"while", "dynamic-update-slice", "scatter"})
_OUTSIDE = frozenset({"parameter", "constant"})
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


class Held(NamedTuple):
    """Memory of an array, or of arrays that take its place one after the other.

    Attributes:
        size: bytes of the array.
        maker: the name of the instruction that computes the array.
        start: the place of this instruction in its computation.
    """

    size: int
    maker: str
    start: int


def array_bytes(shape: str) -> list[int]:
    """Returns the bytes of each array of a shape in XLA's text.

    Example:
        >>> array_bytes("(f32[2,3]{1,0}, /*index=1*/bf16[4], pred[5], s32[])")
        [24, 8, 5, 4]
    """
    sizes = []
    for dtype, digits, dims in _ARRAY.findall(shape):
        # a boolean takes a byte, a token of an effect nothing
        bits = int(digits) if digits else 8 * (dtype == "pred")
        for size in filter(None, dims.split(",")):
            bits *= int(size)
        sizes.append(-(-bits // 8))
    return sizes


def by_computation(program: Iterable[Instruction]) -> dict[str, list[Instruction]]:
    """Returns the instructions of each computation."""
    computations: dict[str, list[Instruction]] = {}
    for each in program:
        computations.setdefault(each.computation, []).append(each)
    return computations


def received(computations: Mapping[str, list[Instruction]]) -> Iterator[tuple[str, int]]:
    """Yields instructions, and the bytes that other devices send for them in a step.

    The compiler combines sums over devices. Each part belongs to the instruction that computes it.
    """

    def inside(computation: str, times: int) -> Iterator[tuple[str, int]]:
        for each in computations.get(computation, ()):
            if each.called and each.opcode != "fusion":
                yield from inside(each.called, times * each.trips)
            # an asynchronous operation returns its arrays when the operation ends
            if each.opcode.removesuffix("-done") in _COLLECTIVES:
                sizes = array_bytes(each.shape)
                makers = each.names if len(sizes) > 1 else [each.name]
                for size, maker in zip(sizes, makers, strict=False):
                    yield maker, size * times

    return inside("", 1)


def largest(computations: Mapping[str, list[Instruction]]) -> list[tuple[str, int]]:
    """Returns the instructions whose arrays exist at the moment of the largest memory, and the bytes.

    The text has the order in which the instructions run. Arguments and results do not count.
    """
    return _largest("", computations)


def _largest(
    computation: str, computations: Mapping[str, list[Instruction]]
) -> list[tuple[str, int]]:
    program = computations.get(computation, [])
    # for each instruction the arrays of each of its results
    values: dict[str, list[tuple[Held, ...]]] = {}
    ends: dict[Held, int] = {}
    results: set[Held] = set()
    makers: dict[Held, str] = {}
    for time, each in enumerate(program):
        operands = [values[name] for name in each.names if name in values]
        made = _results(time, each, operands, computations)
        values[each.name] = made
        if each.opcode not in _VIEWS:
            ends.update(dict.fromkeys(_held(operands), time))
        if each.opcode == "while":
            makers.update(_loop_makers(each, made, computations))
        if each.is_root:
            results.update(_held([made]))
    changes = [0] * (len(program) + 1)
    arrays = [array for array in _held(values.values()) if array not in results]
    for array in arrays:
        changes[array.start] += array.size
        changes[ends.get(array, array.start) + 1] -= array.size
    totals = list(itertools.accumulate(changes))
    inner = {
        time: _largest(each.called, computations)
        for time, each in enumerate(program)
        if each.opcode in ("while", "call")
    }
    for time, parts in inner.items():
        totals[time] += sum(size for _, size in parts)
    peak = max(range(len(totals)), key=totals.__getitem__)
    alive = [
        (makers.get(array, array.maker), array.size)
        for array in arrays
        if array.start <= peak <= ends.get(array, array.start)
    ]
    return [*alive, *inner.get(peak, ())]


def _held(values: Iterable[list[tuple[Held, ...]]]) -> dict[Held, None]:
    """Returns the different arrays of values."""
    return {array: None for value in values for part in value for array in part}


def _results(
    time: int,
    each: Instruction,
    operands: list[list[tuple[Held, ...]]],
    computations: Mapping[str, list[Instruction]],
) -> list[tuple[Held, ...]]:
    """Returns the arrays of each result of an instruction."""
    if each.opcode in _OUTSIDE:
        return [()]
    if each.opcode == "tuple":
        return [tuple(_held([operand])) for operand in operands]
    if each.opcode == "get-tuple-element" and operands:
        index, whole = int(_INDEX.findall(each.text)[-1]), operands[0]
        return [whole[index]] if index < len(whole) else whole
    root = each
    if each.opcode == "fusion":
        root = next(inner for inner in computations[each.called] if inner.is_root)
    # the copy of an argument may take the memory of the new value, which exists later
    is_argument = each.opcode == "copy" and not _held(operands)
    is_view = each.opcode in _VIEWS or root.opcode in _IN_PLACE or each.opcode.endswith("-done")
    if is_view or is_argument:
        return operands[0] if operands else [()]
    sizes = array_bytes(each.shape)
    return [
        # results of one instruction differ, whatever their sizes
        (Held(size, each.name if len(sizes) == 1 else f"{each.name} {place}", time),)
        for place, size in enumerate(sizes)
    ]


def _loop_makers(
    loop: Instruction,
    carried: list[tuple[Held, ...]],
    computations: Mapping[str, list[Instruction]],
) -> dict[Held, str]:
    """Returns the instructions in the body of a loop that compute the arrays that the loop carries."""
    body = computations.get(loop.called, [])
    root = next((each for each in body if each.is_root), None)
    if root is None:
        return {}
    inside = {each.name: each for each in body if each.opcode not in (*_VIEWS, *_OUTSIDE)}
    makers = {}
    for part, name in zip(carried, root.names, strict=False):
        if name in inside:
            # a step writes its part into an array for all steps: the part shows the call
            parts = [other for other in inside[name].names if other in inside]
            makers.update(dict.fromkeys(part, parts[-1] if parts else name))
    return makers
