"""Counts the operations of a program by its jaxpr: from shapes alone, without arrays or compilation.

XLA's own analysis counts the body of a loop once; here a `scan` counts all its steps. A jaxpr is
also cheaper than the analysis, for which JAX lowers the program first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax

from fkeras.engine.costs.rules import primitive_count
from fkeras.engine.values.annotations import Jaxpr, JaxprEqn, Tree
from fkeras.programs.walk import branch_of_cpus, needed, programs_in


@dataclasses.dataclass(frozen=True)
class Costs:
    """Operations of a program.

    Attributes:
        flops: floating-point operations; a multiplication with an addition counts as two.
        transcendentals: evaluations of functions such as `exp`, `tanh` and `sqrt`.
        unknown: names of the primitives that have no rule, and count as nothing.

    Example:
        >>> Costs(2.0) + Costs(3.0, 1.0)
        Costs(flops=5.0, transcendentals=1.0, unknown=frozenset())
    """

    flops: float = 0.0
    transcendentals: float = 0.0
    unknown: frozenset[str] = frozenset()

    def __add__(self, other: Costs) -> Costs:
        return Costs(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.unknown | other.unknown,
        )

    def __mul__(self, times: float) -> Costs:
        return Costs(self.flops * times, self.transcendentals * times, self.unknown)


def count_operations(function: Callable[..., Any], *arguments: Tree) -> Costs:
    """Returns the operations of one call of a function.

    A `scan` counts its body for each step, a condition its most expensive branch, and a choice by platform the
    branch of CPUs. The body of a `while` loop of unknown length counts once, and `unknown` then contains "while".

    Args:
        *arguments: trees of arrays, or of `jax.ShapeDtypeStruct`.
    """
    return count_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def count_jaxpr(jaxpr: Jaxpr) -> Costs:
    """Returns the operations of a jaxpr with known sizes.

    Args:
        jaxpr: a jaxpr, for example `jax.make_jaxpr(function)(x).jaxpr`.
    """
    return sum((costs for _, costs in costs_by_scope(jaxpr)), Costs())


def costs_by_scope(jaxpr: Any, outer: str = "") -> Iterator[tuple[str, Costs]]:
    """Yields the name stack and the operations of each equation of a jaxpr with known sizes.

    The name stacks of equations in loops contain "while", as in the text of XLA's programs.

    Args:
        outer: the name stack of the equation that runs the jaxpr.
    """
    for equation in needed(jaxpr):
        stack = str(equation.source_info.name_stack)
        yield from _equation_costs(equation, f"{outer}/{stack}" if stack else outer)


def _equation_costs(equation: JaxprEqn, scope: str) -> Iterator[tuple[str, Costs]]:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        for inner, costs in costs_by_scope(params["jaxpr"].jaxpr, f"{scope}/while"):
            yield inner, costs * params["length"]
    elif name == "cond":
        branches, platforms = params["branches"], params.get("branches_platforms")
        if platforms and (index := branch_of_cpus(platforms)) is not None:
            branches = branches[index : index + 1]
        branches = [list(costs_by_scope(branch.jaxpr, scope)) for branch in branches]
        yield from max(branches, key=lambda parts: sum(costs.flops for _, costs in parts))
    elif name == "while":
        for part in ("cond_jaxpr", "body_jaxpr"):
            yield from costs_by_scope(params[part].jaxpr, f"{scope}/while")
        yield scope, Costs(unknown=frozenset({name}))
    elif (count := primitive_count(equation)) is not None:
        yield scope, Costs(float(count.flops), float(count.transcendentals))
    else:
        # a function with a rule for derivatives has several jaxprs; the first is the function
        inner = next(programs_in(equation), None)
        if inner is None:
            yield scope, Costs(unknown=frozenset({name}))
        else:
            yield from costs_by_scope(inner, scope)
