"""Arithmetic, rounding and parts of numbers, element by element."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from fkeras.engine.operation import (
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
from fkeras.ops._define import binary, elementwise, float_unary, to_array, to_floats, unary

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

abs = absolute
divide = binary("divide", jnp.true_divide, "x1 / x2, element by element.")
fmod = binary("fmod", jnp.fmod, "The remainder of x1 / x2, with the sign of x1.")
maximum = binary("maximum", jnp.maximum, "The larger of x1 and x2; NaN where one is NaN.")
minimum = binary("minimum", jnp.minimum, "The smaller of x1 and x2; NaN where one is NaN.")
fmax = binary("fmax", jnp.fmax, "The larger of x1 and x2; the other where one is NaN.")
fmin = binary("fmin", jnp.fmin, "The smaller of x1 and x2; the other where one is NaN.")
gcd = binary("gcd", jnp.gcd, "The greatest common divisor of integers.")
lcm = binary("lcm", jnp.lcm, "The least common multiple of integers.")
hypot = binary("hypot", jnp.hypot, "sqrt(x1**2 + x2**2), without overflow.")
heaviside = binary("heaviside", jnp.heaviside, "0 where x1 < 0, 1 where x1 > 0, x2 between.")
nextafter = binary("nextafter", jnp.nextafter, "The number after x1 on the way to x2.")
ldexp = binary("ldexp", jnp.ldexp, "x1 * 2**x2 for integers x2.")

square = unary("square", jnp.square, "x * x.")
sign = unary("sign", jnp.sign, "-1, 0 or 1, as x is negative, zero or positive.")
signbit = unary("signbit", jnp.signbit, "Whether the sign bit of x is set, as for -0.0.")
reciprocal = unary("reciprocal", jnp.reciprocal, "1 / x.")
cbrt = unary("cbrt", jnp.cbrt, "The cube root of x.")
copy = unary("copy", jnp.array, "x itself; arrays never change, so nothing else is needed.")
real = unary("real", jnp.real, "The real part of x.")
imag = unary("imag", jnp.imag, "The imaginary part of x.")
conjugate = unary("conjugate", jnp.conjugate, "x with the sign of its imaginary part changed.")
conj = unary("conj", jnp.conjugate, "x with the sign of its imaginary part changed.")
deg2rad = unary("deg2rad", jnp.deg2rad, "Degrees as radians, x * pi / 180.")
rad2deg = unary("rad2deg", jnp.rad2deg, "Radians as degrees, x * 180 / pi.")
angle = float_unary("angle", jnp.angle, "The angle of a complex number in radians.")
ceil = float_unary("ceil", jnp.ceil, "The least integer that is not below x, as a float.")
floor = float_unary("floor", jnp.floor, "The greatest integer that is not above x, as a float.")


@elementwise
def fabs(x: Any) -> Any:
    """|x| of real numbers, as floats."""
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise TypeError(
            f"fabs: expected real numbers, received {x.dtype}. Take fk.ops.absolute(x), which "
            "gives the length of complex numbers."
        )
    return jnp.abs(to_floats(x))


@elementwise
def trunc(x: Any) -> Any:
    """x without its fraction; integers stay as they are."""
    x = jnp.asarray(x)
    return jnp.trunc(x) if jnp.issubdtype(x.dtype, jnp.inexact) else x


@elementwise
def round(x: Any, decimals: int = 0) -> Any:
    """x to a number of decimals, halves to the even neighbour.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.round([0.5, 1.5, 2.25], 0)
        Array([0., 2., 2.], dtype=float32)
    """
    x = jnp.asarray(x)
    if decimals < 0 and not jnp.issubdtype(x.dtype, jnp.inexact):
        return (jnp.round(to_floats(x) * 10.0**decimals) / 10.0**decimals).astype(x.dtype)
    return jnp.round(x, decimals)


@elementwise
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """x, at least x_min and at most x_max."""
    x = jnp.asarray(x)
    x = x.astype("int32") if x.dtype == bool else x
    return jnp.clip(x, to_array(x_min), to_array(x_max))


@elementwise
def divide_no_nan(x1: Any, x2: Any) -> Any:
    """x1 / x2, and 0 where x2 is 0; gradients are finite there too."""
    x1, x2 = to_array(x1), to_array(x2)
    zero = jnp.equal(x2, 0)
    return jnp.where(zero, 0, jnp.true_divide(x1, jnp.where(zero, 1, x2)))


@elementwise
def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """x with numbers for NaN and the infinities; None means the largest and the least number."""
    return jnp.nan_to_num(to_array(x), nan=nan, posinf=posinf, neginf=neginf)
