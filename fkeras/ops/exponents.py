"""Exponentials, logarithms, roots and trigonometry, element by element."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fkeras.ops._define import binary, elementwise, float_unary, to_floats

__all__ = (
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expm1",
    "i0",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logaddexp2",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
)

exp = float_unary("exp", jnp.exp, "e ** x.")
exp2 = float_unary("exp2", jnp.exp2, "2 ** x.")
expm1 = float_unary("expm1", jnp.expm1, "e ** x - 1, exact for small x.")
log = float_unary("log", jnp.log, "The natural logarithm of x.")
log10 = float_unary("log10", jnp.log10, "The logarithm of x to base 10.")
log1p = float_unary("log1p", jnp.log1p, "log(1 + x), exact for small x.")
log2 = float_unary("log2", jnp.log2, "The logarithm of x to base 2.")
sqrt = float_unary("sqrt", jnp.sqrt, "The square root of x.")
sin = float_unary("sin", jnp.sin, "The sine of x in radians.")
cos = float_unary("cos", jnp.cos, "The cosine of x in radians.")
tan = float_unary("tan", jnp.tan, "The tangent of x in radians.")
sinh = float_unary("sinh", jnp.sinh, "The hyperbolic sine of x.")
cosh = float_unary("cosh", jnp.cosh, "The hyperbolic cosine of x.")
tanh = float_unary("tanh", jnp.tanh, "The hyperbolic tangent of x.")
arcsin = float_unary("arcsin", jnp.arcsin, "The angle whose sine is x.")
arccos = float_unary("arccos", jnp.arccos, "The angle whose cosine is x.")
arctan = float_unary("arctan", jnp.arctan, "The angle whose tangent is x.")
arcsinh = float_unary("arcsinh", jnp.arcsinh, "The number whose hyperbolic sine is x.")
arccosh = float_unary("arccosh", jnp.arccosh, "The number whose hyperbolic cosine is x.")
arctanh = float_unary("arctanh", jnp.arctanh, "The number whose hyperbolic tangent is x.")
sinc = float_unary("sinc", jnp.sinc, "sin(pi x) / (pi x), and 1 at 0.")
i0 = float_unary("i0", jnp.i0, "The modified Bessel function of the first kind, of order 0.")
logaddexp = binary(
    "logaddexp",
    lambda a, b: jnp.logaddexp(to_floats(a), to_floats(b)),
    "log(exp(x1) + exp(x2)), without overflow.",
)
logaddexp2 = binary(
    "logaddexp2",
    lambda a, b: jnp.logaddexp2(to_floats(a), to_floats(b)),
    "log2(2**x1 + 2**x2), without overflow.",
)


@elementwise
def arctan2(x1: Any, x2: Any) -> Any:
    """The angle of the point (x2, x1), from -pi to pi."""
    return jnp.arctan2(to_floats(x1), to_floats(x2))
