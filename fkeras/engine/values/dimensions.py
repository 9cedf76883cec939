"""Evaluation of symbolic sizes, which are JAX's expressions of axis names as strings ("2*d1")."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Mapping
from typing import Any

from jax import core, errors

# the supported versions of JAX define this class in jax.core or in jax.errors
_home = errors if hasattr(errors, "InconclusiveDimensionOperation") else core
#: JAX's error for a comparison of unknown sizes that may be true or false
Inconclusive: type[Exception] = getattr(_home, "InconclusiveDimensionOperation")  # noqa: B009

_BINARY = (
    (ast.Add, operator.add),
    (ast.Sub, operator.sub),
    (ast.Mult, operator.mul),
    (ast.Pow, operator.pow),
)


def _largest(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return max(a, b) if isinstance(b, int) else b.rmax(a)
    return a.max(b)


def _smallest(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return min(a, b) if isinstance(b, int) else b.rmin(a)
    return a.min(b)


#: functions in JAX's expressions; symbolic sizes have methods for `max` and `min`
_FUNCTIONS = (
    ("floordiv", operator.floordiv),
    ("mod", operator.mod),
    ("max", _largest),
    ("min", _smallest),
)
FUNCTION_NAMES = tuple(name for name, _ in _FUNCTIONS)
WORD = re.compile(r"[A-Za-z_]\w*")


def evaluate_expression(expression: str, values: Mapping[str, Any]) -> Any:
    """Computes a size from values of its axis names.

    Args:
        expression: a size as JAX prints symbolic sizes: sums, products and powers of axis names,
            `floordiv(a, b)`, `mod(a, b)`, `max(a, b)` and `min(a, b)`.
        values: for each axis name an integer, a symbolic size of `jax.export`, or an object with
            the same operators and methods.

    Raises:
        KeyError: if a name has no value.

    Example:
        >>> evaluate_expression("2*h^2 + floordiv(w, 3) - 1", {"h": 4, "w": 7})
        33
    """
    return _value(_parsed(expression), values)


@functools.lru_cache(maxsize=1024)
def _parsed(expression: str) -> ast.expr:
    # JAX has no public function that evaluates a symbolic size. With ** for ^ the expressions that
    # JAX prints are Python expressions of the same precedence.
    return ast.parse(expression.replace("^", "**"), mode="eval").body


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values)
    if isinstance(node, ast.BinOp):
        for kind, compute in _BINARY:
            if isinstance(node.op, kind):
                return compute(_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        for name, compute in _FUNCTIONS:
            if node.func.id == name:
                return compute(*(_value(argument, values) for argument in node.args))
    raise ValueError(f"expected an expression of axis names, received {ast.unparse(node)!r}")
