"""Follows rows through programs: which results of a padded batch equal those of its real rows.

Layers compute most results row by row: a padded row changes no real row. A mean over the batch mixes
all rows; a sum over rows whose padded rows are 0 does not. The rule of each primitive says which of
these holds. A primitive without a rule mixes its rows, so a wrong answer is never "equal".

Both programs are followed side by side, because a program may also use the number of its rows: the
constants of `x / x.shape[0]` differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fkeras.engine.rows.elementwise import ELEMENTWISE, elementwise, fill_of
from fkeras.engine.rows.equation import Equation
from fkeras.engine.rows.moves import MOVES, SOURCES
from fkeras.engine.rows.reductions import REDUCTIONS
from fkeras.engine.rows.values import MIXED, WHOLE, Value, joined
from fkeras.engine.values.annotations import ClosedJaxpr, Leaf, Tree

_RULES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {**dict.fromkeys(ELEMENTWISE, elementwise), **MOVES, **REDUCTIONS}
)
# primitives that call one program, which is a parameter of one of these names
_CALLS = frozenset(
    (
        "jit",
        "pjit",
        "closed_call",
        "core_call",
        "checkpoint",
        "remat",
        "remat2",
        "custom_jvp_call",
        "custom_vjp_call",
        "custom_vjp_call_jaxpr",
        "platform_form",
        "platform_kernel",
    )
)
_PROGRAMS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class _DifferentError(Exception):
    """The programs consist of different operations."""


@dataclasses.dataclass
class RowProgram:
    """Values of the arrays in the programs of a padded batch and of its real rows.

    Args:
        ordered: whether padded rows come after all real rows.

    Attributes:
        custom_gradients: whether rows reach a function whose gradient the user defines.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from fkeras.engine.rows.values import rows
        >>> def centered(x): return x - jnp.mean(x, 0), jnp.tanh(x)
        >>> large, small = (jax.make_jaxpr(centered)(jnp.ones((n, 3))) for n in (8, 5))
        >>> [value.kind for value in RowProgram().results(large, small, [rows(0)])]
        ['mixed', 'rows']
    """

    ordered: bool = True
    custom_gradients: bool = False

    def results(self, large: Tree, small: Tree, values: Sequence[Value]) -> list[Value]:
        """Returns the values of the outputs.

        Args:
            small: the closed jaxpr of the real rows; `large` if the program of the real rows cannot
                be traced.
        """
        try:
            return self._run(large, small, values)
        except _DifferentError:
            return [MIXED] * len(large.jaxpr.outvars)

    def _run(self, large: Tree, small: Tree, values: Sequence[Value]) -> list[Value]:
        (jaxpr, consts), (other, other_consts) = _opened(large), _opened(small)
        same = len(jaxpr.eqns) == len(other.eqns) and len(consts) == len(other_consts)
        if not same or len(jaxpr.outvars) != len(other.outvars):
            raise _DifferentError
        known = dict(zip(jaxpr.invars, values, strict=True))
        for variable, a, b in zip(jaxpr.constvars, consts, other_consts, strict=True):
            known[variable] = _constant(a, b)

        def read(atom: Any, other_atom: Any) -> Value:
            # only a literal has an attribute `val`
            if hasattr(atom, "val") and hasattr(other_atom, "val"):
                return _constant(atom.val, other_atom.val)
            return MIXED if hasattr(atom, "val") else known[atom]

        for pair in zip(jaxpr.eqns, other.eqns, strict=True):
            equation = Equation(*pair, ordered=self.ordered)
            if pair[0].primitive.name != pair[1].primitive.name:
                raise _DifferentError
            atoms = zip(pair[0].invars, pair[1].invars, strict=True)
            found = self._apply(equation, [read(*atom) for atom in atoms])
            known.update(zip(pair[0].outvars, found, strict=True))
        return [read(*atom) for atom in zip(jaxpr.outvars, other.outvars, strict=True)]

    def _apply(self, equation: Equation, values: list[Value]) -> list[Value]:
        name = equation.name
        if name in _CALLS:
            self.custom_gradients |= "vjp" in name and any(not v.is_whole for v in values)
            return self._run(*_inner(equation), values)
        if name in ("scan", "while", "cond"):
            return {"scan": self._scan, "while": self._while, "cond": self._cond}[name](
                equation, values
            )
        count = len(equation.large.outvars)
        if any(value == MIXED for value in values):
            return [MIXED] * count
        if any(value.is_rows for value in values):
            found = _RULES[name](equation, values) if name in _RULES else MIXED
        elif equation.same_params() and all(a == b for a, b in equation.results):
            found = dataclasses.replace(WHOLE, fill=_fill(equation, values))
        else:
            found = SOURCES[name](equation, values) if name in SOURCES else MIXED
        found = found if isinstance(found, list) else [found] * count
        return [_checked(v, equation, number) for number, v in enumerate(found)]

    def _cond(self, equation: Equation, values: list[Value]) -> list[Value]:
        index, *arguments = values
        if not index.is_whole:
            return [MIXED] * len(equation.results)
        branches = zip(equation.params["branches"], equation.small.params["branches"], strict=True)
        results = [self._run(*branch, arguments) for branch in branches]
        return [_all_joined(group) for group in zip(*results, strict=True)]

    def _while(self, equation: Equation, values: list[Value]) -> list[Value]:
        large, small = equation.params, equation.small.params
        first, second = large["cond_nconsts"], large["body_nconsts"]
        condition_constants, constants = values[:first], values[first : first + second]

        def body(carry: list[Value]) -> list[Value]:
            return self._run(large["body_jaxpr"], small["body_jaxpr"], [*constants, *carry])

        carry, _ = _fixed_point(body, values[first + second :])
        (again,) = self._run(
            large["cond_jaxpr"], small["cond_jaxpr"], [*condition_constants, *carry]
        )
        return carry if again.is_whole else [MIXED] * len(carry)

    def _scan(self, equation: Equation, values: list[Value]) -> list[Value]:
        large, small = equation.params, equation.small.params
        first, second = large["num_consts"], large["num_carry"]
        constants, carry, slices = values[:first], values[first : first + second], []
        for value in values[first + second :]:
            if value.is_rows and value.axis == 0:
                return [MIXED] * len(equation.results)
            slices.append(value.moved(value.axis - 1) if value.is_rows else value)

        def body(carry: list[Value]) -> list[Value]:
            return self._run(large["jaxpr"], small["jaxpr"], [*constants, *carry, *slices])

        if (large["length"], large["reverse"]) != (small["length"], small["reverse"]):
            return [MIXED] * len(equation.results)
        carry, outputs = _fixed_point(body, carry)
        stacked = [v.moved(v.axis + 1) if v.is_rows else v for v in outputs[second:]]
        return [*carry, *stacked]


def _fixed_point(
    body: Callable[[list[Value]], list[Value]], carry: list[Value]
) -> tuple[list[Value], list[Value]]:
    """Returns `(carry, outputs)`: values that hold in every step of a loop, and those of its outputs."""
    while True:
        outputs = body(carry)
        new = [joined(*pair) for pair in zip(carry, outputs[: len(carry)], strict=True)]
        if new == carry:
            return carry, outputs
        carry = new


def _all_joined(values: Sequence[Value]) -> Value:
    first, *rest = values
    for value in rest:
        first = joined(first, value)
    return first


def _opened(program: ClosedJaxpr) -> tuple[Any, Sequence[Any]]:
    return (program.jaxpr, program.consts) if hasattr(program, "consts") else (program, ())


def _inner(equation: Equation) -> tuple[Any, Any]:
    name = next(name for name in _PROGRAMS if name in equation.params)
    return equation.params[name], equation.small.params[name]


def _fill(equation: Equation, values: list[Value]) -> Leaf:
    if equation.name in ("broadcast_in_dim", "reshape", "squeeze"):
        return values[0].fill
    return fill_of(equation, values) if values and equation.name in ELEMENTWISE else None


def _checked(value: Value, equation: Equation, number: int) -> Value:
    """Returns the value of a result if the shapes of both programs agree with it, else `MIXED`."""
    large, small = equation.results[number]
    if len(large) != len(small):
        return MIXED
    pairs = enumerate(zip(large, small, strict=True))
    differing = [axis for axis, sizes in pairs if sizes[0] != sizes[1]]
    expected = [value.axis] if value.is_rows and not equation.single else []
    return value if differing == expected else MIXED


def _constant(large: Tree, small: Tree) -> Value:
    """Returns the value of a constant of both programs."""
    if large is small and np.shape(large):
        return WHOLE
    try:
        large, small = np.asarray(large), np.asarray(small)
    except TypeError:  # keys have no NumPy form
        return WHOLE if large is small else MIXED
    is_float = large.dtype.kind in "fc"
    if large.dtype != small.dtype or not np.array_equal(large, small, equal_nan=is_float):
        return MIXED
    is_number = large.size == 1 and large.dtype.kind in "biuf"
    return Value("whole", fill=large.item() if is_number else None)
