"""Elementwise operations: numbers, comparisons, logic, conversions."""

from __future__ import annotations

import types
from typing import Any

import jax
import numpy as np

from fkeras.saving.onnx.graph.writer import Operand, Value
from fkeras.saving.onnx.primitives.rule import Emit, Equation, Rule

#: integers for which ONNX Runtime lacks sums and comparisons, and wider integers that it has
_WIDE = types.MappingProxyType(
    {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}
)


def is_float(dtype: Any) -> bool:
    """Returns whether a dtype is a float."""
    return bool(jax.numpy.issubdtype(np.dtype(dtype), np.floating))


def scalar(like: Any, number: float) -> np.ndarray:
    """Returns a constant of the dtype of a result."""
    return np.array(number, np.dtype(like.dtype))


def narrow(x: Operand, dims: tuple) -> Operand:
    """Returns the operand without its broadcast, for nodes that broadcast themselves."""
    return x.narrow if isinstance(x, Value) and x.narrow is not None and x.dims == dims else x


def _operands(eq: Equation) -> list[Operand]:
    """The operands without broadcasts, as long as one of them has the shape of the result."""
    dims = eq.out.dims
    narrowed = [narrow(x, dims) for x in eq.inputs]
    if any(tuple(x.shape) == dims for x in narrowed):
        return narrowed
    # two broadcasts, such as a row and a column, still make the whole shape
    shapes = [x.shape for x in narrowed if len(x.shape) == len(dims)]
    whole = [any(s[a] == dim for s in shapes) for a, dim in enumerate(dims)]
    return narrowed if shapes and all(whole) else eq.inputs


def _named(op: str) -> Emit:
    return lambda eq: eq.emit(op, *_operands(eq))


def _max(eq: Equation) -> Any:
    x, y = _operands(eq)
    for value, other in ((x, y), (y, x)):
        if isinstance(other, np.ndarray) and other.size == 1 and float(other.reshape(())) == 0:
            if is_float(eq.out.dtype) and tuple(value.shape) == eq.out.dims:
                return eq.emit("Relu", value)
    if eq.out.dtype == "bool":
        return eq.emit("Or", x, y)
    return eq.emit("Max", x, y)


def _min(eq: Equation) -> Any:
    return eq.emit("And" if eq.out.dtype == "bool" else "Min", *_operands(eq))


def _logic(boolean: str, bitwise: str) -> Emit:
    def rule(eq: Equation) -> Any:
        if eq.out.dtype == "bool":
            return eq.emit(boolean, *_operands(eq))
        eq.needs(18, "of integers has an ONNX form")
        return eq.emit(bitwise, *_operands(eq))

    return rule


def _not_equal(eq: Equation) -> Any:
    return eq.emit("Not", eq.emit("Equal", *_operands(eq)))


def _rsqrt(eq: Equation) -> Any:
    return eq.emit("Reciprocal", eq.emit("Sqrt", *eq.inputs))


def _square(eq: Equation) -> Any:
    return eq.emit("Mul", eq.inputs[0], eq.inputs[0])


def _integer_pow(eq: Equation) -> Any:
    x, exponent = eq.inputs[0], eq.params["y"]
    if exponent == 0:
        return eq.emit("Expand", scalar(eq.out, 1), eq.writer.shape(eq.out.dims))
    result = x
    for _ in range(abs(exponent) - 1):
        result = eq.emit("Mul", result, x)
    return eq.emit("Reciprocal", result) if exponent < 0 else result


def _clamp(eq: Equation) -> Any:
    low, x, high = eq.inputs
    if all(isinstance(b, np.ndarray) and b.size == 1 for b in (low, high)):
        bounds = [np.asarray(b).reshape(()) for b in (low, high)]
        return eq.emit("Clip", x, *bounds)
    return eq.emit("Min", eq.emit("Max", x, low), high)


def _select(eq: Equation) -> Any:
    choice, *cases = eq.inputs
    if len(cases) != 2:
        raise eq.error("selects among more than two arrays.", "Write nested jnp.where calls.")
    choice = eq.writer.cast(choice, "bool")
    first, second = (narrow(x, eq.out.dims) for x in cases)
    if eq.out.dtype == "uint32":
        w, wide = eq.writer, [eq.writer.cast(x, "int64") for x in (second, first)]
        return w.cast(w.emit("Where", choice, *wide, dims=eq.out.dims), "uint32")
    return eq.emit("Where", choice, second, first)


