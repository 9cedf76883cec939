"""Elementwise exponentials, logarithms, roots and trigonometric functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import (
    binary,
    elementwise,
    float_unary,
    to_common_floats,
)
from fkeras.nn.numerics.stable import finite_slopes

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

exp = float_unary("exp", jnp.exp, "e ** x.", "exp([0, -1]).round(2)", "[1.   0.37]")
exp2 = float_unary("exp2", jnp.exp2, "2 ** x.", "exp2([0, 1]).round(3)", "[1. 2.]")
expm1 = float_unary(
    "expm1", jnp.expm1, "e ** x - 1, exact for small x.", "expm1([0, 1]).round(3)", "[0.    1.718]"
)
log = float_unary(
    "log", jnp.log, "The natural logarithm of x.", "log([1, 2]).round(3)", "[0.    0.693]"
)
log10 = float_unary(
    "log10", jnp.log10, "The logarithm of x to base 10.", "log10([1, 100]).round(3)", "[0. 2.]"
)
log1p = float_unary(
    "log1p", jnp.log1p, "log(1 + x), exact for small x.", "log1p([0, 1]).round(3)", "[0.    0.693]"
)
log2 = float_unary(
    "log2", jnp.log2, "The logarithm of x to base 2.", "log2([1, 2]).round(3)", "[0. 1.]"
)
# `finite_slopes`: at the ends of the domain the derivative is infinite, and 0 * infinity is NaN
sqrt = float_unary(
    "sqrt", finite_slopes(jnp.sqrt), "The square root of x.", "sqrt([4, 9])", "[2. 3.]"
)
sin = float_unary(
    "sin", jnp.sin, "The sine of x in radians.", "sin([0, 1]).round(3)", "[0.    0.841]"
)
cos = float_unary(
    "cos", jnp.cos, "The cosine of x in radians.", "cos([0, 1]).round(3)", "[1.   0.54]"
)
tan = float_unary(
    "tan", jnp.tan, "The tangent of x in radians.", "tan([0, 1]).round(3)", "[0.    1.557]"
)
sinh = float_unary(
    "sinh", jnp.sinh, "The hyperbolic sine of x.", "sinh([0, 0.5]).round(3)", "[0.    0.521]"
)
cosh = float_unary(
    "cosh", jnp.cosh, "The hyperbolic cosine of x.", "cosh([0, 0.5]).round(3)", "[1.    1.128]"
)
tanh = float_unary(
    "tanh", jnp.tanh, "The hyperbolic tangent of x.", "tanh([0, 1]).round(3)", "[0.    0.762]"
)
arcsin = float_unary(
    "arcsin",
    finite_slopes(jnp.arcsin),
    "The angle whose sine is x.",
    "arcsin([0, 1]).round(1)",
    "[0.  1.6]",
)
arccos = float_unary(
    "arccos",
    finite_slopes(jnp.arccos),
    "The angle whose cosine is x.",
    "arccos([1, 0.5]).round(3)",
    "[0.    1.047]",
)
arctan = float_unary(
    "arctan",
    jnp.arctan,
    "The angle whose tangent is x.",
    "arctan([0, 1]).round(3)",
    "[0.    0.785]",
)
arcsinh = float_unary(
    "arcsinh",
    jnp.arcsinh,
    "The number whose hyperbolic sine is x.",
    "arcsinh([0, 1]).round(2)",
    "[0.   0.88]",
)
arccosh = float_unary(
    "arccosh",
    finite_slopes(jnp.arccosh),
    "The number whose hyperbolic cosine is x.",
    "arccosh([1, 2]).round(3)",
    "[0.    1.317]",
)
arctanh = float_unary(
    "arctanh",
    jnp.arctanh,
    "The number whose hyperbolic tangent is x.",
    "arctanh([0, 0.5]).round(3)",
    "[0.    0.549]",
)
sinc = float_unary(
    "sinc",
    finite_slopes(jnp.sinc),
    "sin(pi x) / (pi x), and 1 at 0.",
    "sinc([0, 0.5]).round(3)",
    "[1.    0.637]",
)
i0 = float_unary(
    "i0",
    jnp.i0,
    "The modified Bessel function of the first kind, of order 0.",
    "i0([0, 1]).round(3)",
    "[1.    1.266]",
)
logaddexp = binary(
    "logaddexp",
    lambda a, b: jnp.logaddexp(*to_common_floats(a, b)),
    "log(exp(x1) + exp(x2)), without overflow.",
    "logaddexp(1000, 1000).round(2)",
    "1000.69",
)
logaddexp2 = binary(
    "logaddexp2",
    lambda a, b: jnp.logaddexp2(*to_common_floats(a, b)),
    "log2(2**x1 + 2**x2), without overflow.",
    "logaddexp2(1000, 1000).round(2)",
    "1001.0",
)


# the derivative at (0, 0) is undefined
_arctan2 = finite_slopes(jnp.arctan2)


@elementwise
def arctan2(x1: TensorLike, x2: TensorLike) -> jax.Array:
    """Returns the angle of the point (x2, x1) in radians, from -pi to pi.

    Args:
        x1: the y coordinates, an array.
        x2: the x coordinates, an array that broadcasts with x1.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.arctan2([0, 1], [1, 1]).round(3))
        [0.    0.785]
    """
    return _arctan2(*to_common_floats(x1, x2))
