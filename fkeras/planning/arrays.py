"""Arrays of a compiled program: which exist at the moment of the largest memory, and which are received."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fkeras.planning.scopes import Instruction

_ARRAY = re.compile(r"\b([a-z]+)(\d*)\w*\[([\d,]*)\](?:\{([^}]*)\})?")
# layouts of TPUs: the axes from the innermost, the sizes of tiles, and a memory beside the device's own
_TILES = re.compile(r"([\d,]*):T\(([\d,]+)\)")
_MEMORY = re.compile(r"S\([1-9]")
_CHANNEL = re.compile(r"channel_id=(\d+)")
_BRANCHES = re.compile(
    r"(?:branch_computations=\{([^}]*)\}|(?:true|false)_computation=(%[\w.\-]+))"
)
_INDEX = re.compile(r"index=(\d+)")
# instructions whose results have the memory of their operands
_VIEWS = frozenset({"bitcast", "get-tuple-element", "tuple", "opt-barrier"})
_IN_PLACE = frozenset({"while", "dynamic-update-slice", "scatter"})
_OUTSIDE = frozenset({"parameter", "constant"})
_RUNS = frozenset({"while", "call", "async-start"})
_KERNEL = 'custom_call_target="tpu_custom_call"'
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
    """Returns the bytes of each array of a shape in XLA's text."""
    return [
        _bytes(dtype, digits, map(int, filter(None, dims.split(","))))
        for dtype, digits, dims, _ in _ARRAY.findall(shape)
    ]


def memory_bytes(shape: str) -> list[int]:
    """Returns the bytes that each array of a shape takes in the device's memory.

    On TPUs, arrays consist of tiles, and an array in another memory, such as that of the core, takes nothing.
    """
    sizes = []
    for dtype, digits, dims, layout in _ARRAY.findall(shape):
        lengths = [int(length) for length in filter(None, dims.split(","))]
        tiles = _TILES.match(layout)
        if tiles:
            axes = [int(axis) for axis in filter(None, tiles[1].split(","))]
            for axis, tile in zip(axes, reversed(tiles[2].split(",")), strict=False):
                lengths[axis] = -(-lengths[axis] // int(tile)) * int(tile)
        sizes.append(0 if _MEMORY.search(layout) else _bytes(dtype, digits, lengths))
    return sizes


def _bytes(dtype: str, digits: str, lengths: Iterable[int]) -> int:
    # a boolean takes a byte, a token of an effect nothing
    bits = int(digits) if digits else 8 * (dtype == "pred")
    return -(-bits * math.prod(lengths) // 8)


def by_computation(program: Iterable[Instruction]) -> dict[str, list[Instruction]]:
    """Returns the instructions of each computation."""
    computations: dict[str, list[Instruction]] = {}
    for each in program:
        computations.setdefault(each.computation, []).append(each)
    return computations


class Received(NamedTuple):
    """An array that a collective operation returns to a device.

    Attributes:
        maker: the name of the instruction that the array belongs to.
        size: bytes in a step, in which a loop repeats the operation.
        kind: XLA's name of the operation, such as "all-reduce".
        operation: the name of the operation, which may return several arrays.
        times: how often the operation runs in a step.
    """

    maker: str
    size: int
    kind: str
    operation: str
    times: int


def received(computations: Mapping[str, list[Instruction]]) -> Iterator[Received]:
    """Yields the arrays that other devices send in a step.

    The compiler combines sums over devices. Each part belongs to the instruction that computes it.
    """
    channels: set[str] = set()

    def inside(computation: str, times: int) -> Iterator[Received]:
        for each in computations.get(computation, ()):
            if each.called:
                yield from inside(each.called, times * each.trips)
            # an asynchronous operation returns its arrays when the operation ends
            kind = each.opcode.removesuffix("-done")
            if kind not in _COLLECTIVES:
                continue
            # TPUs divide an asynchronous operation among the fusions that run at the same time
            channel = _CHANNEL.search(each.text)
            if channel and channel[1] in channels:
                continue
            if channel:
                channels.add(channel[1])
            sizes = array_bytes(each.shape)
            makers = each.names if len(sizes) > 1 else [each.name]
            for size, maker in zip(sizes, makers, strict=False):
                yield Received(maker, size * times, kind, each.name, times)

    return inside("", 1)


def cycles(computations: Mapping[str, list[Instruction]]) -> list[tuple[str, int | None]]:
    """Returns the instructions that the device runs in a step, and their cycles by the compiler's estimate.

    The instructions of a loop's body count once for each step, and of a conditional the branch that takes
    longest. None is the number of an operation whose cycles the compiler does not know.
    """

    def inside(computation: str, times: int) -> list[tuple[str, int | None]]:
        found: list[tuple[str, int | None]] = []
        for each in computations.get(computation, ()):
            # a kernel in another language than XLA's has no estimate
            if each.cycles is None or (not each.cycles and _KERNEL in each.text):
                found.append((each.name, None))
            elif each.cycles:
                found.append((each.name, each.cycles * times))
            if each.opcode in _RUNS:
                found += inside(each.called, times * each.trips)
            elif each.opcode == "conditional":
                names = ",".join(map("".join, _BRANCHES.findall(each.text))).split(",")
                branches = [inside(name.strip(" %"), times) for name in names if name]
                found += max(branches, key=lambda parts: sum(n or 0 for _, n in parts), default=[])
        return found

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
    if each.opcode == "copy-done" and operands:
        return operands[0][:1]
    root = each
    if each.opcode == "fusion":
        root = next(inner for inner in computations[each.called] if inner.is_root)
    # the copy of an argument may take the memory of the new value, which exists later
    is_argument = each.opcode == "copy" and not _held(operands)
    is_view = each.opcode in _VIEWS or root.opcode in _IN_PLACE or each.opcode.endswith("-done")
    if is_view or is_argument:
        return operands[0] if operands else [()]
    sizes = memory_bytes(each.shape)
    if each.opcode == "copy-start":  # the copy, the operand, and a semaphore
        sizes = [sizes[0], 0, 0]
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
