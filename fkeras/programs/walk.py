"""The walk through the equations of a program, and through the programs inside of equations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fkeras.programs.primitives import CALLS

if TYPE_CHECKING:  # jax.extend imports Pallas, which is slow
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

Value = TypeVar("Value")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def opened(program: Jaxpr | ClosedJaxpr) -> tuple[Jaxpr, Sequence[Any]]:
    """Returns a program and its constants; none for a program without constants of its own."""
    closed: Any = program
    return (closed.jaxpr, closed.consts) if hasattr(program, "consts") else (closed, ())


def equations(program: Jaxpr | ClosedJaxpr) -> Sequence[JaxprEqn]:
    """Returns the equations of a program in the order of computation."""
    return program.eqns


def called(equation: JaxprEqn) -> Any:
    """Returns the program that a primitive of `CALLS` runs; None for other primitives."""
    parameter = CALLS.get(equation.primitive.name)
    return None if parameter is None else equation.params[parameter]


def programs_in(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """Yields the programs in the parameters of an equation, such as the branches of a condition."""
    for value in equation.params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield inner


def branch_of_cpus(platforms: Sequence[Sequence[str] | None]) -> int | None:
    """Returns the number of the branch of CPUs in a choice by platform; None if there is none.

    Args:
        platforms: the platforms of each branch; None for all others.
    """
    chosen = (n for n, names in enumerate(platforms) if names is None or "cpu" in names)
    return next(chosen, None)


def all_equations(
    program: Jaxpr | ClosedJaxpr, enter: Callable[[JaxprEqn], bool] = lambda equation: True
) -> Iterator[JaxprEqn]:
    """Yields the equations of a program and of the programs inside, each before those inside of it.

    Args:
        enter: whether the programs inside of an equation are read.
    """
    for equation in program.eqns:
        yield equation
        if enter(equation):
            for inner in programs_in(equation):
                yield from all_equations(inner, enter)


def needed(program: Jaxpr | ClosedJaxpr, effects: bool = True) -> list[JaxprEqn]:
    """Returns the equations on which an output depends, in the order of computation.

    JAX leaves out equations that no output needs, such as the values of a function whose gradient is asked.

    Args:
        effects: whether equations with effects, such as a print, are needed too.
    """
    jaxpr, _ = opened(program)
    wanted = {id(variable) for variable in jaxpr.outvars}
    found = []
    for equation in reversed(jaxpr.eqns):
        has_effects = effects and equation.effects
        if has_effects or any(id(variable) in wanted for variable in equation.outvars):
            wanted.update(map(id, equation.invars))
            found.append(equation)
    return found[::-1]


def follow(
    program: Jaxpr | ClosedJaxpr,
    values: Sequence[Value],
    constant: Callable[[Any, Any], Value],
    apply: Callable[[JaxprEqn, list[Value]], Sequence[Value]],
    chosen: Sequence[JaxprEqn] | None = None,
) -> list[Value]:
    """Returns the values of a program's outputs, which `apply` computes equation by equation.

    Args:
        values: one value for each input.
        constant: `(array, aval) -> value` of a constant or a literal.
        apply: `(equation, values of its operands) -> values of its results`.
        chosen: the equations to follow; by default all.
    """
    jaxpr, constants = opened(program)
    known: dict[Any, Value] = dict(zip(jaxpr.invars, values, strict=True))
    for variable, array in zip(jaxpr.constvars, constants, strict=True):
        known[variable] = constant(array, variable.aval)

    def read(atom: Any) -> Value:
        return constant(atom.val, atom.aval) if is_literal(atom) else known[atom]

    for equation in jaxpr.eqns if chosen is None else chosen:
        results = apply(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def is_literal(atom: object) -> bool:
    """Returns whether an operand is a number in the program, not a variable."""
    return hasattr(atom, "val")


def depends(program: Jaxpr | ClosedJaxpr, count: int) -> bool:
    """Returns whether the first output depends on any of the first `count` inputs.

    An equation with programs inside counts as a dependency of all its results on all its operands.
    """
    jaxpr, _ = opened(program)
    reached = set(jaxpr.invars[:count])
    for equation in jaxpr.eqns:
        if any(not is_literal(v) and v in reached for v in equation.invars):
            reached.update(equation.outvars)
    output = jaxpr.outvars[0]
    return not is_literal(output) and output in reached


def text_of(program: Jaxpr | ClosedJaxpr) -> str:
    """Returns the text of a program without addresses: equal programs have equal texts."""
    return _ADDRESS.sub("", str(program))
