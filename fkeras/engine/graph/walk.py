"""The interpreter of graphs: visits the calls in running order and fills a table of slots.

A slot is the number of a tensor in the graph. The table holds a value for each tensor:
arrays while a network computes, symbolic tensors while its calls are recorded again. Each use gives
`run_calls` one function that computes a call. Files outside of this folder do not iterate over the
calls of a graph to execute or record them, so that the order of calls has one definition.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fkeras.engine.call.node import Node
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.graph import Graph
from fkeras.engine.graph.repeats import Repeat, Step
from fkeras.engine.symbolic.operators import KerasTensor
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Tree
from fkeras.engine.values.structure import Ref

#: `(number, call) -> value`: the outputs of a call in the structure of `Call.value`
Compute = Callable[[int, Call], Any]


def new_slots(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Returns a table with a slot for each tensor of the graph; all but the inputs are None.

    Args:
        inputs: a value for each input, in the order of `graph.input_slots`.
    """
    slots: list[Any] = [None] * len(graph.specs)
    for slot, value in zip(graph.input_slots, inputs, strict=True):
        slots[slot] = value
    return slots


def run_calls(graph: Graph, slots: list[Any], compute: Compute) -> Any:
    """Computes every call in `graph.run_order` and returns the outputs of the graph.

    Args:
        slots: a table from `new_slots`; receives the outputs of each call.
        compute: computes one call, whose inputs are in `slots`; None leaves the slots of the call
            unchanged.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((3,), name="x")
        >>> graph = fk.Model(x, fk.layers.Dense(2)(fk.layers.ReLU()(x))).graph
        >>> slots = new_slots(graph, ["x"])
        >>> run_calls(graph, slots, lambda _, call: f"{call.layer}({slots[call.inputs[0]]})")
        'dense(re_lu(x))'
    """
    run_steps(graph, slots, graph.run_order, compute, None)
    return structure.fill(graph.outputs, slots)


def run_steps(
    graph: Graph,
    slots: list[Any],
    steps: Iterable[Step],
    compute: Compute,
    repeat: Callable[[Repeat], None] | None,
) -> None:
    """Computes steps of a graph: calls, and repeated blocks of calls.

    Args:
        slots: a table from `new_slots`; receives the outputs of each call.
        steps: numbers of calls, or repeated blocks, in running order.
        compute: computes one call, as for `run_calls`.
        repeat: computes repeated blocks and fills their slots; None if no step is a `Repeat`.
    """
    for step in steps:
        if repeat is not None and isinstance(step, Repeat):
            repeat(step)
            continue
        number: Any = step
        value = compute(number, graph.calls[number])
        if value is not None:
            put_outputs(graph, slots, number, value)


def put_outputs(graph: Graph, slots: list[Any], number: int, value: Tree) -> None:
    """Puts the outputs of a call into their slots.

    Args:
        slots: a table from `new_slots`.
        value: the outputs in the structure of `Call.value`.
    """
    first = graph.first_slots[number]
    values = structure.match(graph.calls[number].value, value) or []
    slots[first : first + len(values)] = values


def open_graph(
    graph: Graph, layers: Mapping[str, Any], origins: Mapping[int, Node]
) -> tuple[KerasTensor, ...]:
    """Returns a symbolic tensor for each slot, with a history of nodes equal to the calls.

    Args:
        origins: the node of the `fk.Input` that an input was, by slot.
    """
    tensors: list[KerasTensor] = []
    # all calls in the order of the slots, inputs included: nothing is computed
    for call in graph.calls:
        inputs = tuple(tensors[slot] for slot in call.inputs)
        origin = origins.get(len(tensors))
        node = Node(layers[call.layer], call.signature, inputs, origin=origin)
        tensors.extend(KerasTensor(node, i) for i in range(len(call.outputs)))
    return tuple(tensors)


def segment(graph: Graph, numbers: Sequence[int], *, first: bool, last: bool) -> Graph:
    """Returns the graph with every call except `numbers` turned into an input.

    Slots and the indices of calls stay the same, so each call keeps its random numbers.

    Args:
        numbers: calls that follow each other in `graph.run_order`.
        first: whether the segment takes the inputs of the graph, not the tensors before it.
        last: whether the segment returns the outputs of the graph, not the tensors after it.
    """
    calls = tuple(
        call if number in numbers else call.as_input() for number, call in enumerate(graph.calls)
    )
    position = graph.run_order.index
    input_slots = crossing(graph, position(numbers[0]))
    output_slots = crossing(graph, position(numbers[-1]) + 1)
    return dataclasses.replace(
        graph,
        calls=calls,
        inputs=graph.inputs
        if first
        else structure.freeze(list(map(Ref, input_slots)), lambda v: v),
        outputs=graph.outputs
        if last
        else structure.freeze(list(map(Ref, output_slots)), lambda v: v),
    )


def crossing(graph: Graph, position: int) -> list[int]:
    """Returns the slots filled before a place of the running order and needed from there on.

    Args:
        position: an index of `graph.run_order`.
    """
    order = graph.run_order
    needed_slots = {slot for number in order[position:] for slot in graph.calls[number].inputs}
    filled_slots = set(graph.input_slots)
    for number in order[:position]:
        filled_slots.update(graph.output_slots_of(number))
    return sorted(filled_slots & (needed_slots | set(graph.output_slots)))
