"""A loop over equal blocks inside of a loop over steps, whose body calls the blocks one after the other.

A compiled step with separate blocks grows with their number, and XLA compiles the products of each block anew. In
a loop over stacks of weights XLA copies the weights of each block first. Products of one row read slices of the
stack instead, see `fkeras.nn.cpu.products.block_product`, and updates of states change the stack of states.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np

from fkeras.generation.blocks import is_repeated, settings
from fkeras.nn.cpu.forms import FORM
from fkeras.nn.cpu.products import RowProduct, block_product, sum_terms
from fkeras.programs.walk import called, follow, is_literal, opened

#: weights of fewer bytes may be copied
LEAST_BYTES = 1 << 16
# larger states than this share of the weights are faster as arrays of their own
_STATE_SHARE = 1 / 16


class _Taken(NamedTuple):
    """The array of a block in a stack. Slices, updates and products use the stack without a copy of the array."""

    stack: jax.Array
    index: jax.Array

    def array(self) -> jax.Array:
        return jax.lax.dynamic_index_in_dim(self.stack, self.index, keepdims=False)

    def slice(self, starts: Sequence[Any], sizes: Sequence[int]) -> jax.Array:
        part = jax.lax.dynamic_slice(self.stack, self._starts(starts), (1, *sizes))
        return part.reshape(sizes)

    def updated(self, part: jax.Array, starts: Sequence[Any]) -> _Taken:
        stack = jax.lax.dynamic_update_slice(self.stack, part[None], self._starts(starts))
        return _Taken(stack, self.index)

    def _starts(self, starts: Sequence[Any]) -> list[Any]:
        # JAX asks for indices of one dtype
        dtypes = {jax.typeof(start).dtype for start in starts}
        return [self.index.astype(dtypes.pop()) if len(dtypes) == 1 else self.index, *starts]


class Chain(NamedTuple):
    """Calls of equal blocks in the body of a loop; positions are those of operands and results.

    Attributes:
        blocks: the calls.
        block: the program of a block.
        carried: by position of an operand the position of the result of the block before.
        weights: by position of an operand the numbers of the constants of the loop, one for each block.
        states: by position of an operand the numbers in the carry of the loop, one for each block.
        changed: by position of an operand in `states` the position of the next state; absent for equal states.
        large: the positions in `weights` of kernels, whose products read slices of the stacks.
    """

    blocks: Sequence[Any]
    block: Any
    carried: dict[int, int]
    weights: dict[int, tuple[int, ...]]
    states: dict[int, tuple[int, ...]]
    changed: dict[int, int]
    large: tuple[int, ...]


def chain_of(loop: Any) -> Chain | None:
    """Returns the equal blocks in the body of a loop; None if a loop over the blocks is impossible or slower."""
    body, constants = opened(loop.params["body_jaxpr"])
    counts = collections.Counter(id(called(equation)) for equation in body.eqns)
    programs = [called(equation) for equation in body.eqns if is_repeated(equation, counts)]
    if constants or not programs:
        return None
    largest = max(programs, key=lambda program: counts[id(program)] * len(program.eqns))
    blocks = [equation for equation in body.eqns if called(equation) is largest]
    found = _operands_of(blocks, body.invars)
    if found is None:
        return None
    own, carried = found
    start = loop.params["body_nconsts"]
    weights = {p: ns for p, ns in own.items() if max(ns) < start}
    states = {p: tuple(n - start for n in ns) for p, ns in own.items() if min(ns) >= start}
    if len(weights) + len(states) < len(own):
        return None
    others = [equation for equation in body.eqns if equation not in blocks]
    shared = (v for p, v in enumerate(blocks[0].invars) if p not in own)
    read = reads_of(others).union(v for v in shared if not is_literal(v))
    changed = _changed(blocks, carried, states, read, body.outvars)
    if changed is None:
        return None
    condition, _ = opened(loop.params["cond_jaxpr"])
    tested = reads_of(condition.eqns).union(v for v in condition.outvars if not is_literal(v))
    tail = condition.invars[loop.params["cond_nconsts"] :]
    numbers = [n for ns in states.values() for n in ns]
    kept = {n for p, ns in states.items() if p not in changed for n in ns}
    # other code reads arrays of blocks, not stacks
    is_separate = (
        len({*numbers}) == len(numbers)
        and all(body.outvars[n] is body.invars[start + n] for n in kept)
        and not any(tail[n] in tested for n in numbers)
        and not any(body.invars[n] in read for ns in own.values() for n in ns)
        and not any(body.invars[n] in body.outvars for ns in weights.values() for n in ns)
    )
    block, _ = opened(largest)
    large = tuple(p for p in weights if _bytes(block.invars[p]) >= LEAST_BYTES)
    most = _STATE_SHARE * sum(_bytes(block.invars[p]) for p in large)
    is_fast = (
        all(_is_product_alone(block, p) for p in large)
        and sum(_bytes(block.invars[p]) for p in states) <= most
    )
    if not is_separate or not is_fast:
        return None
    return Chain(blocks, block, carried, weights, states, changed, large)


def _operands_of(
    blocks: Sequence[Any], inputs: Sequence[Any]
) -> tuple[dict[int, tuple[int, ...]], dict[int, int]] | None:
    """Returns the operands that differ between blocks, by position; None if they are other than inputs and results.

    Returns:
        The numbers of the inputs, one for each block; and the positions of the results of the block before.
    """
    numbers = {variable: n for n, variable in enumerate(inputs)}
    own, carried = dict[int, tuple[int, ...]](), dict[int, int]()
    for position in range(len(blocks[0].invars)):
        atoms = [equation.invars[position] for equation in blocks]
        if any(map(is_literal, atoms)):
            if any(not is_literal(a) or a.val is not atoms[0].val for a in atoms):
                return None
        elif any(atom is not atoms[0] for atom in atoms):
            if all(atom in numbers for atom in atoms):
                own[position] = tuple(numbers[atom] for atom in atoms)
                continue
            before = [n for n, v in enumerate(blocks[0].outvars) if v is atoms[1]]
            pairs = zip(blocks[:-1], atoms[1:], strict=True)
            if not before or any(e.outvars[before[0]] is not atom for e, atom in pairs):
                return None
            carried[position] = before[0]
    return own, carried


def _changed(
    blocks: Sequence[Any],
    carried: Mapping[int, int],
    states: Mapping[int, tuple[int, ...]],
    read: set[Any],
    outputs: Sequence[Any],
) -> dict[int, int] | None:
    """Returns by position of a state the position of the next state; None if other code reads results of blocks.

    Args:
        read: the variables that other code reads.
        outputs: the outputs of the body of the loop.
    """
    places = collections.defaultdict[Any, list[int]](list)
    for number, variable in enumerate(outputs):
        if not is_literal(variable):
            places[variable].append(number)
    changed = dict[int, int]()
    for result in range(len(blocks[0].outvars)):
        made = [equation.outvars[result] for equation in blocks]
        if result in carried.values():
            if any(v in read or places[v] for v in made[:-1]):
                return None
        elif any(v in read or places[v] for v in made):
            found = [
                p for p, ns in states.items() if [[n] for n in ns] == [places[v] for v in made]
            ]
            if len(found) != 1 or any(v in read for v in made):
                return None
            changed[found[0]] = result
    return changed


def reads_of(equations: Sequence[Any]) -> set[Any]:
    return {v for equation in equations for v in equation.invars if not is_literal(v)}


def _bytes(variable: Any) -> int:
    return math.prod(variable.aval.shape) * variable.aval.dtype.itemsize


def _is_product_alone(block: Any, position: int) -> bool:
    """Returns whether only products of one row read an operand of a block."""
    kernel = block.invars[position]
    readers = [e for e in block.eqns if any(v is kernel for v in e.invars)]
    return kernel not in block.outvars and all(_is_row_product(e, kernel) for e in readers)


def _is_row_product(equation: Any, kernel: Any) -> bool:
    form = equation.params.get("form") if equation.primitive is FORM else None
    if not isinstance(form, RowProduct) or equation.invars[0] is kernel:
        return False
    x, size = equation.invars[0].aval, math.prod(kernel.aval.shape[: form.axes])
    is_single = x.dtype == kernel.aval.dtype == "float32" and math.prod(x.shape) == size
    return is_single and sum_terms(size) > 1


def run_chain(
    loop: Any,
    chain: Chain,
    operands: list,
    weights: Mapping[int, jax.Array],
    states: dict[int, jax.Array],
) -> tuple[list[Any], dict[int, jax.Array]]:
    """Computes a loop with the blocks of each step in a loop; returns results, None for states, and stacks of states."""
    params = loop.params
    tested, count = params["cond_nconsts"], params["body_nconsts"]
    constants, initial = operands[tested : tested + count], operands[tested + count :]
    inside = {n for ns in chain.states.values() for n in ns}
    outside = [n for n in range(len(initial)) if n not in inside]

    def whole(others: Sequence[Any]) -> list[Any]:
        values = dict(zip(outside, others, strict=True))
        return [values.get(n) for n in range(len(initial))]

    def goes_on(carry: tuple) -> Any:
        values = [*operands[:tested], *whole(carry[0])]
        return follow(params["cond_jaxpr"], values, value_of, evaluated)[0]

    def step(carry: tuple) -> tuple:
        states, values = carry[1], [*constants, *whole(carry[0])]
        body, _ = opened(params["body_jaxpr"])
        known = dict(zip(body.invars, values, strict=True))
        made = {v for e in chain.blocks for v in e.outvars}

        def compute(equations: Sequence[Any]) -> None:
            for equation in equations:
                read = [_read(atom, known) for atom in equation.invars]
                known.update(zip(equation.outvars, evaluated(equation, read), strict=True))

        others = [e for e in body.eqns if e not in chain.blocks]
        late = []
        for equation in others:
            if not made.isdisjoint(reads_of([equation])):
                late.append(equation)
                made.update(equation.outvars)
        compute([e for e in others if e not in late])
        first, last = chain.blocks[0], chain.blocks[-1]
        shared = {
            p: _read(atom, known)
            for p, atom in enumerate(first.invars)
            if p not in chain.weights and p not in chain.states
        }

        def block(index: jax.Array, carry: tuple) -> tuple:
            carried, states = carry
            values = {**shared, **carried}
            for p, stack in (*weights.items(), *states.items()):
                values[p] = _Taken(stack, index)
            ordered = [values[p] for p in range(len(first.invars))]
            results = follow(chain.block, ordered, value_of, _evaluated_in_block)
            for p, n in chain.changed.items():
                state = results[n]
                if not isinstance(state, _Taken):
                    state = values[p].updated(state, [0] * state.ndim)
                states = {**states, p: state.stack}
            return {p: _array(results[n]) for p, n in chain.carried.items()}, states

        carried = {p: shared[p] for p in chain.carried}
        carried, states = jax.lax.fori_loop(0, len(chain.blocks), block, (carried, states))
        known.update((last.outvars[n], carried[p]) for p, n in chain.carried.items())
        compute(late)
        return [_read(body.outvars[n], known) for n in outside], states

    first = ([initial[n] for n in outside], dict(states))
    others, states = jax.lax.while_loop(goes_on, step, first)
    return whole(others), states


def _array(value: Any) -> Any:
    return value.array() if isinstance(value, _Taken) else value


def _read(atom: Any, known: dict[Any, Any]) -> Any:
    return value_of(atom.val, atom.aval) if is_literal(atom) else known[atom]


def value_of(array: Any, aval: Any) -> Any:
    """Returns a constant or a literal of a program in its dtype."""
    return array if isinstance(array, jax.Array) else np.asarray(array, aval.dtype)


def _evaluated_in_block(equation: Any, operands: list) -> Sequence[Any]:
    taken, *rest = operands or [None]
    name = equation.primitive.name
    if isinstance(taken, _Taken) and name == "dynamic_slice":
        return [taken.slice([*map(_array, rest)], equation.params["slice_sizes"])]
    if isinstance(taken, _Taken) and name == "dynamic_update_slice":
        part, *starts = map(_array, rest)
        return [taken.updated(part, starts)]
    kernel = operands[1] if len(operands) == 2 else None
    if isinstance(kernel, _Taken) and _is_row_product(equation, equation.invars[1]):
        axes = equation.params["form"].axes
        return [block_product(_array(taken), kernel.stack, kernel.index, axes)]
    return evaluated(equation, [*map(_array, operands)])


def evaluated(equation: Any, operands: list) -> Sequence[Any]:
    # a program of one equation
    pairs = zip(equation.invars, operands, strict=True)
    values = {atom: value for atom, value in pairs if not is_literal(atom)}
    program, _ = opened(settings())
    part = program.replace(eqns=[equation], invars=[*values], outvars=equation.outvars)
    return jax.core.eval_jaxpr(part, (), *values.values())
