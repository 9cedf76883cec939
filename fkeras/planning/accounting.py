"""Bytes and operations of a step by call, and the memory of its arguments and results."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.planning.attribution import BETWEEN, LOSS, UPDATE, Calls
from fkeras.planning.program.memory import Usage
from fkeras.planning.program.operations import Operation, Program, item_bytes
from fkeras.planning.request import Request


class Row(NamedTuple):
    """Bytes and operations of a call; the fields are those of `CallPlan`."""

    name: str
    layer: str
    weights: int
    state: int
    optimizer: int
    activations: int
    flops: float


def tree_bytes(tree: Any) -> int:
    """Returns the bytes of all arrays of a tree."""
    return sum(leaf.size * item_bytes(leaf.dtype) for leaf in jax.tree.leaves(tree))


def outer_bytes(program: Program, run_size: int, donate: bool) -> tuple[int, int]:
    """Returns the bytes of the arguments, and of the results that have memory of their own.

    Args:
        program: the operations of the step.
        run_size: number of arrays of the run, the first arguments.
        donate: whether the results take the memory of the run.
    """
    read_values = {number for operation in program.operations for number in operation.inputs}
    read_values.update(number for number in program.outputs if number is not None)
    arguments = sum(program.sizes[n] for n in program.inputs if n in read_values)
    outputs = [program.sizes[n] for n in program.outputs if n is not None]
    if not donate:
        return arguments, sum(outputs)
    free: dict[int, int] = {}
    for number in program.inputs[:run_size]:
        if number in read_values:
            free[program.sizes[number]] = free.get(program.sizes[number], 0) + 1
    results = 0
    for size in outputs:
        if free.get(size, 0):
            free[size] -= 1
        else:
            results += size
    return arguments, results


def looped_blocks(calls: Calls, program: Program) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Returns the calls of the blocks that the program computes in one loop, for each loop."""
    looped = {
        calls.of_scope(operation.scope) for operation, _ in program.flat() if operation.looped
    }
    return calls.loops(looped)


def call_rows(calls: Calls, asked: Request, program: Program, used: Usage) -> list[Row]:
    """Returns a row for each call, and for the loss and the update of the weights.

    Args:
        calls: the calls of the model.
        asked: the request.
        program: the operations of the step.
        used: the arrays that exist at the moment of the largest memory.
    """
    names = [*calls.classes, BETWEEN, LOSS, UPDATE]
    weights, state, optimizer, activations = [dict.fromkeys(names, 0) for _ in range(4)]
    flops = dict.fromkeys(names, 0.0)
    run, skeleton = asked.run, skeleton_of(asked.run.model)
    shapes: dict[str, tuple[int, ...]] = {}
    for path, leaf in zip(skeleton.names, leaves_of(run.model), strict=True):
        if leaf is not None:
            shapes[path] = leaf.shape
            weights[calls.of_path(path)] += tree_bytes(leaf)
    for path, leaf in jax.tree_util.tree_flatten_with_path(run.state)[0]:
        keys = "/".join(str(getattr(key, "key", key)) for key in path)
        state[calls.of_path(keys)] += tree_bytes(leaf)
    for path, leaf in jax.tree_util.tree_flatten_with_path(run.opt_state)[0]:
        owners = (getattr(key, "key", None) for key in reversed(path))
        owner = next((name for name in owners if name in shapes), None)
        optimizer[UPDATE if owner is None else calls.of_path(owner)] += tree_bytes(leaf)
    for operation, times in program.flat():
        owners = _owners(calls, operation)
        for owner in owners:
            flops[owner] += operation.costs.flops * times / len(owners)
    for operation, size in used.alive:
        owners = _owners(calls, operation)
        for place, owner in enumerate(owners):
            activations[owner] += (size * (place + 1)) // len(owners) - size * place // len(owners)
    if not flops[BETWEEN] and not activations[BETWEEN]:
        names.remove(BETWEEN)
    return [
        Row(
            name,
            calls.classes.get(name, ""),
            weights[name],
            state[name],
            optimizer[name],
            activations[name],
            flops[name],
        )
        for name in names
    ]


def _owners(calls: Calls, operation: Operation) -> tuple[str, ...]:
    if operation.looped:
        return calls.of_loop(operation.scope)
    return (calls.of_scope(operation.scope),)
