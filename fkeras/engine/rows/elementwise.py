"""Rows of elementwise operations, and the numbers in their padded rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fkeras.engine.rows.equation import Equation
from fkeras.engine.rows.values import MIXED, Value, rows
from fkeras.engine.values.annotations import Leaf

# the result of 0 is 0
_ZERO_AT_ZERO = frozenset(
    (
        "neg",
        "abs",
        "sign",
        "square",
        "sqrt",
        "cbrt",
        "expm1",
        "log1p",
        "sin",
        "tan",
        "asin",
        "atan",
        "sinh",
        "tanh",
        "asinh",
        "atanh",
        "erf",
        "erf_inv",
        "ceil",
        "floor",
        "round",
        "real",
        "imag",
        "conj",
    )
)
_SAME = frozenset(
    ("convert_element_type", "reduce_precision", "copy", "name", "stop_gradient", "device_put")
)
_EXACT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": operator.add,
        "add_any": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "max": max,
        "min": min,
        "neg": operator.neg,
        "eq": operator.eq,
        "ne": operator.ne,
        "lt": operator.lt,
        "le": operator.le,
        "gt": operator.gt,
        "ge": operator.ge,
    }
)


def elementwise(equation: Equation, values: Sequence[Value]) -> Value:
    """Returns the value of an elementwise operation with rows among its operands."""
    axes = {value.axis for value in values if value.is_rows}
    return rows(axes.pop(), fill_of(equation, values)) if len(axes) == 1 else MIXED


def fill_of(equation: Equation, values: Sequence[Value]) -> Leaf:
    """Returns the number in padded rows of the result, or None if it is unknown.

    The numbers in real rows are finite, or the step is not finite anyway: 0 times a number is 0.
    """
    name, fills = equation.name, [value.fill for value in values]
    if name in ("mul", "and") and 0 in fills:
        return 0
    if name == "or" and True in fills and _is_bool(equation):
        return True
    if name == "div" and fills[0] == 0:
        return 0
    if name == "select_n":
        chosen, cases = fills[0], fills[1:]
        if chosen is not None:
            return cases[int(chosen)]
        return cases[0] if len(set(cases)) == 1 else None
    if None in fills:
        return None
    if name in _SAME or (name == "not" and not _is_bool(equation)):
        return fills[0] if name in _SAME else None
    if name == "not":
        return not fills[0]
    if name in _EXACT and all(map(_is_exact, fills)):
        return _EXACT[name](*fills)
    zero = name in _ZERO_AT_ZERO or (name == "integer_pow" and equation.params["y"] > 0)
    return 0 if zero and fills[0] == 0 else None


def _is_bool(equation: Equation) -> bool:
    return equation.large.outvars[0].aval.dtype == bool


def _is_exact(number: float) -> bool:
    # other numbers would be rounded to the dtype of the program
    return math.isinf(number) or (abs(number) < 1 << 8 and number == int(number))
