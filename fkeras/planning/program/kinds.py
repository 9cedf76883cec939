"""Kinds of JAX's primitives: how a compiler executes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

_SAME = (
    *("reshape", "squeeze", "expand_dims", "copy", "stop_gradient", "copy_p", "name"),
    *("sharding_constraint", "device_put", "random_wrap", "random_unwrap", "pvary", "pcast"),
    *("mesh_cast", "reshard", "layout_constraint", "bitcast_convert_type"),
)
_CHEAP = frozenset(
    {
        *("add", "sub", "mul", "max", "min", "neg", "abs", "sign", "floor", "ceil", "round"),
        *("is_finite", "square", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not"),
        *("select_n", "clamp", "convert_element_type", "reduce_precision", "add_any"),
        *("shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count"),
        *("clz", "real", "imag", "complex", "conj", "integer_pow"),
    }
)
_EXPENSIVE = frozenset(
    {
        *("div", "rem", "exp", "exp2", "log", "log1p", "expm1", "tanh", "sin", "cos", "tan"),
        *("sqrt", "rsqrt", "cbrt", "pow", "atan2", "erf", "logistic", "erf_inv", "erfc", "sinh"),
        *("cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "lgamma", "digamma"),
        *("nextafter", "random_fold_in", "random_seed", "random_split", "random_clone"),
    }
)
_MOVES = frozenset(
    {
        *("transpose", "slice", "dynamic_slice", "concatenate", "pad", "rev", "split"),
        *("dynamic_update_slice", "gather", "tile", "unstack", "stack"),
    }
)
_REDUCTIONS = frozenset(
    {
        *("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"),
        *("reduce_xor", "argmax", "argmin"),
    }
)

# elementwise operations without parameters that change their results
_PLAIN = frozenset({"neg", "exp", "square", "mul", "add", "sub"})


def same_array(equation: Any) -> bool:
    """Returns whether an operation returns the memory of its first input."""
    name = equation.primitive.name
    if name == "convert_element_type":
        return equation.invars[0].aval.dtype == equation.params["new_dtype"]
    if name == "transpose":
        # only axes of size 1 change their places
        shape = equation.invars[0].aval.shape
        moved = [axis for axis in equation.params["permutation"] if shape[axis] != 1]
        return moved == sorted(moved)
    if name == "broadcast_in_dim":
        return equation.invars[0].aval.size == equation.outvars[0].aval.size
    return name in _SAME


def is_floating(dtype: Any) -> bool:
    """Returns whether a dtype is a floating-point type; a PRNG key is none."""
    return jnp.issubdtype(dtype, np.floating)


def is_half(dtype: Any) -> bool:
    """Returns whether a dtype is a floating-point type of two bytes."""
    return is_floating(dtype) and np.dtype(dtype).itemsize == 2


def kind_of(equation: Any, backend: str) -> tuple[str, bool]:
    """Returns `(kind, expensive)` of an equation; see `Operation`."""
    name = equation.primitive.name
    if name in _CHEAP:
        # CPUs compute in float32, and rounding each result to two bytes takes several instructions
        rounds = backend == "cpu" and name != "select_n" and is_half(equation.outvars[0].aval.dtype)
        return "elementwise", rounds
    if name in _EXPENSIVE:
        return "elementwise", True
    if name in ("broadcast_in_dim", "iota", "broadcast"):
        return "broadcast", False
    if name in _MOVES:
        return "move", name == "gather"
    if name in _REDUCTIONS:
        return "reduce", True
    return "call", True


def equation_key(equation: Any, inputs: Sequence[int | None]) -> Any:
    """Returns a key of equal operations, or None for operations that are not compared."""
    parts: list[Any] = []
    for variable, number in zip(equation.invars, inputs, strict=True):
        if number is None:
            if not isinstance(variable, Literal) or getattr(variable.val, "ndim", 0):
                return None
            parts.append(("literal", str(variable.val)))
        else:
            parts.append(number)
    name, aval = equation.primitive.name, equation.outvars[0].aval
    params: tuple = ()
    if name not in _PLAIN:
        params = tuple((each, str(value)) for each, value in equation.params.items())
    return name, aval.shape, str(aval.dtype), params, tuple(parts)