def _convert(eq: Equation) -> Any:
    x, dtype = eq.inputs[0], eq.out.dtype
    if str(x.dtype) == dtype:
        return x
    if is_float(x.dtype) and dtype == "bool":
        return eq.emit("Not", eq.emit("Equal", x, scalar(x, 0)))
    inner = narrow(x, x.shape) if isinstance(x, Value) else x
    if inner is not x:
        converted = eq.writer.cast(inner, dtype)
        return broadcast(eq, converted)
    if is_float(x.dtype) and np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize < 8:
        # numbers outside of the range become its ends, as in JAX
        limits = np.iinfo(dtype)
        w = eq.writer
        bounds = [np.array(bound, np.int64) for bound in (limits.min, limits.max)]
        x = w.emit("Clip", w.cast(x, "int64"), *bounds, dims=x.shape)
    return eq.emit("Cast", x, to=dtype)


def broadcast(eq: Equation, small: Operand) -> Value:
    """Returns a value with the shape of the result, which only nodes that need it compute."""
    return Value("", eq.out.dims, eq.out.dtype, small)


def _expm1(eq: Equation) -> Any:
    return eq.emit("Sub", eq.emit("Exp", *eq.inputs), scalar(eq.out, 1))


def _log1p(eq: Equation) -> Any:
    return eq.emit("Log", eq.emit("Add", eq.inputs[0], scalar(eq.out, 1)))


def _erfc(eq: Equation) -> Any:
    return eq.emit("Sub", scalar(eq.out, 1), eq.emit("Erf", *eq.inputs))


def _finite(eq: Equation) -> Any:
    x = eq.inputs[0]
    return eq.emit("Not", eq.emit("Or", eq.emit("IsNaN", x), eq.emit("IsInf", x)))


def _remainder(eq: Equation) -> Any:
    # the sign of the dividend, as in C
    x, y = eq.inputs
    if is_float(eq.out.dtype):
        return eq.emit("Mod", x, y, fmod=1)
    is_zero, safe = _divisor(eq, y)
    rest = eq.emit("Mod", x, safe, fmod=1)
    return rest if is_zero is None else eq.emit("Where", is_zero, x, rest)


def _divisor(eq: Equation, y: Operand) -> tuple[Value | None, Operand]:
    """Returns where a divisor of integers is 0, and the divisor with 1 there.

    ONNX Runtime stops at a division by 0, also in elements that the program does not use.
    """
    if isinstance(y, np.ndarray) and np.all(y != 0):
        return None, y
    w = eq.writer
    is_zero = w.emit("Equal", y, scalar(eq.out, 0), dims=y.shape, dtype="bool")
    return is_zero, w.emit("Where", is_zero, scalar(eq.out, 1), y, dims=y.shape, dtype=eq.out.dtype)


def _round(eq: Equation) -> Any:
    x = eq.inputs[0]
    if int(eq.params["rounding_method"]) == 1:
        return eq.emit("Round", x)
    half = eq.emit("Floor", eq.emit("Add", eq.emit("Abs", x), scalar(eq.out, 0.5)))
    return eq.emit("Mul", eq.emit("Sign", x), half)


def _divide(eq: Equation) -> Any:
    x, y = _operands(eq)
    if is_float(eq.out.dtype):
        return eq.emit("Div", x, y)
    is_zero, safe = _divisor(eq, y)
    quotient = eq.emit("Div", x, safe)
    return quotient if is_zero is None else eq.emit("Where", is_zero, scalar(eq.out, -1), quotient)


def _shift(direction: str) -> Emit:
    def rule(eq: Equation) -> Any:
        x, n = eq.inputs
        if str(x.dtype).startswith("uint"):
            return eq.emit("BitShift", x, n, direction=direction)
        if isinstance(n, np.ndarray):
            # shifts of signed integers are products and quotients, rounded down
            factor = np.asarray(2 ** np.asarray(n, "int64"))
            if direction == "LEFT":
                return _as(eq, "Mul", x, factor.astype(eq.out.dtype))
            if eq.name == "shift_right_arithmetic":
                wide, divisor = eq.writer.cast(x, "int64"), factor
                rest = eq.writer.emit("Mod", wide, divisor, dims=eq.out.dims)
                even = eq.writer.emit("Sub", wide, rest, dims=eq.out.dims)
                quotient = eq.writer.emit("Div", even, divisor, dims=eq.out.dims)
                return eq.writer.cast(quotient, eq.out.dtype)
        raise eq.error("of signed integers has no ONNX form.", "Use unsigned integers.")

    return rule


def _as(eq: Equation, op: str, x: Operand, y: Operand) -> Any:
    """Computes an operation of small integers in wider ones, which wrap around like small integers."""
    wide = [eq.writer.cast(operand, _WIDE.get(eq.out.dtype, "int32")) for operand in (x, y)]
    return eq.writer.cast(eq.writer.emit(op, *wide, dims=eq.out.dims), eq.out.dtype)


def _comparison(op: str) -> Emit:
    def rule(eq: Equation) -> Any:
        operands = _operands(eq)
        wide = _WIDE.get(str(operands[0].dtype))
        if wide is not None and op != "Equal":
            operands = [eq.writer.cast(operand, wide) for operand in operands]
        return eq.emit(op, *operands)

    return rule


