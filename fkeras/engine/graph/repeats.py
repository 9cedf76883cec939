"""Repeated blocks: calls that the running order of a graph contains several times in a row.

A chain of equal transformer blocks is one block, computed several times with other weights. The
search compares calls by signature and by layer without its name, finds stretches of the running
order with a period, and then follows the tensors: every input of a call must come from the same place
in each block. The places are:

| an input of a block | comes from |
|---|---|
| inner | the same block |
| carried | the block before, or from before the first block |
| shared | one tensor from before the first block, for all blocks |
| separate | another tensor from before the first block, for each block |

Blocks may contain repeated blocks. `fkeras.engine.network.scanning` computes blocks in one loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from fkeras.engine.tree.skeleton import Skeleton
from fkeras.engine.tree.walk import layers_in
from fkeras.engine.values.annotations import CallTable
from fkeras.engine.values.dimensions import WORD
from fkeras.engine.values.spec import STRING, Spec

# limits on the search in graphs where no stretch can run as a loop
_MOST_STRETCHES, _MOST_OFFSETS = 500, 64

#: a call by its number, or repeated blocks
Step: TypeAlias = "int | Repeat"


@dataclasses.dataclass(frozen=True)
class Repeat:
    """Equal blocks of calls, one after the other.

    The second block is the model of all blocks: its inputs are outputs of the first block where the
    first block itself may read any tensors.

    Attributes:
        blocks: the numbers of the calls of each block, in running order.
        steps: the steps of the second block: its calls, with repeated blocks inside it.
        layers: for each layer of the second block, the names of the layers in all blocks.
        carried: `(initial, read, made)` for each tensor that a block passes to the next block: the slot
            that the first block reads, and the slots that the second block reads and makes.
        separate: for each input that differs between the blocks, the slots that the blocks read.
        collected: for each output that calls after the blocks read, the slots of all blocks.
    """

    blocks: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    layers: tuple[tuple[str, ...], ...]
    carried: tuple[tuple[int, int, int], ...]
    separate: tuple[tuple[int, ...], ...]
    collected: tuple[tuple[int, ...], ...]

    @property
    def saved_count(self) -> int:
        """The number of calls that a loop over the blocks does not trace."""
        inner = sum(step.saved_count for step in self.steps if isinstance(step, Repeat))
        return (len(self.blocks) - 1) * len(self.blocks[0]) + inner


def steps_with_repeats(graph: CallTable) -> tuple[Step, ...]:
    """Returns the calls of a graph in running order, with its repeated blocks as `Repeat`.

    Args:
        graph: a graph with its layers' shapes; see `Graph.bind`.
    """
    return _Search(graph).steps(range(len(graph.run_order)))


class _Search:
    """Searches the running order of one graph; a position is an index of the running order."""

    def __init__(self, graph: CallTable):
        self.graph = graph
        self.order: tuple[int, ...] = graph.run_order
        self.labels = _labels(graph)
        self.positions = {number: place for place, number in enumerate(self.order)}
        # for each slot the position of its call, -1 for an input, and the index of the output
        self.origins = []
        for number, call in enumerate(graph.calls):
            position = self.positions.get(number, -1)
            self.origins.extend((position, index) for index in range(len(call.outputs)))
        self.inputs = [graph.calls[number].inputs for number in self.order]
        self.readers: dict[int, set[int]] = {}
        for position, slots in enumerate(self.inputs):
            for slot in slots:
                self.readers.setdefault(slot, set()).add(position)
        for slot in graph.output_slots:
            self.readers.setdefault(slot, set()).add(len(self.order))

    def steps(self, window: range) -> tuple[Step, ...]:
        """Returns the steps of the calls at these positions."""
        repeats = {r.start: r for r in self._repeats(window)}
        steps: list[Step] = []
        position = window.start
        while position < window.stop:
            blocks = repeats.get(position)
            if blocks is None:
                steps.append(self.order[position])
                position += 1
            else:
                steps.append(self._repeat(blocks))
                position = blocks.stop
        return tuple(steps)

    def _repeats(self, window: range) -> list[_Blocks]:
        """Returns blocks that do not overlap, those that save most calls first."""
        accepted: list[_Blocks] = []
        free = np.ones(len(window), bool)
        stretches = _periodic(self.labels[window.start : window.stop])
        for start, stop, period in stretches[:_MOST_STRETCHES]:
            pending = [(start + a, start + b) for a, b in _runs(free[start:stop])]
            while pending:
                a, b = pending.pop()
                if b - a < 2 * period:
                    continue
                blocks = self._longest(window.start + a, b - a, period)
                if blocks is not None:
                    first, last = blocks.start - window.start, blocks.stop - window.start
                    accepted.append(blocks)
                    free[first:last] = False
                    pending += [(a, first), (last, b)]
        return accepted

    def _longest(self, start: int, length: int, period: int) -> _Blocks | None:
        """Returns the most blocks of calls with the same wiring inside a periodic stretch."""
        best: _Blocks | None = None
        # each place inside the period may begin a block; the best place carries the fewest tensors
        for offset in range(min(period, length % period + 1, _MOST_OFFSETS)):
            count = (length - offset) // period
            for blocks in self._wired(start + offset, count, period):
                if best is None or blocks.rank > best.rank:
                    best = blocks
        return best

    def _wired(self, start: int, count: int, period: int) -> Iterator[_Blocks]:
        first = 0
        while first < count - 1:
            blocks = _Blocks(self, start + first * period, period)
            for _ in range(first + 1, count):
                if not blocks.extend():
                    break
            if blocks.is_chain() and blocks.is_consistent():
                yield blocks
                first += blocks.count - 1
            else:
                first += 1

    def _repeat(self, blocks: _Blocks) -> Repeat:
        places = [blocks.place(j) for j in range(blocks.count)]
        wiring = blocks.wiring
        carried = []
        for (position, index), initial in blocks.initial().items():
            read = self._slot(places[0].start + position, index)
            carried.append((initial, read, self._slot(places[1].start + position, index)))
        return Repeat(
            blocks=tuple(tuple(self.order[p] for p in place) for place in places),
            steps=self.steps(places[1]),
            layers=blocks.layer_names(),
            carried=tuple(carried),
            separate=tuple(dict.fromkeys(w for w in wiring.values() if len(set(w)) > 1)),
            collected=tuple(self._collected(blocks, [made for _, _, made in carried])),
        )

    def _collected(self, blocks: _Blocks, made: Sequence[int]) -> Iterator[tuple[int, ...]]:
        for position in range(blocks.period):
            number = self.order[blocks.start + position]
            for index in range(len(self.graph.calls[number].outputs)):
                slots = tuple(
                    self._slot(blocks.place(j).start + position, index) for j in range(blocks.count)
                )
                # the last value of a carried tensor leaves the loop anyhow
                counted = slots[:-1] if slots[1] in made else slots
                if any(self._leaves(slot, blocks.stop) for slot in counted):
                    yield slots

    def _leaves(self, slot: int, stop: int) -> bool:
        return any(position >= stop for position in self.readers.get(slot, ()))

    def _slot(self, position: int, index: int) -> int:
        return self.graph.first_slots[self.order[position]] + index


class _Blocks:
    """Blocks of one period from a position on, extended block by block.

    Args:
        search: the search.
        start: the position of the first block.
        period: the number of calls in a block.
    """

    def __init__(self, search: _Search, start: int, period: int):
        self.search, self.start, self.period, self.count = search, start, period, 1
        # by `(call, input)` of the second block: the `(call, output)` that an inner or carried input
        # comes from, or for other inputs the slots of all blocks
        self.inner: dict[tuple[int, int], tuple[int, int]] = {}
        self.carried: dict[tuple[int, int], tuple[int, int]] = {}
        self.wiring: dict[tuple[int, int], tuple[int, ...]] = {}

    def place(self, block: int) -> range:
        """Returns the positions of a block."""
        first = self.start + block * self.period
        return range(first, first + self.period)

    @property
    def stop(self) -> int:
        return self.start + self.count * self.period

    @property
    def rank(self) -> tuple[int, int, int]:
        """Orders candidates: most calls saved, then fewest tensors carried, then the first."""
        saved = (self.count - 1) * self.period
        return saved, -len(set(self.carried.values())), -self.start

    def extend(self) -> bool:
        """Adds the next block if its inputs come from the same places as those of the others."""
        block = self.count
        wiring = dict(self.wiring)
        for key, slot, first_slot in self._reads(block):
            specs = self.search.graph.specs
            if _without_axis_names(specs[slot]) != _without_axis_names(specs[first_slot]):
                return False
            origin = self._origin(slot, block)
            if block == 1 and not self._add(key, slot, first_slot, origin, wiring):
                return False
            if block > 1:
                if key in self.inner or key in self.carried:
                    expected = "inner" if key in self.inner else "carried"
                    if origin != (expected, (self.inner | self.carried)[key]):
                        return False
                elif origin[0] != "outer":
                    return False
                else:
                    slots = (*self.wiring[key], slot)
                    # one tensor for all blocks, or another for each
                    if len(set(slots)) not in (1, len(slots)):
                        return False
                    wiring[key] = slots
        self.wiring = wiring
        self.count += 1
        return True

    def _reads(self, block: int) -> Iterator[tuple[tuple[int, int], int, int]]:
        """Yields `(key, slot, slot of the first block)` for each input of a block."""
        inputs = self.search.inputs
        pairs = zip(self.place(block), self.place(0), strict=True)
        for call, (position, first) in enumerate(pairs):
            for index, slots in enumerate(zip(inputs[position], inputs[first], strict=True)):
                yield (call, index), *slots

    def _origin(self, slot: int, block: int) -> tuple[str, Any]:
        position, index = self.search.origins[slot]
        if position < self.start:
            return "outer", slot
        at, call = divmod(position - self.start, self.period)
        kind = {block: "inner", block - 1: "carried"}.get(at, "invalid")
        return kind, (call, index)

    def _add(
        self,
        key: tuple[int, int],
        slot: int,
        first_slot: int,
        origin: tuple[str, Any],
        wiring: dict,
    ) -> bool:
        """Adds the wiring of the second block; returns whether the first block may stand before it."""
        kind, place = origin
        first_kind, first_place = self._origin(first_slot, 0)
        if kind == "inner":
            self.inner[key] = place
            return (first_kind, first_place) == origin
        if first_kind != "outer":
            return False
        if kind == "carried":
            self.carried[key] = place
            return True
        wiring[key] = (first_slot, slot)
        return kind == "outer"

    def initial(self) -> dict[tuple[int, int], int]:
        """Returns the slot that the first block reads for each carried `(call, output)`."""
        inputs, first = self.search.inputs, self.place(0).start
        return {place: inputs[first + call][i] for (call, i), place in self.carried.items()}

    def is_chain(self) -> bool:
        """Returns whether a block reads the block before, and a loop saves more than one simple call.

        Parallel branches are no chain: a loop would compute one branch after the other.
        """
        skeletons = (self.search.graph.shape_of(names[0])[0] for names in self._names())
        has_inner_layers = any(skeleton.children for skeleton in skeletons)
        return bool(self.carried) and (self.rank[0] > 1 or has_inner_layers)

    def is_consistent(self) -> bool:
        """Returns whether the blocks can run as one loop."""
        inputs, first = self.search.inputs, self.place(0).start
        initial = self.initial()
        if any(inputs[first + call][i] != initial[p] for (call, i), p in self.carried.items()):
            return False  # the first block reads two tensors where the others read one
        # the second block must not read one tensor in two roles
        roles = {slots[1]: slots for slots in self.wiring.values()}
        if any(roles[slots[1]] != slots for slots in self.wiring.values()):
            return False
        return self._layers_match()

    def layer_names(self) -> tuple[tuple[str, ...], ...]:
        """Returns for each layer of the second block the names in all blocks."""
        return tuple(dict.fromkeys(self._names()))

    def _names(self) -> list[tuple[str, ...]]:
        search = self.search
        blocks = [
            [search.graph.calls[search.order[p]].layer for p in self.place(j)]
            for j in range(self.count)
        ]
        return list(zip(*blocks, strict=True))

    def _layers_match(self) -> bool:
        columns = self._names()
        distinct = set(columns)
        for block in range(self.count):
            # a layer that is called twice in one block is called twice in each
            if len({names[block] for names in distinct}) != len(distinct):
                return False
        calls_of = self.search.graph.calls_of
        for names in distinct:
            calls = columns.count(names)
            if len(set(names)) == 1:
                if _is_stateful(self.search.graph, names[0]):
                    return False  # the state passes from call to call
            elif len(set(names)) < len(names) or any(len(calls_of[n]) != calls for n in names):
                return False
        return True


def _periodic(labels: np.ndarray) -> list[tuple[int, int, int]]:
    """Returns `(start, stop, period)` of the stretches with a period, most saved calls first."""
    stretches = []
    for period in range(1, len(labels) // 2 + 1):
        for start, stop in _runs(labels[:-period] == labels[period:]):
            if stop - start >= period:
                stretches.append((start, stop + period, period))
    saved = {s: (s[1] - s[0]) // s[2] * s[2] - s[2] for s in stretches}
    return sorted(stretches, key=lambda s: (-saved[s], s[2], s[0]))


def _runs(flags: np.ndarray) -> Iterable[tuple[int, int]]:
    """Returns `(start, stop)` of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype("int8")))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _labels(graph: CallTable) -> np.ndarray:
    """Returns a number for each call in running order: equal for equal calls of equal layers."""
    numbers: dict[Any, int] = {}
    labels = []
    for number in graph.run_order:
        call = graph.calls[number]
        skeleton, leaves = graph.shape_of(call.layer)
        signature = dataclasses.replace(
            call.signature,
            outputs=tuple(map(_without_axis_names, call.outputs)),
            masks=tuple(mask and _without_axis_names(mask) for mask in call.signature.masks),
        )
        key: Any = (signature, skeleton.derive(_without_name), leaves)
        specs = (*call.outputs, *(graph.specs[slot] for slot in call.inputs))
        if any(spec.dtype == STRING for spec in specs):
            key = number, key  # strings exist on the host only
        labels.append(numbers.setdefault(key, len(numbers)))
    return np.array(labels, "int64")


def _without_name(skeleton: Skeleton) -> Any:
    """Returns what distinguishes layers apart from their names and the names of layers inside."""
    static = frozenset(item for item in skeleton.static.items() if item[0] != "name")
    children = tuple(
        # the keys of random numbers depend on the paths inside a layer
        (path, child.derive(_without_name))
        for field, tree in skeleton.children.items()
        for path, child in layers_in(tree, field)
    )
    return skeleton.cls, static, skeleton.weights, children


def _without_axis_names(spec: Spec) -> Spec:
    """Returns the spec without the names of unknown axes, which each block may name anew.

    The program compares the sizes before it computes a loop.
    """
    return Spec(tuple(WORD.sub("", d) if isinstance(d, str) else d for d in spec.dims), spec.dtype)


def _is_stateful(graph: CallTable, name: str) -> bool:
    skeleton, leaves = graph.shape_of(name)
    return skeleton.join(leaves or (None,) * len(skeleton.names)).stateful
