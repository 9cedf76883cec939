"""Elementwise arithmetic, rounding, and parts of complex numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import (
    binary,
    elementwise,
    float_unary,
    to_array,
    to_common_floats,
    to_floats,
    unary,
)
from fkeras.engine.symbolic.operators import (
    absolute,
    add,
    floor_divide,
    mod,
    multiply,
    negative,
    power,
    subtract,
    true_divide,
)
from fkeras.engine.values.argument_types import Number
from fkeras.nn.numerics import slopes
from fkeras.nn.numerics.stable import finite_slopes, scale_by_power

__all__ = (
    "abs",
    "absolute",
    "add",
    "angle",
    "cbrt",
    "ceil",
    "clip",
    "conj",
    "conjugate",
    "copy",
    "deg2rad",
    "divide",
    "divide_no_nan",
    "fabs",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "heaviside",
    "hypot",
    "imag",
    "lcm",
    "ldexp",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "nan_to_num",
    "negative",
    "nextafter",
    "power",
    "rad2deg",
    "real",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "square",
    "subtract",
    "true_divide",
    "trunc",
)

# derivatives that are infinite at 0 become 0: times a gradient of 0 they would give NaN
_cbrt, _hypot = finite_slopes(jnp.cbrt), finite_slopes(jnp.hypot)
_arctan2 = finite_slopes(jnp.arctan2)


# not `jnp.angle`, whose gradient at 0 is NaN
def _angle(x: jax.Array) -> jax.Array:
    return _arctan2(jnp.imag(x), jnp.real(x))


# shadows the builtin in this module, since `keras.ops` has both names
abs = absolute
divide = binary(
    "divide", slopes.divide, "x1 / x2, element by element.", "divide([1, 2], 4)", "[0.25 0.5 ]"
)
fmod = binary(
    "fmod",
    jnp.fmod,
    "The remainder of x1 / x2, with the sign of x1.",
    "fmod([-7, 7], 3)",
    "[-1  1]",
)
maximum = binary(
    "maximum",
    jnp.maximum,
    "The larger of x1 and x2; NaN where one is NaN.",
    "maximum([1, 5], 3)",
    "[3 5]",
)
minimum = binary(
    "minimum",
    jnp.minimum,
    "The smaller of x1 and x2; NaN where one is NaN.",
    "minimum([1, 5], 3)",
    "[1 3]",
)
fmax = binary(
    "fmax",
    jnp.fmax,
    "The larger of x1 and x2; the other where one is NaN.",
    'fmax([1.0, float("nan")], 3.0)',
    "[3. 3.]",
)
fmin = binary(
    "fmin",
    jnp.fmin,
    "The smaller of x1 and x2; the other where one is NaN.",
    'fmin([5.0, float("nan")], 3.0)',
    "[3. 3.]",
)
gcd = binary("gcd", jnp.gcd, "The greatest common divisor of integers.", "gcd(12, 18)", "6")
lcm = binary("lcm", jnp.lcm, "The least common multiple of integers.", "lcm(4, 6)", "12")
hypot = binary(
    "hypot",
    lambda a, b: _hypot(*to_common_floats(a, b)),
    "sqrt(x1**2 + x2**2), without overflow.",
    "hypot(3.0, 4.0)",
    "5.0",
)
heaviside = binary(
    "heaviside",
    jnp.heaviside,
    "0 where x1 < 0, 1 where x1 > 0, x2 between.",
    "heaviside([-2.0, 0.0, 2.0], 0.5)",
    "[0.  0.5 1. ]",
)
nextafter = binary(
    "nextafter",
    jnp.nextafter,
    "The next representable number after x1 towards x2.",
    "nextafter(1.0, 2.0) - 1",
    "1.1920929e-07",
)
ldexp = binary("ldexp", scale_by_power, "x1 * 2**x2 for integers x2.", "ldexp(3.0, 2)", "12.0")

square = unary("square", jnp.square, "x * x.", "square([2, -3])", "[4 9]")
sign = unary(
    "sign",
    jnp.sign,
    "-1, 0 or 1, as x is negative, zero or positive.",
    "sign([-2, 0, 5])",
    "[-1  0  1]",
)
signbit = unary(
    "signbit",
    jnp.signbit,
    "Whether the sign bit of x is set, as for -0.0.",
    "signbit([-0.0, 0.0])",
    "[ True False]",
)
reciprocal = unary("reciprocal", jnp.reciprocal, "1 / x.", "reciprocal([2.0, 4.0])", "[0.5  0.25]")
cbrt = unary(
    "cbrt", lambda x: _cbrt(to_floats(x)), "The cube root of x.", "cbrt(8.0).round(3)", "2.0"
)
copy = unary(
    "copy",
    jnp.array,
    "x itself; arrays never change, so nothing else is needed.",
    "copy([1, 2])",
    "[1 2]",
)
real = unary("real", jnp.real, "The real part of x.", "real(1 + 2j)", "1.0")
imag = unary("imag", jnp.imag, "The imaginary part of x.", "imag(1 + 2j)", "2.0")
conjugate = unary(
    "conjugate",
    jnp.conjugate,
    "The complex conjugate of x.",
    "conjugate(1 + 2j)",
    "(1-2j)",
)
# a second operation instead of an alias: the name of an operation is stored in files
conj = unary(
    "conj",
    jnp.conjugate,
    "The complex conjugate of x.",
    "conj(1 + 2j)",
    "(1-2j)",
)
deg2rad = unary(
    "deg2rad", jnp.deg2rad, "Degrees as radians, x * pi / 180.", "deg2rad(45.0).round(3)", "0.785"
)
rad2deg = unary(
    "rad2deg", jnp.rad2deg, "Radians as degrees, x * 180 / pi.", "rad2deg(3.1416).round(2)", "180.0"
)
angle = float_unary(
    "angle",
    _angle,
    "The angle of a complex number in radians, 0 for 0, where the gradient is 0 too.",
    "angle(1 + 1j).round(3)",
    "0.785",
)
ceil = float_unary(
    "ceil",
    jnp.ceil,
    "The smallest integer not below x, as a float.",
    "ceil([1.2, -1.2])",
    "[ 2. -1.]",
)
floor = float_unary(
    "floor",
    jnp.floor,
    "The largest integer not above x, as a float.",
    "floor([1.2, -1.2])",
    "[ 1. -2.]",
)


@elementwise
def fabs(x: TensorLike) -> jax.Array:
    """Returns |x| of real numbers, as floats.

    Raises:
        TypeError: if x is complex.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.fabs([-1, 2]))
        [1. 2.]
    """
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise TypeError(
            f"fabs: expected real numbers, received {x.dtype}. For complex numbers use "
            "fk.ops.absolute(x)."
        )
    return jnp.abs(to_floats(x))


@elementwise
def trunc(x: TensorLike) -> jax.Array:
    """Returns x truncated towards 0; integers are unchanged.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.trunc([-1.7, 1.7]))
        [-1.  1.]
    """
    x = jnp.asarray(x)
    return jnp.trunc(x) if jnp.issubdtype(x.dtype, jnp.inexact) else x


@elementwise
def round(x: TensorLike, decimals: int = 0) -> jax.Array:
    """Returns x rounded to a number of decimals; halves round to the even neighbour.

    Args:
        decimals: number of decimals; -1 rounds to tens.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.round([0.5, 1.5, 2.25], 0)
        Array([0., 2., 2.], dtype=float32)
    """
    x = jnp.asarray(x)
    # `jnp.round` does not support integers with negative decimals
    if decimals < 0 and not jnp.issubdtype(x.dtype, jnp.inexact):
        return (jnp.round(to_floats(x) * 10.0**decimals) / 10.0**decimals).astype(x.dtype)
    return jnp.round(x, decimals)


@elementwise
def clip(x: TensorLike, x_min: TensorLike, x_max: TensorLike) -> jax.Array:
    """Returns x clipped to [x_min, x_max].

    Args:
        x_min: lower bound, a number or an array that broadcasts with x.
        x_max: upper bound, a number or an array that broadcasts with x.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.clip([-1, 5, 12], 0, 10))
        [ 0  5 10]
    """
    x = jnp.asarray(x)
    # as in Keras, booleans count as the integers 0 and 1
    x = x.astype("int32") if x.dtype == bool else x
    return jnp.clip(x, to_array(x_min), to_array(x_max))


@elementwise
def divide_no_nan(x1: TensorLike, x2: TensorLike) -> jax.Array:
    """Returns x1 / x2, and 0 with finite gradients where x2 is 0.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.divide_no_nan([1.0, 2.0], [0.0, 4.0]))
        [0.  0.5]
    """
    x1, x2 = to_array(x1), to_array(x2)
    # replace the divisor before the division, so that the unused branch has finite gradients
    zero = jnp.equal(x2, 0)
    return jnp.where(zero, 0, slopes.divide(x1, jnp.where(zero, 1, x2)))


@elementwise
def nan_to_num(
    x: TensorLike,
    nan: Number = 0.0,
    posinf: Number | None = None,
    neginf: Number | None = None,
) -> jax.Array:
    """Returns x with NaN and infinities replaced by finite numbers.

    Args:
        nan: replacement for NaN.
        posinf: replacement for infinity; None for the largest number of the dtype.
        neginf: replacement for -infinity; None for the lowest number of the dtype.

    Example:
        >>> import fkeras as fk
        >>> print(fk.ops.nan_to_num([1.0, float("nan"), float("inf")], posinf=9.0))
        [1. 0. 9.]
    """
    return jnp.nan_to_num(to_array(x), nan=nan, posinf=posinf, neginf=neginf)
