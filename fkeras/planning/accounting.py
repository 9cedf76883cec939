"""Bytes and operations of a step by call, and the memory of its arguments and results."""

from __future__ import annotations

from typing import NamedTuple

import jax

from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.planning.attribution import BETWEEN, LOSS, UPDATE, Calls
from fkeras.planning.layout import Layout
from fkeras.planning.program.memory import Usage
from fkeras.planning.program.operations import Operation, Program
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
    communication: int


class ArgumentBytes(NamedTuple):
    """Bytes on one device for each array of a run: weights, state and optimizer's state."""

    weights: list[int]
    state: list[int]
    optimizer: list[int]


def argument_bytes(asked: Request, arrays: Layout) -> ArgumentBytes:
    """Returns the bytes of the arrays of a run on one device."""
    run = asked.run
    state = len(jax.tree.leaves(run.model))
    optimizer = state + len(jax.tree.leaves(run.state))
    return ArgumentBytes(
        arrays.tree_bytes(run.model, 0),
        arrays.tree_bytes(run.state, state),
        arrays.tree_bytes(run.opt_state, optimizer),
    )


def outer_bytes(program: Program, run_size: int, donate: bool) -> tuple[int, int]:
    """Returns the bytes of the arguments, and of the results that have memory of their own.

    Args:
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


def call_rows(
    calls: Calls, asked: Request, arrays: Layout, program: Program, used: Usage
) -> list[Row]:
    """Returns a row for each call, and for the loss and the update of the weights."""
    names = [*calls.classes, BETWEEN, LOSS, UPDATE]
    weights, state, optimizer, activations = [dict.fromkeys(names, 0) for _ in range(4)]
    flops, communication = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)
    run, skeleton = asked.run, skeleton_of(asked.run.model)
    pairs = zip(skeleton.names, leaves_of(run.model), strict=True)
    paths = [path for path, leaf in pairs if leaf is not None]
    parts = argument_bytes(asked, arrays)
    for path, size in zip(paths, parts.weights, strict=True):
        weights[calls.of_path(path)] += size
    state_leaves = jax.tree_util.tree_flatten_with_path(run.state)[0]
    for (path, _), size in zip(state_leaves, parts.state, strict=True):
        keys = "/".join(str(getattr(key, "key", key)) for key in path)
        state[calls.of_path(keys)] += size
    slots, known = jax.tree_util.tree_flatten_with_path(run.opt_state)[0], set(paths)
    for (path, _), size in zip(slots, parts.optimizer, strict=True):
        owners = (getattr(key, "key", None) for key in reversed(path))
        owner = next((name for name in owners if name in known), None)
        optimizer[UPDATE if owner is None else calls.of_path(owner)] += size
    for operation, times in program.flat():
        owners = _owners(calls, operation)
        for owner in owners:
            flops[owner] += operation.costs.flops * times / len(owners)
            communication[owner] += operation.traffic * times // len(owners)
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
            communication[name],
        )
        for name in names
    ]


def _owners(calls: Calls, operation: Operation) -> tuple[str, ...]:
    if operation.looped:
        return calls.of_loop(operation.scope)
    return (calls.of_scope(operation.scope),)
