"""Calls of a function by blocks: equal blocks share a compiled program.

XLA compiles each of the equal blocks in a program anew. A function that runs once for each prompt compiles
faster as several programs: one of a block, which is called for each block, and one each of the operations
before and after the blocks.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np
from jax.core import Tracer

from fkeras.programs.walk import called, follow, is_literal, opened

# equations that are not compiled again from which calls of several programs pay
_LEAST = 800


class _Piece(NamedTuple):
    """A program that `follow` computes like an equation.

    Attributes:
        compute: computes the results from the operands.
        invars: the variables of the operands.
        outvars: the variables of the results.
    """

    compute: Callable[..., Sequence[Any]]
    invars: Sequence[Any]
    outvars: Sequence[Any]


def call_by_blocks(function: Any, *arguments: Any, **static: Any) -> Any:
    """Calls a jitted function; on CPUs, many equal blocks share a compiled program.

    The whole function is one program under transformations, for arrays on several devices, whose sharding
    XLA chooses for whole programs, and on accelerators, where several programs are not measured.

    Args:
        function: a function of `jax.jit`.
        *arguments: the arguments of the function.
        **static: the static arguments of the function.
    """
    leaves, structure = jax.tree.flatten(arguments)
    config: Any = jax.config  # JAX declares its flags at run time
    is_whole = config.jax_disable_jit or jax.default_backend() != "cpu"
    if is_whole or not are_on_one_device(leaves):
        return function(*arguments, **static)
    program, results, pieces = _cut(
        function, structure, specs_of(leaves), tuple(static.items()), settings()
    )
    if not pieces:
        return function(*arguments, **static)
    return results.unflatten(follow(program, leaves, _constant, _compute, pieces))


_EMPTY = jax.jit(lambda: None)


def settings() -> Any:
    """Returns an object that stands for the settings of JAX, which programs depend on.

    The trace of an empty function is the same object for equal settings.
    """
    return _EMPTY.trace().jaxpr


def specs_of(leaves: Iterable[Any]) -> tuple[tuple[Any, Any, bool], ...]:
    """Returns shape, dtype and weak type of each array: a part of the key of a program."""
    return tuple((x.shape, x.dtype, getattr(x, "weak_type", False)) for x in leaves)


def are_on_one_device(leaves: Iterable[Any]) -> bool:
    """Returns whether leaves are concrete arrays on at most one device."""
    devices = set[Any]()
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer):
            devices |= leaf.sharding.device_set
        elif not isinstance(leaf, np.ndarray | np.generic):
            return False
    return len(devices) < 2


def _constant(array: Any, aval: Any) -> Any:
    return array if isinstance(array, jax.Array) else jax.device_put(np.asarray(array, aval.dtype))


def _compute(piece: Any, operands: list[Any]) -> Sequence[Any]:
    return piece.compute(*operands)


# cached: JAX takes longer to find the traced program
@functools.lru_cache(maxsize=64)
def _cut(
    function: Any, structure: Any, specs: tuple, static: tuple, _settings: Any
) -> tuple[Any, Any, Any]:
    """Returns the program of a function, the structure of its results, and the pieces of the program."""
    leaves = [jax.ShapeDtypeStruct(s, dtype, weak_type=weak) for s, dtype, weak in specs]
    traced = function.trace(*structure.unflatten(leaves), **dict(static))
    return traced.jaxpr, jax.tree.structure(traced.out_info), [*_pieces(opened(traced.jaxpr)[0])]


def _pieces(program: Any) -> Iterator[_Piece]:
    """Yields the pieces of a program; none for a program without many equal blocks."""
    results = [*_variables(program.outvars)]
    counts = collections.Counter(id(called(equation)) for equation in program.eqns)
    is_block = functools.partial(is_repeated, counts=counts)
    if program.effects or not any(map(is_block, program.eqns)) or len({*results}) < len(results):
        return
    steps, programs = list[Any](), dict[int, Any]()
    for equation in _with_equal_constants(program.eqns, results):
        if is_block(equation):
            block = called(equation)
            compute = programs.setdefault(id(block), _program(opened(block)[0]))
            equation = _Piece(compute, equation.invars, equation.outvars)
        steps.append(equation)
    # steps on which no block depends are computed last
    early, last, needed = list[Any](), list[Any](), set[Any]()
    for step in reversed(steps):
        is_early = isinstance(step, _Piece) or not needed.isdisjoint(step.outvars)
        (early if is_early else last).insert(0, step)
        needed.update(_variables(step.invars) if is_early else ())
    reads = collections.Counter([*_operands(steps), *results])
    for are_pieces, group in itertools.groupby(early, lambda step: isinstance(step, _Piece)):
        part = [*group]
        if are_pieces:
            yield from part
            continue
        own = collections.Counter(_operands(part))
        yield _piece(program, part, [v for v in _made(part) if reads[v] > own[v]])
    # a program copies inputs that are results, since the caller may donate results
    made = _made(step for step in early if isinstance(step, _Piece))
    yield _piece(program, last, [v for v in results if v not in made])


def is_repeated(equation: Any, counts: Mapping[int, int]) -> bool:
    """Returns whether an equation calls a program that is called so often that the program is compiled once.

    Args:
        counts: by `id` of a program, how often it is called.
    """
    block = called(equation)
    if block is None or opened(block)[1]:
        return False
    return (counts[id(block)] - 1) * len(block.eqns) >= _LEAST


def _with_equal_constants(equations: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Returns equations that read the first of equal constants, such as the zeros of each block, except for results."""
    constants, same, kept = dict[str, Any](), dict[Any, Any](), list[Any]()
    for equation in equations:
        atoms = [v if is_literal(v) else same.get(v, v) for v in equation.invars]
        equation, made = equation.replace(invars=atoms), equation.outvars
        if not _operands([equation]):
            first = constants.setdefault(_key_of(equation), made)
            same.update((v, w) for v, w in zip(made, first, strict=True) if v not in results)
        kept.append(equation)
    return kept


def _key_of(equation: Any) -> str:
    """Returns a text that is equal for equations without variables and with equal results."""
    # the text of an array is not its numbers, and that of a number not its dtype
    numbers = [np.asarray(atom.val, atom.aval.dtype).tobytes() for atom in equation.invars]
    shapes = [v.aval for v in (*equation.invars, *equation.outvars)]
    return str((equation.primitive, equation.params, shapes, numbers))


def _piece(program: Any, equations: list[Any], results: list[Any]) -> _Piece:
    made = _made(equations)
    operands = [v for v in dict.fromkeys([*_operands(equations), *results]) if v not in made]
    part = program.replace(eqns=equations, constvars=[], invars=operands, outvars=results)
    return _Piece(_program(part), operands, results)


def _program(jaxpr: Any) -> Callable[..., Sequence[Any]]:
    def piece(*operands: Any) -> Sequence[Any]:
        return jax.core.eval_jaxpr(jaxpr, (), *operands)

    return jax.jit(piece)


def _made(steps: Iterable[Any]) -> dict[Any, None]:
    return dict.fromkeys(v for step in steps for v in step.outvars)


def _operands(steps: Iterable[Any]) -> list[Any]:
    return [*_variables(v for step in steps for v in step.invars)]


def _variables(atoms: Iterable[Any]) -> Iterator[Any]:
    return (atom for atom in atoms if not is_literal(atom))
