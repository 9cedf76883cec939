"""Memory of a program over time: which arrays exist together, and how many bytes they need."""

from __future__ import annotations

import bisect
import dataclasses
import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fkeras.planning.program.backends import Backend
from fkeras.planning.program.fusion import fused
from fkeras.planning.program.library import with_library
from fkeras.planning.program.operations import Operation, Program
from fkeras.planning.program.waiting import with_combined_sums, with_copies

_NOTHING: Mapping[int, int] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Usage:
    """Memory of a program.

    Attributes:
        peak: largest number of bytes of intermediate arrays that exist at the same time.
        alive: these arrays, as pairs of the operation that computes the array, and its bytes.
    """

    peak: int
    alive: tuple[tuple[Operation, int], ...]


def usage(program: Program, backend: Backend, donated: Mapping[int, int] = _NOTHING) -> Usage:
    """Returns the memory of the intermediate arrays of a program.

    The arrays of arguments and results do not count, except results that take the memory of an
    argument.

    Args:
        backend: the order in which the backend executes operations.
    """
    kernels = fused(with_library(program) if backend.is_cpu else program)
    if backend.is_cpu:
        kernels = with_copies(with_combined_sums(kernels), donated)
    inner = [_inside(operation, backend) for operation in kernels.operations]
    order = (_breadth_first if backend.is_cpu else _smallest_first)(kernels)
    return _simulate(kernels, order, inner, donated)


def _inside(operation: Operation, backend: Backend) -> Usage:
    """Returns the memory of the intermediate arrays inside of a loop's body."""
    bodies = [_body(body, backend) for body in operation.body]
    return max(bodies, key=lambda body: body.peak, default=Usage(0, ()))


def _body(body: Program, backend: Backend) -> Usage:
    # the results of a body exist beside the carry until the step ends
    results = {n for n in body.outputs if n is not None and n not in body.inputs}
    makers = {n: each for each in body.operations for n in each.outputs if n in results}
    held = tuple((maker, body.sizes[number]) for number, maker in makers.items())
    used = usage(body, backend)
    return Usage(used.peak + sum(size for _, size in held), (*used.alive, *held))


def _readers(program: Program) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {}
    for i, operation in enumerate(program.operations):
        for number in dict.fromkeys(operation.inputs):
            readers.setdefault(number, []).append(i)
    return readers


def _breadth_first(program: Program) -> list[int]:
    """Returns the operations by the time at which their inputs exist, as XLA orders them on CPUs."""
    operations, readers = program.operations, _readers(program)
    missing = [len(set(operation.inputs)) for operation in operations]
    queue: deque[int] = deque(i for i, count in enumerate(missing) if not count)
    order: list[int] = []

    def growth(i: int) -> int:
        return -sum(program.sizes[number] for number in operations[i].outputs)

    def supply(numbers: Sequence[int]) -> None:
        ready = []
        for number in numbers:
            for i in readers.get(number, ()):
                missing[i] -= 1
                if not missing[i]:
                    ready.append(i)
        # the order of operations that become ready together is open: the largest results come first
        queue.extend(sorted(ready, key=growth))

    for number in program.inputs:
        supply((number,))
    while queue:
        i = queue.popleft()
        order.append(i)
        supply(operations[i].outputs)
    return order


