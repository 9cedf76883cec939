"""Steps of decoding with equal blocks in a loop, over weights that lie side by side in memory.

The weights of equal blocks lie side by side after `fkeras.pretrained.load`: without a copy, their memory is a stack
of weights. Between two calls the states of the blocks are stacks as well.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from fkeras.generation.blocks import are_on_one_device, settings, specs_of
from fkeras.generation.loops import LEAST_BYTES, chain_of, evaluated, reads_of, run_chain, value_of
from fkeras.host.memory import apart, as_one, lie_side_by_side, stacked
from fkeras.programs.walk import follow, is_literal, opened


class _Loop(NamedTuple):
    """A compiled program with a loop over equal blocks; numbers are those of leaves.

    Attributes:
        compute: computes stacks of states and the other leaves of a carry, from stacks of weights, leaves that stay,
            and stacks of states and the other leaves of the carry before.
        large: for each stack of large weights, which is no copy, the numbers in the reader and the sampling.
        small: for each stack of small weights the numbers in the reader and the sampling.
        kept: the numbers of the other leaves of the reader and the sampling.
        states: for each stack of states the numbers in the state.
    """

    compute: Callable[..., Any]
    large: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]
    states: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Stacked:
    """The state of a carry between two calls of a loop over blocks.

    Attributes:
        loop: the compiled program.
        fixed: the reader and the sampling of the program.
        weights: the stacks of weights.
        kept: the other leaves of the reader and the sampling.
        structure: the structure of the state.
        stacks: the stacks of states.
        others: the leaves of the state that are not stacked.
    """

    loop: _Loop
    fixed: tuple[Any, Any]
    weights: Sequence[jax.Array]
    kept: Sequence[Any]
    structure: Any
    stacks: Sequence[jax.Array]
    others: Sequence[Any]

    def plain(self) -> Any:
        """Returns the state with an array for each block."""
        pairs = zip(self.loop.states, self.stacks, strict=True)
        parts = {n: x for ns, stack in pairs for n, x in zip(ns, apart(stack), strict=True)}
        others = iter(self.others)
        count = self.structure.num_leaves
        leaves = [parts[n] if n in parts else next(others) for n in range(count)]
        return self.structure.unflatten(leaves)


def plain_state(state: Any) -> Any:
    """Returns the state of a carry with an array for each block."""
    return state.plain() if isinstance(state, Stacked) else state


def call_in_loop(function: Any, reader: Any, sampling: Any, carry: Any, steps: Any) -> Any:
    """Calls a jitted decoding step with the equal blocks in a loop; returns None if the loop is impossible or slower.

    Args:
        function: a function of `jax.jit`, which returns the next carry.
        reader: the reader of the model.
        sampling: the samplers and limits.
        carry: a named tuple whose first field is a state, or `Stacked` of an earlier call. Its arrays are donated.
        steps: the maximum number of steps.
    """
    state = carry[0]
    if (
        not isinstance(state, Stacked)
        or state.fixed[0] is not reader
        or state.fixed[1] is not sampling
    ):
        carry = carry._replace(state=plain_state(state))
        state = _stacked(function, reader, sampling, carry, steps)
        if state is None:
            return None
    rest, structure = jax.tree.flatten(carry[1:])
    given, kept = [*state.others, *rest], [*state.kept, steps]
    stacks, given = state.loop.compute(state.weights, kept, state.stacks, given)
    others, rest = given[: len(state.others)], given[len(state.others) :]
    state = dataclasses.replace(state, stacks=stacks, others=others)
    return type(carry)(state, *structure.unflatten(rest))


def _stacked(function: Any, reader: Any, sampling: Any, carry: Any, steps: Any) -> Stacked | None:
    config: Any = jax.config  # JAX declares its flags at run time
    leaves, structure = jax.tree.flatten((reader, sampling, carry, steps))
    arrays = [leaf for leaf in leaves if not isinstance(leaf, int | float)]
    if config.jax_disable_jit or jax.default_backend() != "cpu" or not are_on_one_device(arrays):
        return None
    fixed, (states, form) = jax.tree.leaves((reader, sampling)), jax.tree.flatten(carry[0])
    if not any(itertools.starmap(lie_side_by_side, itertools.pairwise(_large(fixed)))):
        return None
    specs = specs_of([jax.typeof(x) if isinstance(x, int | float) else x for x in leaves])
    loop = _loop(function, structure, specs, len(fixed), len(states), settings())
    if loop is None:
        return None
    found = [as_one([fixed[n] for n in group]) for group in loop.large]
    weights = [stack for stack in found if stack is not None]
    if len(weights) < len(found):
        return None
    weights += [stacked([fixed[n] for n in group]) for group in loop.small]
    kept = [fixed[n] for n in loop.kept]
    stacks = [stacked([states[n] for n in group]) for group in loop.states]
    inside = {n for group in loop.states for n in group}
    others = [leaf for n, leaf in enumerate(states) if n not in inside]
    return Stacked(loop, (reader, sampling), weights, kept, form, stacks, others)


def _large(leaves: Sequence[Any]) -> list[Any]:
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    # not `nbytes`, which is slow
    large = (a for a in arrays if math.prod(a.shape) * a.dtype.itemsize >= LEAST_BYTES)
    return sorted(large, key=lambda array: array.unsafe_buffer_pointer())


# cached: tracing takes longer than the call
@functools.lru_cache(maxsize=64)
def _loop(
    function: Any, structure: Any, specs: tuple, fixed: int, states: int, _settings: Any
) -> _Loop | None:
    """Returns the program for leaves of which `fixed` are those of the reader and the sampling, then `states`."""
    shapes = [jax.ShapeDtypeStruct(s, dtype, weak_type=weak) for s, dtype, weak in specs]
    traced = function.trace(*structure.unflatten(shapes))
    program, _ = opened(traced.jaxpr)
    loops = [e for e in program.eqns if e.primitive.name == "while"]
    chain = chain_of(loops[0]) if len(loops) == 1 and not program.effects else None
    if chain is None:
        return None
    loop, count = loops[0], loops[0].params["cond_nconsts"]
    start = count + loop.params["body_nconsts"]
    inputs = {variable: n for n, variable in enumerate(program.invars)}
    results = {v: n for n, v in enumerate(program.outvars) if not is_literal(v)}
    small = [p for p in chain.weights if p not in chain.large]
    weights = [[loop.invars[count + n] for n in chain.weights[p]] for p in (*chain.large, *small)]
    before = [[loop.invars[start + n] for n in ns] for ns in chain.states.values()]
    after = [[loop.outvars[n] for n in ns] for ns in chain.states.values()]
    read = reads_of([equation for equation in program.eqns if equation is not loop])
    atoms = {atom for group in (*weights, *before) for atom in group}
    is_separate = (
        inputs.keys() >= atoms
        and atoms.isdisjoint(read.union(results))
        and read.isdisjoint(v for group in after for v in group)
        and len(program.outvars) == len(specs) - fixed - 1
    )
    if not is_separate:
        return None
    taken = {atom: inputs[atom] for atom in atoms}
    groups = [tuple(taken[atom] for atom in group) for group in weights]
    numbers = [tuple(taken[atom] - fixed for atom in group) for group in before]
    are_fixed = all(n < fixed for group in groups for n in group)
    are_states = all(0 <= n < states for group in numbers for n in group)
    # each state becomes the state of the same place
    if [tuple(results.get(v) for v in group) for group in after] != numbers:
        return None
    if not are_fixed or not are_states:
        return None
    others = [n for n in range(len(specs)) if n not in taken.values()]
    kept = [n for n in others if n < fixed or n == len(specs) - 1]
    given = [n for n in others if n not in kept]

    def compute(stacks: list, kept_leaves: list, states: list, given_leaves: list) -> Any:
        values = dict(zip((*kept, *given), (*kept_leaves, *given_leaves), strict=True))
        by_position = dict(zip((*chain.large, *small), stacks, strict=True))
        last = dict(zip(chain.states, states, strict=True))

        def apply(equation: Any, operands: list) -> Sequence[Any]:
            if equation is not loop:
                return evaluated(equation, operands)
            outputs, made = run_chain(loop, chain, operands, by_position, last)
            last.update(made)
            return outputs

        leaves = [values.get(n) for n in range(len(specs))]
        outputs = follow(traced.jaxpr, leaves, value_of, apply)
        return [last[p] for p in chain.states], [outputs[n - fixed] for n in given]

    size = len(chain.large)
    return _Loop(
        jax.jit(compute, donate_argnums=(2, 3)),
        tuple(groups[:size]),
        tuple(groups[size:]),
        tuple(kept[:-1]),
        tuple(numbers),
    )
