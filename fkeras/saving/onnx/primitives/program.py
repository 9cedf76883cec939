"""Emits the nodes of a program that JAX traced, operation by operation."""

from __future__ import annotations

import dataclasses
import math
import types
from typing import Any

import jax
import numpy as np

from fkeras.engine import FKerasError, Spec, as_spec
from fkeras.programs.walk import called, follow, needed
from fkeras.saving.onnx.graph.writer import Operand, Value, Writer
from fkeras.saving.onnx.primitives import (
    control,
    elementwise,
    indexing,
    products,
    reductions,
    shapes,
)
from fkeras.saving.onnx.primitives.elementwise import broadcast, is_float
from fkeras.saving.onnx.primitives.rule import Equation, Rule

RULES: types.MappingProxyType[str, Rule] = types.MappingProxyType(
    {
        **elementwise.RULES,
        **shapes.RULES,
        **reductions.RULES,
        **products.RULES,
        **indexing.RULES,
        **control.RULES,
    }
)
# operations whose constants are not computed: loops, choices, and the sizes of unknown axes
_NOT_NOW = frozenset({"scan", "while", "cond", "platform_index", "dim_as_value"})
# operations of complex numbers, which ONNX Runtime does not have
_OF_COMPLEX = frozenset({"real", "imag", "abs"})
# a computed constant may be larger than its operands by this factor, or have this many elements
_GROWTH, _SMALL = 4, 4096
# the most elements of a small constant of bytes
_CODES = 16


def run(writer: Writer, program: Any, operands: list[Operand]) -> list[Operand]:
    """Emits the nodes of a program and returns its results.

    Args:
        program: a jaxpr, with or without its constants.
        operands: a value or constant for each input of the program.
    """
    return follow(
        program,
        operands,
        # a Python number of the program has the dtype of its literal
        lambda array, aval: _constant(writer, array, aval.dtype),
        lambda equation, inputs: _apply(writer, equation, inputs),
        needed(program, effects=False),
    )


def _constant(writer: Writer, constant: Any, dtype: Any) -> np.ndarray:
    if jax.numpy.issubdtype(dtype, jax.dtypes.prng_key):
        where = "/".join(writer.path)
        raise FKerasError(f"export, {where!r}: {_remedy('random')}", layer=where)
    return np.asarray(constant).astype(dtype, copy=False)


def _apply(writer: Writer, equation: Any, inputs: list[Operand]) -> list[Operand]:
    name = equation.primitive.name
    inner = called(equation)
    if inner is not None:
        return run(writer, inner, inputs)
    outputs = [as_spec(v.aval) for v in equation.outvars]
    is_random = name.startswith(("random_", "threefry"))
    if name not in _NOT_NOW and not is_random and _folds(inputs, outputs):
        return _computed(equation, inputs)
    eq = Equation(
        writer,
        name,
        equation.params,
        inputs,
        outputs,
        lambda program, operands: run(writer, program, operands),
    )
    if name not in RULES:
        raise eq.error("has no ONNX form.", _remedy(name))
    for parameter, value in RULES[name].unread(equation.params).items():
        raise eq.error(
            f"has {parameter}={value!r}; its ONNX form has no such parameter.", _remedy(name)
        )
    if name not in _OF_COMPLEX and any(str(x.dtype).startswith("complex") for x in inputs):
        raise eq.error("computes complex numbers.", _remedy(name))
    results = _rule(eq)
    return results if isinstance(results, list) else [results]


def _rule(eq: Equation) -> Any:
    first = eq.inputs[0] if eq.inputs else None
    small = first.narrow if isinstance(first, Value) else None
    if eq.name in elementwise.RULES and len(eq.inputs) == 1 and small is not None:
        # before the broadcast, on fewer elements
        inner = dataclasses.replace(
            eq, inputs=[small], outputs=[Spec(tuple(small.shape), eq.out.dtype)]
        )
        result = RULES[eq.name].emit(inner)
        return broadcast(eq, result[0] if isinstance(result, list) else result)
    return RULES[eq.name].emit(eq)


def _folds(inputs: list[Operand], outputs: list[Spec]) -> bool:
    """Whether an operation of constants is computed now, and not when the graph runs."""
    constants = [x for x in inputs if isinstance(x, np.ndarray)]
    sizes = [dim for spec in outputs for dim in spec.dims]
    if len(constants) < len(inputs) or any(isinstance(dim, str) for dim in sizes):
        return False
    # codes of quantized weights stay codes in the file
    if any(x.size > _CODES and str(x.dtype) in ("int8", "uint8") for x in constants):
        return False
    size = sum(math.prod(int(dim) for dim in spec.dims) for spec in outputs)
    return size <= max(_SMALL, _GROWTH * sum(x.size for x in constants))


def _placed(out: Any, params: Any, x: np.ndarray) -> np.ndarray:
    sizes = [1] * len(out.shape)
    for axis, place in enumerate(params["broadcast_dimensions"]):
        sizes[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(sizes), out.shape)


def _ordered(x: np.ndarray, order: Any) -> np.ndarray:
    return x if order is None else x.transpose(order)


def _converted(x: np.ndarray, dtype: Any) -> Any:
    # from floats to integers JAX clips to the range and converts NaN to 0
    exact = not is_float(x.dtype) or is_float(dtype)
    return x if exact else jax.lax.convert_element_type(jax.numpy.asarray(x), dtype)


# operations of constants without rounding, which NumPy computes faster than a compiled program
_NUMPY: types.MappingProxyType[str, Any] = types.MappingProxyType(
    {
        "reshape": lambda out, params, x: _ordered(x, params.get("dimensions")).reshape(out.shape),
        "squeeze": lambda out, params, x: x.reshape(out.shape),
        "broadcast_in_dim": _placed,
        "transpose": lambda out, params, x: x.transpose(params["permutation"]),
        "convert_element_type": lambda out, params, x: _converted(x, out.dtype),
        "concatenate": lambda out, params, *xs: np.concatenate(xs, params["dimension"]),
        "select_n": lambda out, params, which, *xs: np.choose(which, xs),
        "eq": lambda out, params, x, y: x == y,
        "lt": lambda out, params, x, y: x < y,
        "add": lambda out, params, x, y: x + y,
        "sub": lambda out, params, x, y: x - y,
        "mul": lambda out, params, x, y: x * y,
        "stop_gradient": lambda out, params, x: x,
    }
)


def _computed(equation: Any, inputs: list[Operand]) -> list[Operand]:
    name = equation.primitive.name
    compute = _NUMPY.get(name)
    if compute is not None and not RULES[name].unread(equation.params):
        out = equation.outvars[0].aval
        return [np.asarray(compute(out, equation.params, *inputs)).astype(out.dtype, copy=False)]
    results = equation.primitive.bind(*map(jax.numpy.asarray, inputs), **equation.params)
    results = results if equation.primitive.multiple_results else [results]
    return [np.asarray(result) for result in results]


def _remedy(name: str) -> str:
    if "random" in name or "threefry" in name:
        return "A file holds no random numbers: export the model without the layer that draws."
    if "callback" in name:
        return "A file cannot hold Python functions: do the work of the layer before the call."
    return (
        "Give the layer a method `to_onnx(writer, *inputs)`, or export the model without the layer."
    )
