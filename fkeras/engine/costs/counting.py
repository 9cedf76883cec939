"""Counts the operations of a program by its jaxpr: from shapes alone, without arrays or compilation.

XLA's own analysis counts the body of a loop once; here a `scan` counts all its steps. A jaxpr is
also cheaper than the analysis, for which JAX lowers the program first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from fkeras.engine.costs.rules import primitive_count
from fkeras.engine.values.annotations import Jaxpr, JaxprEqn, Tree


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

    A `scan` counts its body for each step, and a condition its most expensive branch. The body of a
    `while` loop of unknown length counts once, and `unknown` then contains "while".

    Args:
        *arguments: trees of arrays, or of `jax.ShapeDtypeStruct`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> matrix = jax.ShapeDtypeStruct((3, 3), "float32")
        >>> count_operations(lambda a: jnp.exp(a @ a), matrix)
        Costs(flops=54.0, transcendentals=9.0, unknown=frozenset())
    """
    return count_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def count_jaxpr(jaxpr: Jaxpr) -> Costs:
    """Returns the operations of a jaxpr with known sizes.

    Args:
        jaxpr: a jaxpr, for example `jax.make_jaxpr(function)(x).jaxpr`.
    """
    total = Costs()
    # JAX leaves out what no output needs, such as the values of a function whose gradient is asked
    needed = {id(variable) for variable in jaxpr.outvars}
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(variable) in needed for variable in equation.outvars):
            needed.update(map(id, equation.invars))
            total += _equation_costs(equation)
    return total


def _equation_costs(equation: JaxprEqn) -> Costs:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return count_jaxpr(params["jaxpr"].jaxpr) * params["length"]
    if name == "cond":
        branches = [count_jaxpr(branch.jaxpr) for branch in params["branches"]]
        return max(branches, key=lambda costs: costs.flops)
    if name == "while":
        condition, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
        return count_jaxpr(condition) + count_jaxpr(body) + Costs(unknown=frozenset({name}))
    count = primitive_count(equation)
    if count is not None:
        return Costs(float(count.flops), float(count.transcendentals))
    inner = list(_inner_jaxprs(params))
    # a function with a rule for derivatives has several jaxprs; the first is the function
    return count_jaxpr(inner[0]) if inner else Costs(unknown=frozenset({name}))


def _inner_jaxprs(params: Mapping[str, Any]) -> Iterator[Any]:
    for value in params.values():
        jaxpr = getattr(value, "jaxpr", value)
        if hasattr(jaxpr, "eqns"):
            yield jaxpr
