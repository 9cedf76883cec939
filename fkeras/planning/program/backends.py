"""How compilers expand JAX's primitives: the additional arrays that operations need on a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from fkeras.planning.program.emitter import Emitter, primitive_costs
from fkeras.planning.program.kinds import is_half
from fkeras.planning.program.products import convolution, matrix_product

Numbers = Sequence["int | None"]


class Backend(NamedTuple):
    """How the compiler of a backend executes operations.

    Attributes:
        name: JAX's name of the backend.
    """

    name: str

    @property
    def is_cpu(self) -> bool:
        """Whether the rules of XLA's compiler for CPUs apply."""
        return self.name == "cpu"

    def expand(self, emit: Emitter, equation: Any, inputs: Numbers) -> Numbers | None:
        """Adds the operations of an equation that needs more than one; None for other equations."""
        name = equation.primitive.name
        if name in ("dot_general", "conv_general_dilated"):
            # CPUs multiply numbers of two bytes in float32
            widened = self.is_cpu and is_half(equation.invars[0].aval.dtype)
            expand = matrix_product if name == "dot_general" else convolution
            return expand(emit, equation, inputs, widened)
        if name == "random_bits":
            return _random_bits(emit, equation, inputs)
        if self.is_cpu and name == "erfc" and inputs[0] is not None:
            return _complementary_error(emit, equation, inputs[0])
        if self.is_cpu and name == "select_and_scatter_add":
            return _pooling_gradient(emit, equation, inputs)
        return None


def _random_bits(emit: Emitter, equation: Any, inputs: Numbers) -> Numbers:
    # the generator mixes two words for each number, and returns their exclusive or
    aval = equation.outvars[0].aval
    words = jax.ShapeDtypeStruct(aval.shape, "uint32")
    counters = [emit.add("broadcast", "iota", inputs, (words,))[0] for _ in range(2)]
    mixed = emit.add("call", "threefry2x32", counters, (words, words), in_place=True)
    return emit.add("elementwise", "xor", mixed, (aval,))


def _complementary_error(emit: Emitter, equation: Any, number: int) -> Numbers:
    # the formula of large numbers contains exp(-x**2), which the derivative uses again
    aval = equation.outvars[0].aval
    rounds = is_half(aval.dtype)
    square = emit.once("elementwise", "square", number, aval, (), expensive=rounds, floating=True)
    minus = emit.once("elementwise", "neg", square, aval, (), expensive=rounds, floating=True)
    power = emit.once(
        "elementwise", "exp", minus, aval, (), expensive=True, in_place=True, floating=True
    )
    costs = primitive_costs(equation)
    fields = {"costs": costs, "expensive": True, "in_place": True, "floating": True}
    return emit.add("elementwise", "erfc", (number, power), (aval,), **fields)


def _pooling_gradient(emit: Emitter, equation: Any, inputs: Numbers) -> Numbers:
    # The CPU compiler finds the positions of the maxima first: one array of indices for each axis,
    # the indices of the maxima, and a scatter of the gradients to these positions.
    source, operand = (variable.aval for variable in equation.invars[:2])
    axes = len(operand.shape)
    whole = jax.ShapeDtypeStruct(operand.shape, "int32")
    part = jax.ShapeDtypeStruct(source.shape, "int32")
    indices = [emit.add("call", "iota", (), (whole,))[0] for _ in range(axes)]
    maxima = emit.add("call", "reduce_window", (inputs[1], *indices), (source, *[part] * axes))
    table = jax.ShapeDtypeStruct((source.size, axes), "int32")
    (positions,) = emit.add("call", "concatenate", maxima[1:], (table,))
    (zeros,) = emit.add("call", "broadcast_in_dim", (), (operand,))
    (rows,) = emit.add("call", "copy", inputs[:1], (source,))
    result = (equation.outvars[0].aval,)
    fields = {"costs": primitive_costs(equation), "in_place": True}
    return emit.add("call", "scatter", (zeros, positions, rows), result, **fields)
