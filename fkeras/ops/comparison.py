"""Comparisons, logic, kinds of numbers and bits, element by element; `isin` and `allclose`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fkeras.engine.operation import (
    Op,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from fkeras.ops._define import elementwise, op, to_array, unary

__all__ = (
    "allclose",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "right_shift",
)

isfinite = unary("isfinite", jnp.isfinite, "Whether x is neither infinite nor NaN.")
isinf = unary("isinf", jnp.isinf, "Whether x is infinite.")
isnan = unary("isnan", jnp.isnan, "Whether x is NaN.")
isneginf = unary("isneginf", jnp.isneginf, "Whether x is minus infinity.")
isposinf = unary("isposinf", jnp.isposinf, "Whether x is plus infinity.")
isreal = unary("isreal", jnp.isreal, "Whether x has no imaginary part.")
bitwise_invert = unary("bitwise_invert", jnp.invert, "x with every bit turned.")
bitwise_not = unary("bitwise_not", jnp.invert, "x with every bit turned.")


def _of_bits(name: str, function: Any, doc: str) -> Op:
    def compute(x: Any, y: Any) -> Any:
        return function(to_array(x), to_array(y))

    compute.__doc__ = doc
    return Op(name, compute, elementwise=True)


bitwise_and = _of_bits("bitwise_and", jnp.bitwise_and, "The bits that x and y have both.")
bitwise_or = _of_bits("bitwise_or", jnp.bitwise_or, "The bits that x or y has.")
bitwise_xor = _of_bits("bitwise_xor", jnp.bitwise_xor, "The bits that one of x and y has.")
bitwise_left_shift = _of_bits("bitwise_left_shift", jnp.left_shift, "x * 2**y for integers.")
left_shift = _of_bits("left_shift", jnp.left_shift, "x * 2**y for integers.")
bitwise_right_shift = _of_bits(
    "bitwise_right_shift", jnp.right_shift, "floor(x / 2**y) for integers."
)
right_shift = _of_bits("right_shift", jnp.right_shift, "floor(x / 2**y) for integers.")


@elementwise
def isclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether |x1 - x2| <= atol + rtol * |x2|, element by element."""
    return jnp.isclose(to_array(x1), to_array(x2), rtol, atol, equal_nan)


@op
def allclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Whether |x1 - x2| <= atol + rtol * |x2| for all elements."""
    return jnp.allclose(to_array(x1), to_array(x2), rtol, atol, equal_nan)


@op
def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Which elements of x1 are among those of x2, or with `invert` are not."""
    return jnp.isin(to_array(x1), to_array(x2), assume_unique=assume_unique, invert=invert)
