"""Repeated blocks of calls as one `jax.lax.scan` over the stacked weights of the blocks.

The compiled program contains one block, whatever their number. Names, keys, masks and losses are those
of the single blocks. Under depth "scan" the program stacks the weights and states of the blocks and
returns the updates of each block. Under depth "stack" the network has no layers of single blocks: each
layer of the second block holds the stacked weights of all blocks, under its own name. Under depth "share"
the blocks follow each other in the compiled program, and JAX traces one of them.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from fkeras.engine.call.context import call_salt
from fkeras.engine.call.mask_rules import AttachedMasks
from fkeras.engine.graph.repeats import Repeat
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.values.annotations import Execution, Tree
from fkeras.programs.walk import is_literal, opened


class _DifferentBlocksError(Exception):
    """Blocks that are equal in the graph and differ in this call, in masks for example."""


def scan_blocks(execution: Execution, repeat: Repeat) -> None:
    """Computes repeated blocks: fills their slots and collects their updates and losses.

    Blocks that differ in this call (in the dtype of their weights, in their state, in the masks that
    reach them) are computed one after the other.

    Args:
        execution: an `Execution` whose slots hold the inputs of the blocks.
    """
    stacked = frozenset(
        names for names in repeat.layers if len(set(names)) > 1 and names[0] not in execution.layers
    )
    try:
        _scan(execution, repeat, stacked)
    except _DifferentBlocksError:
        _run_apart(execution, repeat, stacked)


def _scan(execution: Execution, repeat: Repeat, stacked: frozenset) -> None:
    template = repeat.blocks[1]
    initial = [execution.entry(slot) for slot, _, _ in repeat.carried]

    def body(carry: list, x: dict) -> tuple[list, dict]:
        block = _block_execution(execution, x)
        for (_, read, _), entry in zip(repeat.carried, carry, strict=True):
            block.put(read, *entry)
        for slot, entry in x["slots"].items():
            block.put(slot, *entry)
        block.run(repeat.steps)
        if block.metrics:  # names of metrics may contain the name of the layer
            raise _DifferentBlocksError
        new_carry = [block.entry(output) for _, _, output in repeat.carried]
        if _shapes(new_carry) != _shapes(carry):
            raise _DifferentBlocksError
        results = {
            "updates": block.updates,
            "losses": {number: block.losses[number] for number in template},
            "slots": {slots[1]: block.entry(slots[1]) for slots in repeat.collected},
        }
        return new_carry, results

    around, names_of = execution.context.around_block, {names[1]: names for names in repeat.layers}
    body = body if around is None else around(body)
    if execution.graph.depth == "share":
        last, results = _call_blocks(body, initial, _inputs_of_blocks(execution, repeat))
    else:
        xs, length = _stacked_inputs(execution, repeat, stacked), len(repeat.blocks)
        last, stack = jax.lax.scan(body, initial, xs, length=length)
        for layer in [name for name in stack["updates"] if names_of[name] in stacked]:
            execution.updates[layer] = stack["updates"].pop(layer)
        results = [_at(stack, index) for index in range(length)]
    for index, (numbers, result) in enumerate(zip(repeat.blocks, results, strict=True)):
        for layer, updates in result["updates"].items():
            execution.updates[names_of[layer][index]] = updates
        for number, template_number in zip(numbers, template, strict=True):
            execution.losses[number] = result["losses"][template_number]
        for slots_of_blocks in repeat.collected:
            execution.put(slots_of_blocks[index], *result["slots"][slots_of_blocks[1]])
    # the last block's outputs in the place of the template's
    last_numbers = dict(zip(template, repeat.blocks[-1], strict=True))
    for (_, _, slot), entry in zip(repeat.carried, last, strict=True):
        number, output = execution.graph.producer(slot)
        execution.put(execution.graph.output_slots_of(last_numbers[number])[output], *entry)


def _stacked_inputs(execution: Execution, repeat: Repeat, stacked: frozenset) -> dict:
    """Returns the weights, states, salts and inputs of all blocks, stacked."""
    separate_layers = [names for names in repeat.layers if len(set(names)) > 1]
    return {
        "weights": {names[1]: _weights(execution, names, stacked) for names in separate_layers},
        "state": {names[1]: _states(execution, names, stacked) for names in separate_layers},
        "salts": _salts(execution, repeat) if execution.context.has_key else {},
        "slots": {
            slots_of_blocks[1]: _stack(list(map(execution.entry, slots_of_blocks)))
            for slots_of_blocks in repeat.separate
        },
    }


def _inputs_of_blocks(execution: Execution, repeat: Repeat) -> list[dict]:
    """Returns the weights, states, salts and inputs of each block."""
    separate_layers = [names for names in repeat.layers if len(set(names)) > 1]
    salts = _salts(execution, repeat) if execution.context.has_key else {}
    inputs = [
        {
            "weights": {n[1]: leaves_of(execution.layers[n[index]]) for n in separate_layers},
            "state": {n[1]: _state(execution, n[index]) for n in separate_layers},
            "salts": _at(salts, index),
            "slots": {slots[1]: execution.entry(slots[index]) for slots in repeat.separate},
        }
        for index in range(len(repeat.blocks))
    ]
    if any(_shapes(entry) != _shapes(inputs[0]) for entry in inputs):
        raise _DifferentBlocksError
    return inputs


def _call_blocks(body: Callable, carry: list, inputs: list[dict]) -> tuple[list, list[dict]]:
    """Calls a block for each of several inputs; returns the last carry, and all results.

    The block is traced once. Values that are equal in all blocks, such as the angles of rotary embeddings, are
    computed before the blocks.
    """
    traced, shapes = jax.make_jaxpr(body, return_shape=True)(carry, inputs[0])
    block, constants = opened(traced)
    count, leaves = len(jax.tree.leaves(carry)), [jax.tree.leaves((carry, x)) for x in inputs]
    known = dict(zip(block.constvars, constants, strict=True))
    for number, (variable, first, *others) in enumerate(zip(block.invars, *leaves, strict=True)):
        # a carried value, such as a mask, is equal in all blocks if the block returns its input
        is_returned = number < count and block.outvars[number] is variable
        if is_returned or (number >= count and all(other is first for other in others)):
            known[variable] = first
    equal, rest, needed = _split(block, known)
    part = block.replace(eqns=equal, constvars=[], invars=[*known], outvars=needed)
    values = jax.core.eval_jaxpr(part, (), *known.values())
    operands = [*block.constvars, *block.invars, *needed]
    part = block.replace(eqns=rest, constvars=[], invars=operands)
    program = jax.jit(lambda *operands: jax.core.eval_jaxpr(part, (), *operands))
    results = []
    for x in inputs:
        out = program(*constants, *jax.tree.leaves((carry, x)), *values)
        carry, result = jax.tree.unflatten(jax.tree.structure(shapes), out)
        results.append(result)
    return carry, results


def _split(block: Any, known: Mapping[Any, Any]) -> tuple[list, list, list]:
    """Returns the equations of a block that depend on known variables alone, and the others.

    Returns:
        The equations, the others, and the results of the equations that the others and the outputs need.
    """
    equal, rest, found, made = [], [], {*known}, set()
    for equation in block.eqns:
        operands = [v for v in equation.invars if not is_literal(v)]
        is_equal = not equation.effects and found.issuperset(operands)
        if is_equal:
            equal.append(equation)
            found.update(equation.outvars)
        # each block has its own constants
        if not is_equal or not operands:
            rest.append(equation)
            made.update(equation.outvars)
    read = [v for equation in rest for v in equation.invars] + [*block.outvars]
    read = dict.fromkeys(v for v in read if not is_literal(v))
    return equal, rest, [v for v in read if v in found and v not in known and v not in made]


def _run_apart(execution: Execution, repeat: Repeat, stacked: frozenset) -> None:
    """Computes the blocks one after the other."""
    layers, state = dict(execution.layers), dict(execution.state)
    for names in stacked:
        skeleton = skeleton_of(execution.layers[names[1]])
        leaves, states = leaves_of(execution.layers[names[1]]), _state(execution, names[1])
        for index, name in enumerate(names):
            layers[name] = skeleton.join(_at(leaves, index))
            state[name] = _at(states, index)
    single_layers, execution.layers, execution.state = execution.layers, layers, state
    for block in repeat.blocks:
        execution.run(block)
    execution.layers = single_layers
    for names in stacked:
        if names[1] in execution.updates:
            updates = [execution.updates.pop(name) for name in names]
            execution.updates[names[1]] = _stack(updates)


def _block_execution(execution: Execution, x: dict) -> Execution:
    """Returns an execution for one block, with the layers, states and keys of the block."""
    block = copy.copy(execution)
    block.context = copy.copy(execution.context)
    block.context.around_block = None  # loops inside a block belong to the block
    layers = {
        name: skeleton_of(execution.layers[name]).join(leaves)
        for name, leaves in x["weights"].items()
    }
    block.layers = {**execution.layers, **layers}
    block.state = {**execution.state, **x["state"]}
    block.salts = {**execution.salts, **x["salts"]}
    block.slots, block.masks = list(execution.slots), list(execution.masks)
    block.updates, block.losses, block.metrics = {}, {}, {}
    if execution.attached is not None:
        masks = map(execution.mask_of, range(len(block.slots)))
        block.attached = AttachedMasks(block.slots, masks)
    return block


def _weights(execution: Execution, names: tuple[str, ...], stacked: frozenset) -> Tree:
    """Returns the stacked leaves of equal layers."""
    if names in stacked:
        return leaves_of(execution.layers[names[1]])
    return _stack([leaves_of(execution.layers[name]) for name in names])


def _states(execution: Execution, names: tuple[str, ...], stacked: frozenset) -> Tree:
    """Returns the stacked states of equal layers."""
    if names in stacked:
        return _state(execution, names[1])
    return _stack([_state(execution, name) for name in names])


def _state(execution: Execution, name: str) -> Tree:
    return execution.updates.get(name, execution.state.get(name, {}))


def _salts(execution: Execution, repeat: Repeat) -> dict[int, Any]:
    """Returns, for each call number of the template, an array (blocks, 2) of salts and indices."""
    salts = {}
    for number, numbers in zip(repeat.blocks[1], zip(*repeat.blocks, strict=True), strict=True):
        values = [_salt(execution, call_number) for call_number in numbers]
        # a constant of the program where no outer loop passes the numbers
        is_constant = all(isinstance(value, tuple) for value in values)
        salts[number] = np.array(values, "uint32") if is_constant else jnp.stack(values)
    return salts


def _salt(execution: Execution, number: int) -> Any:
    if number in execution.salts:
        return execution.salts[number]
    graph = execution.graph
    index = graph.node_indices[number]
    return zlib.crc32(call_salt(graph.calls[number].layer, index).encode()), index


def _at(tree: Tree, index: int) -> Tree:
    return jax.tree.map(lambda stack: stack[index], tree)


def _stack(trees: list) -> Tree:
    if any(_shapes(tree) != _shapes(trees[0]) for tree in trees):
        raise _DifferentBlocksError
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _shapes(tree: Tree) -> Tree:
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
