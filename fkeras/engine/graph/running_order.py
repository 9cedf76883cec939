"""`running_order`: the order in which the calls of a graph run."""

from __future__ import annotations

from fkeras.engine.call.mask_rules import STRICT
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import CallTable


def running_order(graph: CallTable) -> tuple[int, ...]:
    """Returns the numbers of the calls of a graph in running order, without inputs.

    The deepest calls run first. A shared layer with state updates the state call by call, so the
    order within a depth matters. In a graph made with this library, calls of one depth run in
    the order of `calls`, from left to right. In a graph from a file of Keras, recognizable by
    another mask rule than "strict", they run in Keras's order, that of a walk from the outputs.
    """
    computed = [n for n, call in enumerate(graph.calls) if not call.is_input]
    if all(graph.calls[n].mask_rule == STRICT for n in computed):
        return tuple(computed)
    # Keras's order: a depth-first walk from the outputs, then ranks from its end backwards
    input_slots = [(*structure.visits(c.args), *structure.visits(c.options)) for c in graph.calls]
    parents = [[graph.producer(slot)[0] for slot in slots] for slots in input_slots]
    finished: list[int] = []
    visited_numbers: set[int] = set()
    for slot in structure.visits(graph.outputs):
        stack = [(graph.producer(slot)[0], False)]
        while stack:
            number, is_exit = stack.pop()
            if is_exit:
                finished.append(number)
            elif number not in visited_numbers:
                visited_numbers.add(number)
                stack.append((number, True))
                stack.extend((parent, False) for parent in reversed(parents[number]))
    ranks: dict[int, int] = {}
    for number in (*reversed(finished), *range(len(graph.calls))):
        for visited in (number, *parents[number]):
            ranks.setdefault(visited, len(ranks))
    return tuple(sorted(computed, key=lambda n: (-graph.depths[n], ranks[n])))