def _arithmetic(op: str) -> Emit:
    def rule(eq: Equation) -> Any:
        x, y = _operands(eq)
        # ONNX Runtime computes sums and products of these integers only
        if eq.out.dtype in _WIDE:
            return _as(eq, op, x, y)
        return eq.emit(op, x, y)

    return rule


def _atan2(eq: Equation) -> Any:
    y, x = eq.inputs
    pi, zero = scalar(eq.out, np.pi), scalar(eq.out, 0)
    angle = eq.emit("Atan", eq.emit("Div", y, x))
    w, dims = eq.writer, eq.out.dims
    below = w.emit("Less", y, zero, dims=dims, dtype="bool")
    turn = eq.emit("Where", below, scalar(eq.out, -np.pi), pi)
    left = w.emit("Less", x, zero, dims=dims, dtype="bool")
    full = eq.emit("Where", left, eq.emit("Add", angle, turn), angle)
    both = w.emit(
        "And",
        w.emit("Equal", x, zero, dims=dims, dtype="bool"),
        w.emit("Equal", y, zero, dims=dims, dtype="bool"),
        dims=dims,
        dtype="bool",
    )
    return eq.emit("Where", both, zero, full)


def _same(eq: Equation) -> Any:
    return list(eq.inputs)


def _cbrt(eq: Equation) -> Any:
    x = eq.inputs[0]
    root = eq.emit("Pow", eq.emit("Abs", x), scalar(eq.out, 1 / 3))
    return eq.emit("Mul", eq.emit("Sign", x), root)


def _exp2(eq: Equation) -> Any:
    return eq.emit("Pow", scalar(eq.out, 2), eq.inputs[0])


_NAMED: types.MappingProxyType[str, str] = types.MappingProxyType(
    {
        "neg": "Neg",
        "exp": "Exp",
        "log": "Log",
        "tanh": "Tanh",
        "sqrt": "Sqrt",
        "logistic": "Sigmoid",
        "sin": "Sin",
        "cos": "Cos",
        "tan": "Tan",
        "asin": "Asin",
        "acos": "Acos",
        "atan": "Atan",
        "sinh": "Sinh",
        "cosh": "Cosh",
        "asinh": "Asinh",
        "acosh": "Acosh",
        "atanh": "Atanh",
        "floor": "Floor",
        "ceil": "Ceil",
        "sign": "Sign",
        "erf": "Erf",
        "pow": "Pow",
    }
)
_COMPARED: types.MappingProxyType[str, str] = types.MappingProxyType(
    {
        "eq": "Equal",
        "lt": "Less",
        "le": "LessOrEqual",
        "lt_to": "Less",
        "gt": "Greater",
        "ge": "GreaterOrEqual",
        "le_to": "LessOrEqual",
    }
)

RULES: types.MappingProxyType[str, Rule] = types.MappingProxyType(
    {
        **{name: Rule(_named(op)) for name, op in _NAMED.items()},
        **{name: Rule(_comparison(op)) for name, op in _COMPARED.items()},
        **dict.fromkeys(("stop_gradient", "copy", "optimization_barrier"), Rule(_same)),
        "add": Rule(_arithmetic("Add")),
        "add_any": Rule(_arithmetic("Add")),
        "sub": Rule(_arithmetic("Sub")),
        "mul": Rule(_arithmetic("Mul")),
        "div": Rule(_divide),
        "rem": Rule(_remainder),
        "max": Rule(_max),
        "min": Rule(_min),
        "and": Rule(_logic("And", "BitwiseAnd")),
        "or": Rule(_logic("Or", "BitwiseOr")),
        "xor": Rule(_logic("Xor", "BitwiseXor")),
        "not": Rule(
            lambda eq: eq.emit("Not" if eq.out.dtype == "bool" else "BitwiseNot", *eq.inputs)
        ),
        "ne": Rule(_not_equal),
        "rsqrt": Rule(_rsqrt),
        "square": Rule(_square),
        "integer_pow": Rule(_integer_pow, "y"),
        "clamp": Rule(_clamp),
        "select_n": Rule(_select),
        "convert_element_type": Rule(_convert, "new_dtype"),
        "expm1": Rule(_expm1),
        "log1p": Rule(_log1p),
        "erfc": Rule(_erfc),
        "is_finite": Rule(_finite),
        "round": Rule(_round, "rounding_method"),
        "atan2": Rule(_atan2),
        "cbrt": Rule(_cbrt),
        "exp2": Rule(_exp2),
        "shift_left": Rule(_shift("LEFT")),
        "shift_right_logical": Rule(_shift("RIGHT")),
        "shift_right_arithmetic": Rule(_shift("RIGHT")),
    }
)