def _smallest_first(program: Program) -> list[int]:
    """Returns the order of the program, but operations that free memory run as soon as they can."""
    operations, readers = program.operations, _readers(program)
    left = {number: len(found) for number, found in readers.items()}
    missing = [0] * len(operations)
    produced = {number for operation in operations for number in operation.outputs}
    for i, operation in enumerate(operations):
        missing[i] = len(produced.intersection(operation.inputs))

    def rank(i: int) -> tuple[bool, int]:
        operation = operations[i]
        freed = sum(program.sizes[n] for n in set(operation.inputs) & produced if left[n] == 1)
        return sum(program.sizes[n] for n in operation.outputs) > freed, i

    ready = [rank(i) for i in range(len(operations)) if not missing[i]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        grows, i = heapq.heappop(ready)
        now = rank(i)
        if now < (grows, i):
            heapq.heappush(ready, now)
            continue
        order.append(i)
        for number in set(operations[i].inputs):
            left[number] -= 1
        for number in operations[i].outputs:
            for j in readers.get(number, ()):
                missing[j] -= 1
                if not missing[j]:
                    heapq.heappush(ready, rank(j))
    return order


def _simulate(
    program: Program, order: list[int], inner: list[Usage], donated: Mapping[int, int]
) -> Usage:
    operations, sizes = program.operations, program.sizes
    last: dict[int, int] = {}
    for time, i in enumerate(order):
        for number in (*operations[i].inputs, *operations[i].outputs):
            last[number] = time
    for number in program.outputs:
        if number is not None:
            last[number] = len(order)
    # an array in memory may hold several values, one after the other
    buffer: dict[int, int] = {number: number for number in program.inputs}
    ends: dict[int, int] = {}
    starts: dict[int, int] = {}
    makers: dict[int, Operation] = {}
    for time, i in enumerate(order):
        operation = operations[i]
        dying = [n for n in dict.fromkeys(operation.inputs) if last[n] == time]
        if operation.kind == "barrier":
            for number, output in zip(operation.inputs, operation.outputs, strict=True):
                held = buffer.get(number, number)
                buffer[output] = held
                ends[held] = max(ends.get(held, 0), last[output])
            continue
        for output in operation.outputs:
            held = donated.get(output, output)
            if operation.in_place and output not in donated:
                for number in dying:
                    candidate = buffer.get(number, number)
                    free = number in donated or candidate in makers
                    if (
                        free
                        and sizes[number] == sizes[output]
                        and ends.get(candidate, time) <= time
                    ):
                        held = candidate
                        dying.remove(number)
                        break
            buffer[output] = held
            starts.setdefault(held, time)
            makers.setdefault(held, _maker(operation, output))
            ends[held] = max(ends.get(held, 0), last[output])
    arguments = set(program.inputs)
    results = {buffer[n] for n in program.outputs if n is not None and n in buffer}
    temporary = [b for b in makers if b not in results and b not in arguments]
    own_results = [b for b in results if b in makers and b not in arguments]
    lives = {b: (starts[b], ends[b]) for b in (*temporary, *own_results)}
    hosted = _inside_results(temporary, own_results, lives, sizes)
    temporary = [b for b in temporary if b not in hosted]
    change = [0] * (len(order) + 2)
    for held in temporary:
        change[starts[held]] += sizes[held]
        change[ends[held] + 1] -= sizes[held]
    total, peak, peak_time = 0, 0, 0
    for time, i in enumerate(order):
        total += change[time]
        if total + inner[i].peak > peak:
            peak, peak_time = total + inner[i].peak, time
    alive = [
        (makers[held], sizes[held]) for held in temporary if starts[held] <= peak_time <= ends[held]
    ]
    if order:
        outer = operations[order[peak_time]]
        for operation, size in inner[order[peak_time]].alive:
            scope = f"{outer.scope}/{operation.scope}"
            alive.append((dataclasses.replace(operation, scope=scope), size))
    return Usage(peak, tuple(alive))


def _inside_results(
    temporary: Sequence[int],
    results: Sequence[int],
    lives: Mapping[int, tuple[int, int]],
    sizes: Sequence[int],
) -> set[int]:
    """Returns the intermediate arrays that use the memory of a result before the result exists."""
    slots = [(sizes[result], [lives[result]]) for result in sorted(results, key=sizes.__getitem__)]
    bounds = [size for size, _ in slots]
    hosted: set[int] = set()
    for number in sorted(temporary, key=lambda each: -sizes[each]):
        first, last = lives[number]
        for size, taken in slots[bisect.bisect_left(bounds, sizes[number]) :]:
            if size and all(last < start or end < first for start, end in taken):
                taken.append((first, last))
                hosted.add(number)
                break
    return hosted


def _maker(operation: Operation, output: int) -> Operation:
    """Returns the operation to which an array belongs: in a loop, one of its body."""
    if not operation.result_scopes:
        return operation
    scope = operation.result_scopes[operation.outputs.index(output)]
    return Operation(
        operation.kind, operation.name, (), (output,), scope, looped=operation.steps > 1
    )
